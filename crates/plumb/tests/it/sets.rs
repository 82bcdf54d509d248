//! Jobs, sets and daemons in a whole cluster with virtual nodes: what real `kubectl` does with them.

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::kubectl::kubectl;

const PARTS: [&str; 6] =
    ["--components", "apiserver,controllers,scheduler,node", "--runtime", "virtual", "--nodes", "3"];

/// A pod template that uses little, and ends by itself if it says when.
fn template(app: &str, duration: Option<&str>) -> Value {
    let args: Vec<&str> = duration.iter().flat_map(|duration| ["--duration", duration]).collect();
    let resources = json!({ "requests": { "cpu": "10m", "memory": "16Mi" } });
    let container = json!({ "name": "main", "image": "plumb/load", "args": args, "resources": resources });
    let mut spec = json!({ "terminationGracePeriodSeconds": 0, "containers": [container] });
    if duration.is_some() {
        spec["restartPolicy"] = json!("Never");
    }
    json!({ "metadata": { "labels": { "app": app } }, "spec": spec })
}

#[test]
#[ignore = "needs the testbed's kubectl; .ci/kubernetes runs it"]
fn kubectl_waits_for_jobs_and_rolls_and_undoes_sets() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(&folder.path().join("data"), &PARTS);
    let run = |args: &[&str]| kubectl(&cluster, args, "");
    let apply = |object: Value| kubectl(&cluster, &["apply", "-f", "-"], &object.to_string());
    let complete = |job: &str| run(&["wait", "--for=condition=complete", job, "--timeout=120s"]);

    let sum = json!({ "completions": 3, "parallelism": 2, "template": template("sum", Some("100ms")) });
    apply(json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "sum" }, "spec": sum }));
    complete("job/sum");
    let row = run(&["get", "job", "sum", "--no-headers"]);
    assert!(row.contains("Complete") && row.contains("3/3"), "{row}");
    run(&["delete", "job", "sum"]);
    run(&["wait", "--for=delete", "pod", "-l", "job-name=sum", "--timeout=120s"]);
    let yearly = json!({ "schedule": "@yearly", "jobTemplate": { "spec": { "template": template("tick", Some("100ms")) } } });
    apply(
        json!({ "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "tick" }, "spec": yearly }),
    );
    run(&["create", "job", "now", "--from=cronjob/tick"]);
    complete("job/now");

    let rolled = |set: &str| run(&["rollout", "status", set, "--timeout=120s"]);
    let selector = |app: &str| json!({ "matchLabels": { "app": app } });
    let web = json!({ "replicas": 3, "serviceName": "web", "selector": selector("web"), "template": template("web", None) });
    apply(
        json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "web" }, "spec": web }),
    );
    rolled("statefulset/web");
    run(&["set", "resources", "statefulset/web", "--requests=cpu=20m"]);
    let said = rolled("statefulset/web");
    assert!(said.contains("roll out complete: 3 new pods"), "{said}");
    let request = || {
        let cpu = "jsonpath={.items[*].spec.containers[0].resources.requests.cpu}";
        run(&["get", "pods", "-l", "app=web", "-o", cpu])
    };
    assert_eq!(request(), "20m 20m 20m");
    assert!(run(&["rollout", "history", "statefulset/web", "--revision=1"]).contains("10m"));
    run(&["rollout", "undo", "statefulset/web"]);
    rolled("statefulset/web");
    assert_eq!(request(), "10m 10m 10m");
    run(&["scale", "statefulset/web", "--replicas=1"]);
    run(&["wait", "--for=delete", "pod/web-1", "pod/web-2", "--timeout=120s"]);

    let agent = json!({ "selector": selector("agent"), "template": template("agent", None) });
    apply(
        json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "agent" }, "spec": agent }),
    );
    rolled("daemonset/agent");
    run(&["rollout", "restart", "daemonset/agent"]);
    let said = rolled("daemonset/agent");
    assert!(said.contains("successfully rolled out"), "{said}");
    let nodes = run(&["get", "pods", "-l", "app=agent", "-o", "jsonpath={.items[*].spec.nodeName}"]);
    let mut nodes: Vec<&str> = nodes.split_whitespace().collect();
    nodes.sort_unstable();
    nodes.dedup();
    assert_eq!(nodes.len(), 3, "{nodes:?}");
}
