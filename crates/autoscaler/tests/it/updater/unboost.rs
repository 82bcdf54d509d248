//! The end of CPU start-up boosts, in a cluster.

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams};
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::make::amounts;
use super::world::{Answer, MOMENT, World, dialects, options};

const ORIGINAL: &str = r#"{"requests":{"cpu":"100m","memory":"1Gi"},"limits":{}}"#;

/// A pod that was boosted from 100m to 1.
async fn boosted(world: &World, annotation: &str) {
    let annotations = json!({ "vpaCpuStartupBoost/app": annotation });
    world.pod_with("web-0", "1/1Gi", |pod| pod["metadata"]["annotations"] = annotations).await;
}

async fn boost(world: &World, boost: Value) {
    let patch = json!({ "spec": { "startupBoost": boost } });
    world.vpas().patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

fn ten_seconds() -> Value {
    json!({ "cpu": { "type": "Factor", "factor": 10, "durationSeconds": 10 } })
}

async fn is_marked(world: &World) -> bool {
    let pod = world.pods().get("web-0").await.unwrap();
    pod.metadata.annotations.is_some_and(|all| all.contains_key("vpaCpuStartupBoost/app"))
}

#[tokio::test(start_paused = true)]
async fn a_boost_ends_a_while_after_ready_in_every_mode_and_never_by_eviction() {
    for rules in dialects() {
        for (mode, expected) in [
            ("Off", "100m/1Gi"),
            ("Initial", "150m/1Gi"),
            ("Recreate", "150m/1Gi"),
            ("InPlaceOrRecreate", "150m/1Gi"),
            ("InPlace", "150m/1Gi"),
        ] {
            let world = World::start(rules.clone(), mode).await;
            boost(&world, ten_seconds()).await;
            world.recommend("150m/2Gi").await;
            boosted(&world, ORIGINAL).await;
            world.pass(Duration::from_secs(8)).await;
            assert_eq!(world.requests("web-0").await, amounts("1/1Gi"), "{mode}");
            world.pass(MOMENT).await;
            assert_eq!(world.requests("web-0").await, amounts(expected), "{mode}");
            assert!(is_marked(&world).await, "until the node has applied it");
            world.answer("web-0", Answer::Applied).await;
            world.pass(Duration::from_secs(12)).await;
            assert!(!is_marked(&world).await, "{mode}");
            assert_eq!(world.count("/eviction"), 0, "{mode}");
            let events = world.events("web-0").await;
            assert!(
                events["StartupBoostEnded"][0]
                    .0
                    .starts_with("CPU start-up boost of container app ended: request 1 to ")
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unboost_that_fails_is_tried_again_and_evicts_no_pod() {
    let world = World::start(Rules::v1_36(), "Recreate").await;
    boost(&world, ten_seconds()).await;
    world.recommend("150m/1Gi").await;
    world.intercept(|uri| {
        let resizes = uri.path().ends_with("/resize");
        if resizes { Err(std::io::Error::other("the API server is away")) } else { Ok(()) }
    });
    boosted(&world, ORIGINAL).await;
    world.pass(Duration::from_mins(20)).await;
    assert_eq!(world.names().await, ["web-0"]);
    assert!(world.count("/resize") > 3, "{}", world.count("/resize"));
    assert!(world.events("web-0").await.contains_key("UnboostFailed"));
    world.intercept(|_| Ok(()));
    world.pass(Duration::from_mins(20)).await;
    assert_eq!(world.requests("web-0").await, amounts("150m/1Gi"));
    assert_eq!(world.count("/eviction"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_boost_ends_though_the_vpa_or_its_boost_is_gone() {
    let world = World::start(Rules::v1_36(), "Off").await;
    boost(&world, json!({ "cpu": { "type": "Factor", "factor": 10, "durationSeconds": 3600 } })).await;
    boosted(&world, ORIGINAL).await;
    world.pass(MOMENT).await;
    assert_eq!(world.requests("web-0").await, amounts("1/1Gi"));
    boost(&world, Value::Null).await;
    world.pass(MOMENT).await;
    assert_eq!(world.requests("web-0").await, amounts("100m/1Gi"), "the boost is gone");

    let mut world = World::start(Rules::v1_36(), "Off").await;
    boost(&world, json!({ "cpu": { "type": "Factor", "factor": 10, "durationSeconds": 3600 } })).await;
    boosted(&world, ORIGINAL).await;
    world.pass(MOMENT).await;
    world.kill_updater().await;
    world.vpas().delete("web", &DeleteParams::default()).await.unwrap();
    world.start_updater(options());
    world.pass(Duration::from_secs(20)).await;
    assert_eq!(world.requests("web-0").await, amounts("100m/1Gi"), "and no VPA is left after a restart");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_never_ready_is_unboosted_after_the_deadline() {
    let world = World::start(Rules::v1_36(), "Off").await;
    boost(&world, ten_seconds()).await;
    boosted(&world, ORIGINAL).await;
    let now = world.clock.now().to_string();
    let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "lastTransitionTime": now }] } });
    world.pods().patch_status("web-0", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    world.pass(Duration::from_mins(29)).await;
    assert_eq!(world.requests("web-0").await, amounts("1/1Gi"));
    world.pass(Duration::from_mins(2)).await;
    assert_eq!(world.requests("web-0").await, amounts("100m/1Gi"));
}

#[tokio::test(start_paused = true)]
async fn a_damaged_annotation_gives_the_recommendation() {
    let world = World::start(Rules::v1_36(), "Recreate").await;
    boost(&world, ten_seconds()).await;
    world.recommend("150m/1Gi").await;
    boosted(&world, "{").await;
    world.pass(Duration::from_secs(15)).await;
    assert_eq!(world.requests("web-0").await, amounts("150m/1Gi"));
}

#[tokio::test(start_paused = true)]
async fn a_boost_ends_however_often_the_updater_is_killed() {
    let mut world = World::start(Rules::v1_36(), "Off").await;
    boost(&world, ten_seconds()).await;
    boosted(&world, ORIGINAL).await;
    for step in 0..40 {
        world.pass(Duration::from_millis(137 * (step % 7) + 200)).await;
        world.kill_updater().await;
        world.start_updater(options());
    }
    world.pass(Duration::from_secs(15)).await;
    assert_eq!(world.requests("web-0").await, amounts("100m/1Gi"));
    world.answer("web-0", Answer::Applied).await;
    world.pass(Duration::from_secs(15)).await;
    assert!(!is_marked(&world).await);
}
