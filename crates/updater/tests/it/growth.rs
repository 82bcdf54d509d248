//! Bounds of growth by the node, carried from a VPA to its running pods.

use std::collections::BTreeMap;

use kube::api::{Patch, PatchParams};
use plumb_resize::growth::{GROWTH_ANNOTATIONS, MEMORY_PRESSURE_GROWTH, THROTTLING_GROWTH};
use serde_json::{Value, json};

use super::world::{MOMENT, World, dialects};

/// Opts in to growth of memory as the annotation says, up to this maximum.
async fn opt_in(world: &World, annotation: Value, maximum: &str) {
    let patch = json!({
        "metadata": { "annotations": { MEMORY_PRESSURE_GROWTH: annotation } },
        "spec": { "resourcePolicy": { "containerPolicies": [
            { "containerName": "app", "maxAllowed": { "cpu": "1", "memory": maximum } },
        ] } },
    });
    world.vpas().patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    world.pass(MOMENT).await;
}

/// The annotations of a pod about growth.
async fn bounds(world: &World, pod: &str) -> BTreeMap<String, String> {
    let annotations = world.pods().get(pod).await.unwrap().metadata.annotations.unwrap_or_default();
    annotations.into_iter().filter(|(name, _)| GROWTH_ANNOTATIONS.contains(&&**name)).collect()
}

fn memory_from_vpa(value: &str) -> BTreeMap<String, String> {
    let pairs = [(MEMORY_PRESSURE_GROWTH, value), ("plumb.dev/growth-bounds-from-vpa", "memory")];
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

#[tokio::test(start_paused = true)]
async fn a_changed_max_allowed_of_a_vpa_reaches_the_bounds_of_running_pods() {
    let [rules, _] = dialects();
    let world = World::start(rules, "InPlace").await;
    world.pod("web-1", "1/1Gi").await;
    world.pass(MOMENT).await;
    assert_eq!(bounds(&world, "web-1").await, BTreeMap::new());
    opt_in(&world, json!("true"), "2Gi").await;
    assert_eq!(bounds(&world, "web-1").await, memory_from_vpa("app=2Gi"));
    opt_in(&world, json!("true"), "3Gi").await;
    assert_eq!(bounds(&world, "web-1").await, memory_from_vpa("app=3Gi"));
    // Nothing is written again and again.
    let writes = world.writes_to("web-1").len();
    world.pass(MOMENT * 100).await;
    assert_eq!(world.writes_to("web-1").len(), writes);
    opt_in(&world, Value::Null, "3Gi").await;
    assert_eq!(bounds(&world, "web-1").await, BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn the_bounds_that_a_pod_has_of_its_own_stay_beside_those_of_its_vpa() {
    let [rules, _] = dialects();
    let world = World::start(rules, "InPlaceOrRecreate").await;
    let own = json!({ MEMORY_PRESSURE_GROWTH: "8Gi" });
    world.pod_with("web-1", "1/1Gi", |pod| pod["metadata"]["annotations"] = own).await;
    opt_in(&world, json!("true"), "2Gi").await;
    let expected: BTreeMap<String, String> = [(MEMORY_PRESSURE_GROWTH.to_owned(), "8Gi".to_owned())].into();
    assert_eq!(bounds(&world, "web-1").await, expected);
    let cpu = json!({ "metadata": { "annotations": { THROTTLING_GROWTH: "true" } } });
    world.vpas().patch("web", &PatchParams::default(), &Patch::Merge(cpu)).await.unwrap();
    world.pass(MOMENT).await;
    let found = bounds(&world, "web-1").await;
    assert_eq!(found[MEMORY_PRESSURE_GROWTH], "8Gi");
    assert_eq!(found[THROTTLING_GROWTH], "app=1");
    assert_eq!(found["plumb.dev/growth-bounds-from-vpa"], "cpu");
}
