//! The rollout controllers.

use kube::api::{DynamicObject, Patch, PatchParams};
use plumb_install::Component;
use plumb_resize::rules::Rules;
use plumb_rollout::{Config, Rollout};
use serde_json::json;
use tokio::task::JoinSet;

use super::log::client;
use super::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn the_cloneset_controller_needs_no_right_that_it_does_not_have() {
    let world = World::new().await;
    let (client, log) = client(&world.cluster, Component::Rollout);
    let mut running = JoinSet::new();
    running.spawn(Rollout::new(Config::new(client, Rules::v1_36(), true)).run());
    let labels = json!({ "app": "web" });
    let container = json!({ "name": "app", "image": "i", "resources": { "requests": { "cpu": "100m" } } });
    let claim = json!({
        "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    let spec = json!({
        "replicas": 3,
        "selector": { "matchLabels": labels },
        "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } },
        "volumeClaimTemplates": [claim],
    });
    world
        .create("apps.kruise.io/v1alpha1", "CloneSet", json!({ "metadata": { "name": "web" }, "spec": spec }))
        .await;
    log.wait_for("create pods").await;
    log.wait_for("create persistentvolumeclaims").await;
    log.wait_for("create controllerrevisions.apps").await;
    log.wait_for("update clonesets/status.apps.kruise.io").await;
    log.wait_for("create events").await;
    let sets = plumb_client::Api::<DynamicObject>::namespaced_with(
        world.admin.clone(),
        "default",
        &kube::api::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(
            "apps.kruise.io",
            "v1alpha1",
            "CloneSet",
        )),
    );
    let smaller = json!({ "spec": { "replicas": 1 } });
    sets.patch("web", &PatchParams::default(), &Patch::Merge(smaller)).await.unwrap();
    log.wait_for("delete pods").await;
    log.wait_for("delete persistentvolumeclaims").await;
    running.shutdown().await;
    log.check_not_forbidden(Component::Rollout);
}
