//! The walk-through of in-place resize that docs/walk-through.md tells, with real `kubectl`: a pod is given more, then more
//! than there is now, then more than there ever is.

use super::cluster::Cluster;
use super::conformance::{clear, no_containers};
use super::kubectl::kubectl;

/// The pod, as a manifest of the alpha spells it.
const MANIFEST: &str = r"
apiVersion: v1
kind: Pod
metadata: {name: 2pod}
spec:
  containers:
  - name: stress
    image: plumb/load
    args: [--cpu, 50m, --memory, 16Mi]
    resizePolicy:
    - {resourceName: cpu, policy: RestartNotRequired}
    - {resourceName: memory, policy: RestartNotRequired}
    resources:
      limits: {cpu: 500m, memory: 500Mi}
      requests: {cpu: 500m, memory: 500Mi}
";

/// One that is in the way for a while.
const OTHER: &str = r"
apiVersion: v1
kind: Pod
metadata: {name: other}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: plumb/load
    resources: {requests: {cpu: 100m}}
";

/// The checked fields: `status.resize`, then cpu as desired (request and limit), as allocated and as actual, and
/// restarts.
const FIELDS: &str = "jsonpath={.status.resize}|{.spec.containers[0].resources.requests.cpu}|\
    {.spec.containers[0].resources.limits.cpu}|{.status.containerStatuses[0].allocatedResources.cpu}|\
    {.status.containerStatuses[0].resources.requests.cpu}|{.status.containerStatuses[0].resources.limits.cpu}|\
    {.status.containerStatuses[0].allocatedResources.memory}|{.status.containerStatuses[0].restartCount}";

/// Waits until the pod is as a `jsonpath` says, and answers with how it stands then.
fn stands(cluster: &Cluster, path: &str, value: &str) -> String {
    let condition = format!("--for=jsonpath={{{path}}}={value}");
    let said = kubectl(cluster, &["wait", "pod/2pod", &condition, "--timeout=180s", "-o", FIELDS], "");
    said.trim().to_owned()
}

fn patch(cluster: &Cluster, cpu: &str) {
    let resources = format!(r#"{{"requests":{{"cpu":"{cpu}"}},"limits":{{"cpu":"{cpu}"}}}}"#);
    let patch = format!(r#"{{"spec":{{"containers":[{{"name":"stress","resources":{resources}}}]}}}}"#);
    let said = kubectl(cluster, &["patch", "pod", "2pod", "--patch", &patch], "");
    assert_eq!(said.trim(), "pod/2pod patched");
}

#[tokio::test]
#[ignore = "needs the testbed's kubectl; .ci/kubernetes runs it"]
async fn a_pod_is_resized_deferred_and_infeasible_as_the_walk_through_shows() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let is_real = no_containers().is_none();
    let runtime = if is_real { "builtin" } else { "virtual" };
    let parts = ["--components", "apiserver,controllers,scheduler,node", "--runtime", runtime];
    let capacity = ["--node-cpu", "4", "--node-memory", "8Gi"];
    // So that a resize in progress is observable, however long `kubectl` takes to start.
    let slow = ["--runtime-delay", "UpdateContainerResources=20s"];
    let cluster = Cluster::start_with(&data, &[&parts[..], &capacity[..], &slow[..]].concat());
    for manifest in [MANIFEST, OTHER] {
        assert!(kubectl(&cluster, &["apply", "-f", "-"], manifest).contains("created"));
    }
    let running = ["wait", "--for=condition=Ready", "pod/2pod", "pod/other", "--timeout=180s"];
    assert!(kubectl(&cluster, &running, "").contains("pod/2pod condition met"));
    let policy = "jsonpath={.spec.containers[0].resizePolicy} {.status.qosClass}";
    assert_eq!(
        kubectl(&cluster, &["get", "pod", "2pod", "-o", policy], ""),
        r#"[{"resourceName":"cpu","restartPolicy":"NotRequired"},{"resourceName":"memory","restartPolicy":"NotRequired"}] Guaranteed"#
    );
    let (word, actual) = (".status.resize", ".status.containerStatuses[0].resources.requests.cpu");
    assert_eq!(stands(&cluster, actual, "500m"), "|500m|500m|500m|500m|500m|500Mi|0");

    // Allocated at once, actual when the runtime has applied it.
    patch(&cluster, "650m");
    assert_eq!(stands(&cluster, word, "InProgress"), "InProgress|650m|650m|650m|500m|500m|500Mi|0");
    assert_eq!(stands(&cluster, actual, "650m"), "|650m|650m|650m|650m|650m|500Mi|0");

    // The node has that much, but not now.
    patch(&cluster, "3950m");
    assert_eq!(stands(&cluster, word, "Deferred"), "Deferred|3950m|3950m|650m|650m|650m|500Mi|0");

    // It never has that much.
    patch(&cluster, "4650m");
    assert_eq!(stands(&cluster, word, "Infeasible"), "Infeasible|4650m|4650m|650m|650m|650m|500Mi|0");

    // Back to what is put off, until the other pod goes.
    patch(&cluster, "3950m");
    assert_eq!(stands(&cluster, word, "Deferred"), "Deferred|3950m|3950m|650m|650m|650m|500Mi|0");
    assert!(kubectl(&cluster, &["delete", "pod", "other"], "").contains("deleted"));
    assert_eq!(stands(&cluster, actual, "3950m"), "|3950m|3950m|3950m|3950m|3950m|500Mi|0");

    drop(cluster);
    if is_real {
        clear(&data);
    }
}
