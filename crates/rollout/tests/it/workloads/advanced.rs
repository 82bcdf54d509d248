//! Advanced StatefulSets and DaemonSets. OpenKruise does not run here: a stand-in does of its controllers what a hold is about.

use std::collections::BTreeMap;

use futures_util::stream::{StreamExt as _, select};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use plumb_client::Api;
use plumb_controller_runtime::{Reflector, WatchConfig};
use plumb_rollout::api::RolloutPolicy;
use plumb_rollout::commands::{Command, command};
use plumb_rollout::engine::Phase;
use plumb_rollout::workloads::WorkloadKind;
use plumb_testkit::object;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::cluster::{Answer, Cluster, actual_cpu, edit, status};
use super::deployments::sized;

const REVISION: &str = "controller-revision-hash";
const PODS: usize = 3;
const KINDS: [WorkloadKind; 2] = [WorkloadKind::AdvancedStatefulSet, WorkloadKind::AdvancedDaemonSet];

/// The definition of a kind. Its schema is open, as that of OpenKruise is in templates.
fn definition(kind: WorkloadKind) -> CustomResourceDefinition {
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let schema =
        json!({ "openAPIV3Schema": { "type": "object", "properties": { "spec": open, "status": open } } });
    let version = |name: &str, storage: bool| json!({ "name": name, "served": true, "storage": storage, "schema": schema, "subresources": { "status": {} } });
    let plural = kind.plural();
    object(json!({
        "metadata": { "name": format!("{plural}.apps.kruise.io") },
        "spec": {
            "group": "apps.kruise.io", "scope": "Namespaced",
            "names": { "kind": kind.name(), "listKind": format!("{}List", kind.name()), "plural": plural,
                "singular": plural.trim_end_matches('s') },
            "versions": [version("v1alpha1", false), version("v1beta1", true)],
        },
    }))
}

fn resource(kind: WorkloadKind) -> ApiResource {
    ApiResource {
        group: "apps.kruise.io".to_owned(),
        version: "v1beta1".to_owned(),
        api_version: "apps.kruise.io/v1beta1".to_owned(),
        kind: kind.name().to_owned(),
        plural: kind.plural().to_owned(),
    }
}

/// A set. A field that no type here knows is in its template.
fn new_set(kind: WorkloadKind) -> DynamicObject {
    object(json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": kind.name(),
        "metadata": { "name": "web", "annotations": { "rollout.plumb.dev/in-place": "true" } },
        "spec": {
            "replicas": PODS, "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "fromTheFuture": { "kept": true }, "containers": [
                    { "name": "app", "image": "app:1", "resources": { "requests": { "cpu": "100m" } } },
                ] },
            },
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 0, "maxUnavailable": 1 } },
        },
    }))
}

/// A set that runs, and its pods.
struct Running {
    cluster: Cluster,
    sets: Api<DynamicObject>,
    kind: WorkloadKind,
    before: BTreeMap<String, Pod>,
    _stand_in: JoinSet<()>,
}

impl Running {
    /// The kind comes to be defined when our controllers run already.
    async fn start(kind: WorkloadKind) -> Self {
        let mut cluster = Cluster::start(PODS).await;
        cluster.roll_out(true);
        let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
        definitions.create(&PostParams::default(), &definition(kind)).await.unwrap();
        plumb_testkit::until(&definitions, &format!("{}.apps.kruise.io", kind.plural()), |one| {
            let status = one.status.clone().unwrap_or_default();
            status.conditions.iter().flatten().any(|one| one.type_ == "Established" && one.status == "True")
        })
        .await;
        let sets: Api<DynamicObject> =
            Api::namespaced_with(cluster.client.clone(), "default", &resource(kind));
        let mut stand_in = JoinSet::new();
        stand_in.spawn(control(kind, sets.clone(), cluster.client.clone()));
        sets.create(&PostParams::default(), &new_set(kind)).await.unwrap();
        let before = cluster
            .until_all::<Pod>(|pods| pods.len() == PODS && pods.values().all(|pod| actual_cpu(pod).is_some()))
            .await;
        Self { cluster, sets, kind, before, _stand_in: stand_in }
    }

    async fn edit(&self, cpu: &str) {
        let mut template = self.sets.get("web").await.unwrap().data["spec"]["template"].clone();
        template["spec"]["containers"] = sized(cpu)["spec"]["template"]["spec"]["containers"].clone();
        edit(&self.sets, self.kind, "web", json!({ "spec": { "template": template } })).await;
    }

    /// Waits until the rollout is in a phase and the set is released, and checks the pods.
    async fn until(&self, phase: Phase, cpu: &str) {
        let set = plumb_testkit::until(&self.sets, "web", |set: &DynamicObject| {
            status(set).is_some_and(|status| status.phase == phase)
                && set.data["spec"]["updateStrategy"]["rollingUpdate"]
                    == json!({ "partition": 0, "maxUnavailable": 1 })
        })
        .await;
        let template = &set.data["spec"]["template"]["spec"];
        assert_eq!(template["containers"][0]["resources"], json!({ "requests": { "cpu": cpu } }));
        assert_eq!(template["fromTheFuture"]["kept"], true);
        let pods = self.cluster.pods().await;
        assert_eq!(pods.len(), PODS);
        for (name, pod) in &pods {
            assert_eq!(pod.metadata.uid, self.before[name].metadata.uid, "{name} was recreated");
            assert_eq!(actual_cpu(pod).as_deref(), Some(cpu), "{name}");
        }
    }
}

/// Does what OpenKruise's controllers do: revisions, pods of the latest one, status, and unless it is paused an update,
/// which recreates pods.
async fn control(kind: WorkloadKind, sets: Api<DynamicObject>, client: kube::Client) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let revisions: Api<ControllerRevision> = Api::default_namespaced(client);
    let of_sets = Reflector::new(&sets, WatchConfig::default()).into_stream().map(drop);
    let of_pods = Reflector::new(&pods, WatchConfig::default()).into_stream().map(drop);
    let mut events = std::pin::pin!(select(of_sets, of_pods));
    while events.next().await.is_some() {
        let Ok(set) = sets.get("web").await else { continue };
        let (spec, name) = (&set.data["spec"], set.metadata.name.clone().unwrap());
        let owner = json!([{ "apiVersion": "apps.kruise.io/v1beta1", "kind": kind.name(), "name": name,
            "uid": set.metadata.uid, "controller": true, "blockOwnerDeletion": true }]);
        let all = revisions.list(&ListParams::default()).await.unwrap().items;
        let last = all.iter().map(|one| one.revision).max().unwrap_or(0);
        let equal = all
            .iter()
            .find(|one| one.data.as_ref().is_some_and(|data| data.0["spec"]["template"] == spec["template"]));
        let hash = match equal {
            Some(equal) => equal.metadata.labels.as_ref().unwrap()[REVISION].clone(),
            None => format!("hash{}", last + 1),
        };
        let revision = format!("{name}-{hash}");
        if let Some(equal) = equal {
            if equal.revision < last {
                let latest = Patch::Merge(json!({ "revision": last + 1 }));
                revisions.patch(&revision, &PatchParams::default(), &latest).await.unwrap();
            }
        } else {
            let new = object(json!({
                "metadata": { "name": revision, "labels": { REVISION: hash }, "ownerReferences": owner },
                "revision": last + 1, "data": { "spec": { "template": spec["template"] } },
            }));
            revisions.create(&PostParams::default(), &new).await.unwrap();
        }
        let label = if kind == WorkloadKind::AdvancedStatefulSet { revision } else { hash };
        let is_paused = spec["updateStrategy"]["rollingUpdate"]["paused"] == true;
        let running = pods.list(&ListParams::default()).await.unwrap().items;
        let is_updated = |pod: &Pod| pod.metadata.labels.as_ref().unwrap()[REVISION] == label;
        for pod in running.iter().filter(|pod| !is_paused && !is_updated(pod)) {
            let pod = pod.metadata.name.as_deref().unwrap();
            // Its node may have removed it meanwhile.
            let _ = pods.delete(pod, &kube::api::DeleteParams::default()).await;
        }
        for number in 0..PODS {
            let pod = format!("{name}-{number}");
            if !running.iter().any(|one| one.metadata.name.as_ref() == Some(&pod)) {
                let mut new = json!({ "metadata": spec["template"]["metadata"],
                    "spec": { "containers": spec["template"]["spec"]["containers"] } });
                (new["metadata"]["name"], new["metadata"]["ownerReferences"]) = (json!(pod), owner.clone());
                new["metadata"]["labels"][REVISION] = json!(label);
                // Its watch may be behind.
                let _ = pods.create(&PostParams::default(), &object(new)).await;
            }
        }
        let updated = running.iter().filter(|pod| is_updated(pod)).count();
        let observed = match kind {
            WorkloadKind::AdvancedStatefulSet => {
                json!({ "updateRevision": label, "updatedReplicas": updated })
            }
            _ => json!({ "desiredNumberScheduled": PODS, "updatedNumberScheduled": updated }),
        };
        let mut status = json!({ "status": observed });
        status["status"]["observedGeneration"] = json!(set.metadata.generation);
        sets.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_advanced_sets_are_resized_and_their_strategy_is_restored() {
    for kind in KINDS {
        let running = Running::start(kind).await;
        for cpu in ["200m", "100m"] {
            running.edit(cpu).await;
            running.until(Phase::Complete, cpu).await;
        }
        command(&running.cluster.client, kind, "default", "web", Command::Undo).await.unwrap();
        // Without the webhook an undo is an edit that OpenKruise rolls out: it recreates the pods.
        let is_undone = |pods: &BTreeMap<String, Pod>| {
            pods.len() == PODS && pods.values().all(|pod| actual_cpu(pod).as_deref() == Some("200m"))
        };
        let pods = running.cluster.until_all::<Pod>(is_undone).await;
        assert!(pods.iter().all(|(name, pod)| pod.metadata.uid != running.before[name].metadata.uid));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_template_of_an_advanced_set_is_rolled_back_and_its_other_fields_stay() {
    for kind in KINDS {
        let running = Running::start(kind).await;
        let policy = json!({
            "metadata": { "name": "web" },
            "spec": {
                "targetRef": { "apiVersion": "apps.kruise.io/v1beta1", "kind": kind.name(), "name": "web" },
                "onFailure": "RollbackAll",
            },
        });
        running.cluster.create::<RolloutPolicy>(policy).await;
        running
            .cluster
            .until::<RolloutPolicy>("web", |one| one.status.as_ref().is_some_and(|one| one.workloads == 1))
            .await;
        running.cluster.answer("web-1", "200m", Answer::Infeasible);
        running.edit("200m").await;
        running.until(Phase::RolledBack, "100m").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_advanced_set_that_is_held_is_released_when_all_are() {
    let mut running = Running::start(WorkloadKind::AdvancedStatefulSet).await;
    running.cluster.crash();
    running.edit("200m").await;
    let held: Value = running.sets.get("web").await.unwrap().data;
    assert_eq!(held["spec"]["updateStrategy"]["rollingUpdate"]["paused"], true);
    let released = plumb_rollout::release_all(running.cluster.config(true)).await;
    assert_eq!(released, 1);
    let set = running.sets.get("web").await.unwrap();
    assert_eq!(
        set.data["spec"]["updateStrategy"]["rollingUpdate"],
        json!({ "partition": 0, "maxUnavailable": 1 })
    );
    assert_eq!(status(&set).unwrap().phase, Phase::Recreating);
}
