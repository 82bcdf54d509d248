//! `StatefulSet`s and `DaemonSet`s, through the API. The test makes a pod ready as soon as it observes it.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, StatefulSet};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::workloads::{Cluster, template};

fn names<K>(objects: &BTreeMap<String, K>) -> Vec<&str> {
    objects.keys().map(String::as_str).collect()
}

fn image(pod: &Pod) -> &str {
    pod.spec.as_ref().unwrap().containers[0].image.as_deref().unwrap()
}

/// Whether all pods of a set have one revision and are ready.
fn is_rolled_out(replicas: i32) -> impl Fn(&StatefulSet) -> bool {
    move |set| {
        let status = set.status.clone().unwrap_or_default();
        status.observed_generation == set.metadata.generation
            && (status.replicas, status.ready_replicas.unwrap_or(0)) == (replicas, replicas)
            && status.updated_replicas.unwrap_or(0) == replicas
            && status.current_revision == status.update_revision
    }
}

fn stateful(replicas: i32, more: Value) -> Value {
    let mut spec = json!({
        "replicas": replicas, "serviceName": "web", "selector": { "matchLabels": { "app": "web" } },
        "template": template("web", "one"),
    });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({ "metadata": { "name": "web" }, "spec": spec })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_numbers_its_pods_and_gives_them_claims() {
    let cluster = Cluster::start();
    let claim =
        json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
    let data = json!([{ "metadata": { "name": "data" }, "spec": claim }]);
    let retention = json!({ "whenDeleted": "Retain", "whenScaled": "Delete" });
    let more = json!({ "volumeClaimTemplates": data, "persistentVolumeClaimRetentionPolicy": retention });
    cluster.create::<StatefulSet>(stateful(3, more)).await;
    cluster.until("web", is_rolled_out(3)).await;
    let pods = cluster.until_all::<Pod>(|pods| pods.len() == 3).await;
    assert_eq!(names(&pods), ["web-0", "web-1", "web-2"]);
    let created = |name: &str| pods[name].metadata.creation_timestamp.clone();
    assert!(created("web-0") <= created("web-1") && created("web-1") <= created("web-2"));
    let label = |pod: &Pod, key: &str| pod.metadata.labels.as_ref().unwrap()[key].clone();
    assert_eq!(label(&pods["web-2"], "apps.kubernetes.io/pod-index"), "2");
    assert_eq!(label(&pods["web-2"], "statefulset.kubernetes.io/pod-name"), "web-2");
    let claims = cluster.until_all::<PersistentVolumeClaim>(|claims| claims.len() == 3).await;
    assert_eq!(names(&claims), ["data-web-0", "data-web-1", "data-web-2"]);

    // A deleted pod is recreated under the same name, and surplus pods are deleted from the highest ordinal.
    let before = pods["web-1"].metadata.uid.clone();
    cluster.api::<Pod>().delete("web-1", &DeleteParams::default()).await.unwrap();
    cluster.until::<Pod>("web-1", |pod| pod.metadata.uid != before).await;
    cluster.until("web", is_rolled_out(3)).await;
    cluster.merge::<StatefulSet>("web", json!({ "spec": { "replicas": 1 } })).await;
    cluster.until("web", is_rolled_out(1)).await;
    assert_eq!(names(&cluster.until_all::<Pod>(|pods| pods.len() == 1).await), ["web-0"]);
    // The claims are deleted with the pods.
    let left = cluster.until_all::<PersistentVolumeClaim>(|claims| claims.len() == 1).await;
    assert_eq!(names(&left), ["data-web-0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_stops_at_the_partition_and_can_be_undone() {
    let cluster = Cluster::start();
    cluster.create::<StatefulSet>(stateful(3, json!({ "podManagementPolicy": "Parallel" }))).await;
    let set = cluster.until("web", is_rolled_out(3)).await;
    let first = set.status.unwrap().update_revision.unwrap();
    let image_of = |wanted: [&'static str; 3]| {
        move |pods: &BTreeMap<String, Pod>| pods.len() == 3 && pods.values().map(image).eq(wanted)
    };
    let change = |image: &str, partition: i32| {
        let rolling = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": partition } });
        json!({ "spec": { "template": template("web", image), "updateStrategy": rolling } })
    };
    cluster.merge::<StatefulSet>("web", change("two", 1)).await;
    cluster.until_all::<Pod>(image_of(["one", "two", "two"])).await;
    cluster.merge::<StatefulSet>("web", change("two", 0)).await;
    cluster.until_all::<Pod>(image_of(["two", "two", "two"])).await;
    let set = cluster.until("web", is_rolled_out(3)).await;
    assert_ne!(set.status.unwrap().update_revision.as_ref(), Some(&first));

    // As `kubectl rollout undo` does it: with the patch in the revision.
    let revisions = cluster.until_all::<ControllerRevision>(|all| all.len() == 2).await;
    let patch = revisions[&first].data.clone().unwrap().0;
    let sets = cluster.api::<StatefulSet>();
    sets.patch("web", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    cluster.until_all::<Pod>(image_of(["one", "one", "one"])).await;
    let set = cluster.until("web", is_rolled_out(3)).await;
    assert_eq!(set.status.unwrap().update_revision.as_ref(), Some(&first));
    let revisions = cluster.until_all::<ControllerRevision>(|all| all.len() == 2).await;
    assert_eq!(revisions[&first].revision, 3);
}

/// A node that is ready, without the taint that new nodes have: no controller here would remove it.
async fn node(cluster: &Cluster, name: &str) {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let node: Node =
        serde_json::from_value(json!({ "metadata": { "name": name, "labels": { "kind": "worker" } } }))
            .unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let now = jiff::Timestamp::now();
    let ready =
        json!({ "type": "Ready", "status": "True", "lastHeartbeatTime": now, "lastTransitionTime": now });
    let status = Patch::Merge(json!({ "status": { "conditions": [ready] } }));
    nodes.patch_status(name, &PatchParams::default(), &status).await.unwrap();
    let plain = Patch::Merge(json!({ "spec": { "taints": null } }));
    nodes.patch(name, &PatchParams::default(), &plain).await.unwrap();
}

fn is_on_all(count: i32) -> impl Fn(&DaemonSet) -> bool {
    move |set| {
        let status = set.status.clone().unwrap_or_default();
        status.observed_generation == set.metadata.generation
            && status.desired_number_scheduled == count
            && status.number_available.unwrap_or(0) == count
            && status.updated_number_scheduled.unwrap_or(0) == count
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_set_has_a_pod_on_each_eligible_node() {
    let cluster = Cluster::start();
    node(&cluster, "a").await;
    node(&cluster, "b").await;
    let mut chosen = template("agent", "one");
    chosen["spec"]["nodeSelector"] = json!({ "kind": "worker" });
    let spec = json!({ "selector": { "matchLabels": { "app": "agent" } }, "template": chosen });
    cluster.create::<DaemonSet>(json!({ "metadata": { "name": "agent" }, "spec": spec })).await;
    cluster.until("agent", is_on_all(2)).await;
    node(&cluster, "c").await;
    cluster.until("agent", is_on_all(3)).await;

    // A new template is rolled out to one node after the other.
    chosen["spec"]["containers"][0]["image"] = json!("two");
    cluster.merge::<DaemonSet>("agent", json!({ "spec": { "template": chosen } })).await;
    cluster.until("agent", is_on_all(3)).await;
    let pods = cluster.until_all::<Pod>(|pods| pods.len() == 3).await;
    assert!(pods.values().all(|pod| image(pod) == "two"));
    assert_eq!(cluster.until_all::<ControllerRevision>(|all| all.len() == 2).await.len(), 2);

    // A node that is no longer eligible loses its pod.
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let other = Patch::Merge(json!({ "metadata": { "labels": { "kind": "other" } } }));
    nodes.patch("a", &PatchParams::default(), &other).await.unwrap();
    cluster.until("agent", is_on_all(2)).await;
    cluster.until_all::<Pod>(|pods| pods.len() == 2).await;
}

/// Sets the status of a failed pod, as a node does that evicts it.
async fn fail(cluster: &Cluster, name: &str) {
    let failed = Patch::Merge(json!({ "status": { "phase": "Failed", "reason": "Evicted" } }));
    cluster.api::<Pod>().patch_status(name, &PatchParams::default(), &failed).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_sets_that_have_failed_are_replaced() {
    let cluster = Cluster::start();
    cluster.create::<StatefulSet>(stateful(2, json!({}))).await;
    cluster.until("web", is_rolled_out(2)).await;
    node(&cluster, "a").await;
    let spec =
        json!({ "selector": { "matchLabels": { "app": "agent" } }, "template": template("agent", "one") });
    cluster.create::<DaemonSet>(json!({ "metadata": { "name": "agent" }, "spec": spec })).await;
    cluster.until("agent", is_on_all(1)).await;
    let pods = cluster.until_all::<Pod>(|pods| pods.len() == 3).await;
    let daemon = pods.keys().find(|name| name.starts_with("agent-")).unwrap();
    fail(&cluster, daemon).await;
    cluster.until_all::<Pod>(|pods| pods.len() == 3 && !pods.contains_key(daemon)).await;
    cluster.until("agent", is_on_all(1)).await;
    let before = pods["web-0"].metadata.uid.clone();
    fail(&cluster, "web-0").await;
    cluster.until::<Pod>("web-0", |pod| pod.metadata.uid != before).await;
    cluster.until("web", is_rolled_out(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_of_a_daemon_set_leaves_the_pods_that_were_not_updated() {
    let cluster = Cluster::start();
    for name in ["a", "b", "c"] {
        node(&cluster, name).await;
    }
    let spec =
        json!({ "selector": { "matchLabels": { "app": "agent" } }, "template": template("agent", "one") });
    cluster.create::<DaemonSet>(json!({ "metadata": { "name": "agent" }, "spec": spec })).await;
    cluster.until("agent", is_on_all(3)).await;
    let before = cluster.until_all::<Pod>(|pods| pods.len() == 3).await;
    // The first pod of the new template does not become ready, so no second one is replaced.
    let change = |image: &str| json!({ "spec": { "template": template("agent", image) } });
    cluster.merge::<DaemonSet>("agent", change("broken")).await;
    cluster.until_all::<Pod>(|pods| pods.len() == 3 && pods.values().any(|pod| image(pod) == "broken")).await;
    cluster.merge::<DaemonSet>("agent", change("one")).await;
    cluster.until("agent", is_on_all(3)).await;
    let after =
        cluster.until_all::<Pod>(|pods| pods.values().filter(|pod| image(pod) == "one").count() == 3).await;
    let kept = before.keys().filter(|name| after.contains_key(*name)).count();
    assert_eq!(kept, 2, "{:?} {:?}", names(&before), names(&after));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_waits_for_a_pod_that_is_not_ready_unless_its_pods_come_in_parallel() {
    let cluster = Cluster::start();
    let broken =
        |policy: &str| json!({ "template": template("web", "broken"), "podManagementPolicy": policy });
    cluster.create::<StatefulSet>(stateful(3, broken("OrderedReady"))).await;
    let has = |count: i32| {
        move |set: &StatefulSet| {
            let status = set.status.clone().unwrap_or_default();
            status.observed_generation == set.metadata.generation && status.replicas == count
        }
    };
    cluster.until("web", has(1)).await;
    let ready = Patch::Merge(json!({ "status": {
        "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }],
    } }));
    cluster.api::<Pod>().patch_status("web-0", &PatchParams::default(), &ready).await.unwrap();
    cluster.until("web", has(2)).await;
    assert_eq!(names(&cluster.until_all::<Pod>(|pods| pods.len() == 2).await), ["web-0", "web-1"]);
    cluster.api::<StatefulSet>().delete("web", &DeleteParams::background()).await.unwrap();
    cluster.until_all::<Pod>(BTreeMap::is_empty).await;

    cluster.create::<StatefulSet>(stateful(3, broken("Parallel"))).await;
    cluster.until("web", has(3)).await;
    cluster.merge::<StatefulSet>("web", json!({ "spec": { "replicas": 0 } })).await;
    cluster.until("web", has(0)).await;
}
