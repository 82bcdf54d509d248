//! The example controller, on an API server in this process.

#[path = "../../examples/default_limits.rs"]
#[expect(dead_code, reason = "the main function is for the command line")]
mod default_limits;

use k8s_openapi::api::core::v1::{LimitRange, Namespace};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use plumb_supervise::Supervisor;
use plumb_testkit::{TestCluster, object, until};
use serde_json::json;

use default_limits::{ANNOTATION, NAME, run};

#[tokio::test(start_paused = true)]
async fn the_example_keeps_the_limits_of_namespaces_that_ask_for_them() {
    let cluster = TestCluster::start();
    let running = tokio::spawn(run(cluster.admin(), Supervisor::default()));
    let namespaces: Api<Namespace> = Api::all(cluster.admin());
    let team: Namespace =
        object(json!({ "metadata": { "name": "team", "annotations": { ANNOTATION: "64Mi" } } }));
    namespaces.create(&PostParams::default(), &team).await.unwrap();
    let limits: Api<LimitRange> = Api::namespaced(cluster.admin(), "team");
    let memory = |wanted: &'static str| {
        move |found: &LimitRange| {
            let default = found.spec.as_ref().and_then(|spec| spec.limits.first()?.default.as_ref());
            default.and_then(|default| default.get("memory")).is_some_and(|memory| memory.0 == wanted)
        }
    };
    let first = until(&limits, NAME, memory("64Mi")).await;
    let patch = json!({ "metadata": { "annotations": { ANNOTATION: "128Mi" } } });
    namespaces.patch("team", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    until(&limits, NAME, memory("128Mi")).await;
    // A deleted object is created again.
    limits.delete(NAME, &DeleteParams::default()).await.unwrap();
    until(&limits, NAME, |found| found.metadata.uid != first.metadata.uid).await;
    running.abort();
}
