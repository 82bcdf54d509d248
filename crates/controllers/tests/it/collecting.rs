//! Objects without owners are deleted, and namespaces with all their content.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{
    ConfigMap, Namespace, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, PropagationPolicy,
};
use kube::core::GroupVersionKind;
use kube::{Api, Resource};
use plumb_controller_runtime::Watchable;
use plumb_testkit::{eventually, in_time};
use serde_json::{Value, json};

use crate::workloads::{Cluster, spec, template};

fn deployment() -> Value {
    json!({ "metadata": { "name": "web" }, "spec": spec("web", 2) })
}

fn policy(policy: PropagationPolicy) -> DeleteParams {
    DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() }
}

impl Cluster {
    async fn none<K>(&self)
    where
        K: Watchable
            + serde::de::DeserializeOwned
            + Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        self.until_all::<K>(std::collections::BTreeMap::is_empty).await;
    }

    async fn owned(
        &self,
        name: &str,
        owner: &impl Resource<DynamicType = ()>,
        block: bool,
        finalizers: Value,
    ) {
        let meta = owner.meta();
        let owner = json!({
            "apiVersion": api_version(owner), "kind": kind(owner), "name": meta.name, "uid": meta.uid,
            "blockOwnerDeletion": block,
        });
        let metadata = json!({ "name": name, "ownerReferences": [owner], "finalizers": finalizers });
        self.create::<ConfigMap>(json!({ "metadata": metadata })).await;
    }
}

fn api_version<K: Resource<DynamicType = ()>>(_: &K) -> String {
    K::api_version(&()).into_owned()
}

fn kind<K: Resource<DynamicType = ()>>(_: &K) -> String {
    K::kind(&()).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn background_deletion_removes_dependents_after_their_owner() {
    let cluster = Cluster::start();
    cluster.create::<Deployment>(deployment()).await;
    cluster.until_all::<Pod>(|pods| pods.len() == 2).await;
    cluster.api::<Deployment>().delete("web", &policy(PropagationPolicy::Background)).await.unwrap();
    cluster.none::<Deployment>().await;
    cluster.none::<ReplicaSet>().await;
    cluster.none::<Pod>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_foreground_an_owner_waits_for_what_blocks_it() {
    let cluster = Cluster::start();
    let owner = cluster.create::<ConfigMap>(json!({ "metadata": { "name": "owner" } })).await;
    cluster.owned("held", &owner, true, json!(["example.com/mine"])).await;
    cluster.owned("free", &owner, false, json!([])).await;
    cluster.api::<ConfigMap>().delete("owner", &policy(PropagationPolicy::Foreground)).await.unwrap();
    cluster.until::<ConfigMap>("held", |map| map.metadata.deletion_timestamp.is_some()).await;
    let owner = cluster.api::<ConfigMap>().get("owner").await.unwrap();
    assert!(owner.metadata.deletion_timestamp.is_some(), "it waits");
    cluster.merge::<ConfigMap>("held", json!({ "metadata": { "finalizers": null } })).await;
    cluster.until_all::<ConfigMap>(|maps| !maps.keys().any(|name| name != "kube-root-ca.crt")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_stay() {
    let cluster = Cluster::start();
    cluster.create::<Deployment>(deployment()).await;
    cluster.until_all::<Pod>(|pods| pods.len() == 2).await;
    cluster.api::<Deployment>().delete("web", &policy(PropagationPolicy::Orphan)).await.unwrap();
    cluster.none::<Deployment>().await;
    let set = cluster
        .until_all::<ReplicaSet>(|sets| sets.values().all(|set| set.metadata.owner_references.is_none()))
        .await;
    assert_eq!(set.len(), 1);
    // Another Deployment adopts them.
    let again = cluster.create::<Deployment>(deployment()).await;
    cluster
        .until_all::<ReplicaSet>(|sets| {
            let owners = sets.values().flat_map(|set| set.metadata.owner_references.iter().flatten());
            sets.len() == 1 && owners.map(|owner| Some(&owner.uid)).eq([again.metadata.uid.as_ref()])
        })
        .await;
}

/// Creates a replication controller and waits for its pods.
async fn replication_controller(cluster: &Cluster, name: &str, replicas: i32) -> ReplicationController {
    let spec = json!({ "replicas": replicas, "selector": { "app": name }, "template": template(name, "x") });
    let made = cluster.create(json!({ "metadata": { "name": name }, "spec": spec })).await;
    let is_of = |pod: &&Pod| pod.metadata.labels.as_ref().is_some_and(|labels| labels["app"] == name);
    let count = usize::try_from(replicas).unwrap();
    cluster.until_all::<Pod>(|pods| pods.values().filter(is_of).count() == count).await;
    made
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_a_replication_controller_are_deleted_with_it_or_orphaned() {
    let cluster = Cluster::start();
    let controllers = cluster.api::<ReplicationController>();
    replication_controller(&cluster, "gone", 3).await;
    controllers.delete("gone", &policy(PropagationPolicy::Background)).await.unwrap();
    cluster.none::<Pod>().await;
    replication_controller(&cluster, "kept", 3).await;
    controllers.delete("kept", &policy(PropagationPolicy::Orphan)).await.unwrap();
    cluster.none::<ReplicationController>().await;
    let pods = cluster
        .until_all::<Pod>(|pods| pods.values().all(|pod| pod.metadata.owner_references.is_none()))
        .await;
    assert_eq!(pods.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replication_controller_deleted_in_the_foreground_exists_until_its_pods_are_deleted() {
    let cluster = Cluster::start();
    replication_controller(&cluster, "web", 2).await;
    let controllers = cluster.api::<ReplicationController>();
    // A finalizer keeps one of the pods.
    let pods = cluster.until_all::<Pod>(|pods| pods.len() == 2).await;
    let held = pods.keys().next().unwrap();
    cluster.merge::<Pod>(held, json!({ "metadata": { "finalizers": ["example.com/mine"] } })).await;
    controllers.delete("web", &policy(PropagationPolicy::Foreground)).await.unwrap();
    cluster
        .until_all::<Pod>(|pods| pods.len() == 1 && pods[held].metadata.deletion_timestamp.is_some())
        .await;
    let waits = controllers.get("web").await.unwrap().metadata;
    assert_eq!(waits.finalizers, Some(vec!["foregroundDeletion".to_owned()]));
    cluster.merge::<Pod>(held, json!({ "metadata": { "finalizers": null } })).await;
    cluster.none::<Pod>().await;
    cluster.none::<ReplicationController>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_two_owners_stays_while_one_of_them_waits_for_its_deletion() {
    let cluster = Cluster::start();
    replication_controller(&cluster, "terminating", 2).await;
    let other: ConfigMap = cluster.create(json!({ "metadata": { "name": "staying" } })).await;
    let pods = cluster.until_all::<Pod>(|pods| pods.len() == 2).await;
    let (shared, pod) = pods.iter().next().unwrap();
    let mut owners = json!(pod.metadata.owner_references);
    owners.as_array_mut().unwrap().push(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "staying", "uid": other.metadata.uid,
    }));
    cluster.merge::<Pod>(shared, json!({ "metadata": { "ownerReferences": owners } })).await;
    let controllers = cluster.api::<ReplicationController>();
    controllers.delete("terminating", &policy(PropagationPolicy::Foreground)).await.unwrap();
    cluster.none::<ReplicationController>().await;
    let left = cluster.until_all::<Pod>(|pods| pods.len() == 1).await;
    let metadata = &left[shared].metadata;
    assert_eq!(metadata.deletion_timestamp, None);
    let owners: Vec<&str> =
        metadata.owner_references.iter().flatten().map(|owner| owner.name.as_str()).collect();
    assert_eq!(owners, ["staying"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_in_a_cycle_of_owners_are_deleted_with_the_first() {
    let cluster = Cluster::start();
    let mut maps: Vec<ConfigMap> = Vec::new();
    for name in ["one", "two", "three"] {
        maps.push(cluster.create(json!({ "metadata": { "name": name } })).await);
    }
    for (number, name) in ["one", "two", "three"].into_iter().enumerate() {
        let owner = &maps[(number + 2) % 3].metadata;
        let owner = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": owner.name, "uid": owner.uid,
            "controller": true, "blockOwnerDeletion": true,
        });
        cluster.merge::<ConfigMap>(name, json!({ "metadata": { "ownerReferences": [owner] } })).await;
    }
    cluster.api::<ConfigMap>().delete("one", &policy(PropagationPolicy::Foreground)).await.unwrap();
    cluster
        .until_all::<ConfigMap>(|maps| !["one", "two", "three"].iter().any(|name| maps.contains_key(*name)))
        .await;
}

/// A version of widgets. The last one is stored.
fn version(name: &str, served: bool, storage: bool) -> Value {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({ "name": name, "served": served, "storage": storage, "schema": { "openAPIV3Schema": schema } })
}

/// Defines widgets in version `v1`.
async fn define_widgets(cluster: &Cluster) -> Api<CustomResourceDefinition> {
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList" },
            "versions": [version("v1", true, true)],
        },
    }))
    .unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    definitions
}

/// Creates a widget in a version, which is served a moment after it was defined.
async fn create_widget(cluster: &Cluster, namespace: &str, version: &str, widget: Value) -> DynamicObject {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", version, "Widget"));
    let widgets: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), namespace, &resource);
    let mut widget = widget;
    widget["apiVersion"] = json!(resource.api_version);
    widget["kind"] = json!("Widget");
    let widget: DynamicObject = serde_json::from_value(widget).unwrap();
    in_time(async {
        loop {
            match widgets.create(&PostParams::default(), &widget).await {
                Ok(widget) => return widget,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await
}

fn owned_by(name: &str, api_version: &str, kind: &str, owner: (&str, &str)) -> Value {
    let owner = json!({ "apiVersion": api_version, "kind": kind, "name": owner.0, "uid": owner.1 });
    json!({ "metadata": { "name": name, "ownerReferences": [owner] } })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_custom_resource_is_collected_in_whatever_version_it_is_served() {
    let cluster = Cluster::start();
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let team: Namespace = serde_json::from_value(json!({ "metadata": { "name": "team" } })).unwrap();
    namespaces.create(&PostParams::default(), &team).await.unwrap();
    let definitions = define_widgets(&cluster).await;
    let serve = async |versions: Value| {
        let patch = Patch::Merge(json!({ "spec": { "versions": versions } }));
        definitions.patch("widgets.example.com", &PatchParams::default(), &patch).await.unwrap();
    };
    // A widget that is deleted with its owner shows that widgets are watched in this version.
    let is_watched = async |version: &str| {
        let owner: ConfigMap = cluster.create(json!({ "metadata": { "name": version } })).await;
        let owner = (version, owner.metadata.uid.as_deref().unwrap().to_owned());
        let widget = owned_by(version, "v1", "ConfigMap", (owner.0, &owner.1));
        create_widget(&cluster, "default", version, widget).await;
        cluster.api::<ConfigMap>().delete(version, &DeleteParams::default()).await.unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", version, "Widget"));
        let widgets: Api<DynamicObject> = Api::default_namespaced_with(cluster.client.clone(), &resource);
        eventually(async || widgets.get_opt(version).await.unwrap().is_none()).await;
    };
    is_watched("v1").await;
    let widget = create_widget(&cluster, "team", "v1", json!({ "metadata": { "name": "w" } })).await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "team");
    let dependent =
        owned_by("dependent", "example.com/v1", "Widget", ("w", widget.metadata.uid.as_deref().unwrap()));
    maps.create(&PostParams::default(), &serde_json::from_value(dependent).unwrap()).await.unwrap();

    serve(json!([version("v1", false, false), version("v2", true, true)])).await;
    is_watched("v2").await;
    assert!(maps.get_opt("dependent").await.unwrap().is_some(), "its owner exists in another version");

    serve(json!([version("v1", false, false), version("v2", false, true)])).await;
    let informer = "metadata-informer/widgets.example.com";
    let runs = |name: &str| cluster.supervisor.tasks().iter().any(|task| task.name == name);
    eventually(async || !runs(informer)).await;
    assert!(maps.get_opt("dependent").await.unwrap().is_some(), "its owner exists, though it is not served");

    serve(json!([version("v1", false, false), version("v2", true, true)])).await;
    eventually(async || runs(informer)).await;
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    super::until_gone(&namespaces, "team").await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v2", "Widget"));
    let widgets: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &resource);
    assert!(widgets.list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_whose_owner_never_existed_is_deleted_and_custom_owners_count() {
    let cluster = Cluster::start();
    define_widgets(&cluster).await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let widgets: Api<DynamicObject> = Api::default_namespaced_with(cluster.client.clone(), &resource);
    let widget = create_widget(&cluster, "default", "v1", json!({ "metadata": { "name": "w" } })).await;
    let map = |name: &str, uid: &str| {
        let owner = json!({ "apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": uid });
        json!({ "metadata": { "name": name, "ownerReferences": [owner] } })
    };
    cluster.create::<ConfigMap>(map("kept", widget.metadata.uid.as_deref().unwrap())).await;
    cluster.create::<ConfigMap>(map("lost", "11111111-2222-3333-4444-555555555555")).await;
    cluster.until_all::<ConfigMap>(|maps| maps.contains_key("kept") && !maps.contains_key("lost")).await;
    widgets.delete("w", &DeleteParams::default()).await.unwrap();
    cluster.until_all::<ConfigMap>(|maps| !maps.contains_key("kept")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_deleted_after_its_content() {
    let cluster = Cluster::start();
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let team: Namespace = serde_json::from_value(json!({ "metadata": { "name": "team" } })).unwrap();
    namespaces.create(&PostParams::default(), &team).await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), "team");
    let web: Deployment = serde_json::from_value(deployment()).unwrap();
    deployments.create(&PostParams::default(), &web).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "team");
    let held = json!({ "metadata": { "name": "held", "finalizers": ["example.com/mine"] } });
    maps.create(&PostParams::default(), &serde_json::from_value(held).unwrap()).await.unwrap();
    let mut pod = template("other", "x");
    pod["metadata"]["name"] = json!("alone");
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "team");
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();

    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    let remaining = |namespace: &Namespace| {
        let conditions =
            namespace.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        conditions.into_iter().find(|one| one.type_ == "NamespaceFinalizersRemaining" && one.status == "True")
    };
    let said = super::until(&namespaces, "team", |team| remaining(team).is_some()).await;
    let said = remaining(&said).unwrap().message.unwrap();
    assert_eq!(
        said,
        "Some content in the namespace has finalizers remaining: example.com/mine in 1 resource instances"
    );
    assert!(pods.list(&ListParams::default()).await.unwrap().items.is_empty());
    let free = json!({ "metadata": { "finalizers": null } });
    maps.patch("held", &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
    super::until_gone(&namespaces, "team").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_a_namespace_are_deleted_before_everything_else() {
    let cluster = Cluster::start();
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let team: Namespace = serde_json::from_value(json!({ "metadata": { "name": "team" } })).unwrap();
    namespaces.create(&PostParams::default(), &team).await.unwrap();
    let mut pod = template("web", "x");
    pod["metadata"]["name"] = json!("held");
    pod["metadata"]["finalizers"] = json!(["example.com/mine"]);
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "team");
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "team");
    let map = serde_json::from_value(json!({ "metadata": { "name": "needed" } })).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    let services: Api<Service> = Api::namespaced(cluster.client.clone(), "team");
    let service = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
    services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    let waits = |team: &Namespace| {
        let conditions =
            team.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        conditions.iter().any(|one| {
            let message = one.message.as_deref().unwrap_or_default();
            one.type_ == "NamespaceContentRemaining" && message.contains("pods. has 1 resource instances")
        })
    };
    super::until(&namespaces, "team", waits).await;
    // The objects that a pod may need exist as long as the pod.
    assert!(pods.get("held").await.unwrap().metadata.deletion_timestamp.is_some());
    assert!(maps.get("needed").await.unwrap().metadata.deletion_timestamp.is_none());
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    pods.patch("held", &PatchParams::default(), &free).await.unwrap();
    super::until_gone(&namespaces, "team").await;
    assert!(maps.get_opt("needed").await.unwrap().is_none());
    assert!(services.get_opt("web").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_and_volumes_that_are_deleted_are_finalized_when_they_are_not_in_use() {
    let cluster = Cluster::start();
    let claim =
        json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
    for name in ["used", "unused"] {
        cluster.create::<PersistentVolumeClaim>(json!({ "metadata": { "name": name }, "spec": claim })).await;
    }
    let mut pod = template("other", "x");
    pod["metadata"]["name"] = json!("user");
    pod["spec"]["nodeName"] = json!("somewhere");
    pod["spec"]["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "used" } }]);
    cluster.create::<Pod>(pod).await;
    // Once its budget counts it, all controllers have observed the pod.
    let selector = json!({ "matchLabels": { "app": "other" } });
    let budget =
        json!({ "metadata": { "name": "calm" }, "spec": { "minAvailable": 1, "selector": selector } });
    cluster.create::<PodDisruptionBudget>(budget).await;
    let counts = |budget: &PodDisruptionBudget| {
        budget.status.as_ref().is_some_and(|status| status.expected_pods == Some(1))
    };
    cluster.until("calm", counts).await;
    let claims = cluster.api::<PersistentVolumeClaim>();
    for name in ["used", "unused"] {
        claims.delete(name, &DeleteParams::default()).await.unwrap();
    }
    let left = cluster.until_all::<PersistentVolumeClaim>(|claims| !claims.contains_key("unused")).await;
    assert!(left["used"].metadata.deletion_timestamp.is_some());
    cluster.api::<Pod>().delete("user", &DeleteParams::default().grace_period(0)).await.unwrap();
    cluster.none::<PersistentVolumeClaim>().await;

    let volumes: Api<PersistentVolume> = Api::all(cluster.client.clone());
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" }, "hostPath": { "path": "/data" },
    });
    let volume = serde_json::from_value(json!({ "metadata": { "name": "disk" }, "spec": spec })).unwrap();
    volumes.create(&PostParams::default(), &volume).await.unwrap();
    volumes.delete("disk", &DeleteParams::default()).await.unwrap();
    super::until_gone(&volumes, "disk").await;
}
