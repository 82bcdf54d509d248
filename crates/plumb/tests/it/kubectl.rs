//! Real `kubectl`, as people use it.

use std::process::{Command, Stdio};

use plumb_testbed::{Assets, Cache, Parts};

use super::cluster::Cluster;

const POD: &str = r"
apiVersion: v1
kind: Pod
metadata: {name: 2pod}
spec:
  containers:
  - name: stress
    image: plumb/load
    resizePolicy:
    - {resourceName: cpu, policy: RestartNotRequired}
    resources:
      limits: {cpu: 500m, memory: 500Mi}
      requests: {cpu: 500m, memory: 500Mi}
";

/// Runs the testbed's `kubectl`, feeds it, and answers with what it prints.
#[track_caller]
fn kubectl(cluster: &Cluster, args: &[&str], input: &str) -> String {
    let cache = Cache::of_user().unwrap();
    let assets = Assets::find(&cache, Parts::ApiServer).expect("`testbed obtain` was run");
    let mut child = Command::new(assets.kubectl)
        .args(args)
        .env("KUBECONFIG", cluster.kubeconfig())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "kubectl {}: {said}", args.join(" "));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "needs the testbed's kubectl; .ci/kubernetes runs it"]
fn kubectl_applies_resizes_explains_and_deletes() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(&folder.path().join("data"));
    let run = |args: &[&str]| kubectl(&cluster, args, "");
    assert!(kubectl(&cluster, &["apply", "-f", "-", "--validate=false"], POD).contains("pod/2pod created"));
    assert!(run(&["get", "pods"]).contains("READY"));
    let patch = r#"{"spec":{"containers":[{"name":"stress","resources":{"requests":{"cpu":"650m"},"limits":{"cpu":"650m"}}}]}}"#;
    assert!(run(&["patch", "pod", "2pod", "--patch", patch]).contains("patched"));
    assert!(
        run(&["patch", "pod", "2pod", "--subresource", "resize", "--patch", patch]).contains("no change")
    );
    let status = "jsonpath={.status.resize} {.spec.containers[0].resources.requests.cpu} \
                  {.status.containerStatuses[0].allocatedResources.cpu}";
    assert_eq!(run(&["get", "pod", "2pod", "-o", status]), "Proposed 650m 500m");
    assert!(run(&["explain", "pod.spec.containers.resizePolicy"]).contains("restartPolicy"));
    assert!(run(&["describe", "pod", "2pod"]).contains("QoS Class:        Guaranteed"));
    assert!(run(&["label", "pod", "2pod", "app=web"]).contains("labeled"));
    assert!(run(&["get", "pods", "-l", "app=web", "-o", "name"]).contains("pod/2pod"));
    assert!(run(&["create", "deployment", "web", "--image=plumb/load", "--replicas=2"]).contains("created"));
    assert!(run(&["scale", "deployment", "web", "--replicas=5"]).contains("scaled"));
    assert_eq!(run(&["get", "deployment", "web", "-o", "jsonpath={.spec.replicas}"]), "5");
    assert!(run(&["api-resources"]).contains("deployments"));
    assert!(run(&["delete", "pod", "2pod"]).contains("deleted"));
    assert!(run(&["wait", "--for=delete", "pod/2pod", "--timeout=10s"]).is_empty());
}
