//! Server-side apply with the real `kubectl`.

use std::process::Stdio;

use super::cluster::Cluster;
use super::kubectl::{command, kubectl};

const WEB: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: plumb/load}]}
";

const MORE: &str = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3}}";

/// What `kubectl` says on both of its ways out, whether it is content or not.
fn said(cluster: &Cluster, args: &[&str], input: &str) -> (Option<i32>, String) {
    let mut child = command(cluster, args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
#[ignore = "needs the testbed's kubectl; .ci/kubernetes runs it"]
fn kubectl_applies_at_the_server_conflicts_forces_and_compares() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(&folder.path().join("data"));
    let apply = ["apply", "--server-side", "-f", "-"];
    assert!(kubectl(&cluster, &apply, WEB).contains("deployment.apps/web serverside-applied"));
    let by_hpa = [&apply[..], &["--field-manager=hpa"]].concat();
    let (code, refused) = said(&cluster, &by_hpa, MORE);
    assert_eq!(code, Some(1));
    assert!(
        refused.contains("Apply failed with 1 conflict: conflict with \"kubectl\": .spec.replicas"),
        "{refused}"
    );

    let (code, difference) = said(
        &cluster,
        &["diff", "--server-side", "--force-conflicts", "--field-manager=hpa", "-f", "-"],
        MORE,
    );
    assert_eq!(code, Some(1), "{difference}");
    assert!(difference.contains("+  replicas: 3"), "{difference}");

    let forced = [&by_hpa[..], &["--force-conflicts"]].concat();
    assert!(kubectl(&cluster, &forced, MORE).contains("serverside-applied"));
    let shown = kubectl(&cluster, &["get", "deploy", "web", "-o", "yaml", "--show-managed-fields"], "");
    assert!(shown.contains("manager: hpa") && shown.contains("f:replicas: {}"), "{shown}");
    assert!(!kubectl(&cluster, &["get", "deploy", "web", "-o", "yaml"], "").contains("managedFields"));

    // From the client's apply to the server's, without a conflict.
    let old = WEB.replace("web", "old");
    kubectl(&cluster, &["apply", "-f", "-"], &old);
    let moved = old.replace("replicas: 1", "replicas: 2");
    assert!(kubectl(&cluster, &apply, &moved).contains("serverside-applied"));
    let replicas = ["get", "deploy", "old", "-o", "jsonpath={.spec.replicas}"];
    assert_eq!(kubectl(&cluster, &replicas, ""), "2");
}
