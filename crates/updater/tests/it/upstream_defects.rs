//! What goes wrong in the upstream autoscaler and has no place among the tests of a mode (reference/vpa.md 3.4 to 4.4).

use std::time::Duration;

use k8s_openapi::api::core::v1::LimitRange;
use kube::api::{Patch, PatchParams, PostParams};
use plumb_client::Api;
use plumb_resize::rules::Rules;
use plumb_testkit::object;
use plumb_updater::Options;
use plumb_updater::options::AdmissionLease;
use serde_json::{Value, json};

use super::make::amounts;
use super::world::{Answer, MOMENT, World, dialects, options};

const ORIGINAL: &str = r#"{"requests":{"cpu":"100m","memory":"1Gi"},"limits":{}}"#;

async fn boost(world: &World, seconds: i32) {
    let boost = json!({ "cpu": { "type": "Factor", "factor": 10, "durationSeconds": seconds } });
    let patch = json!({ "spec": { "startupBoost": boost } });
    world.vpas().patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// A pod that was boosted from 100m to 1.
async fn boosted(world: &World, name: &str, change: impl FnOnce(&mut Value)) {
    world
        .pod_with(name, "1/1Gi", |pod| {
            pod["metadata"]["annotations"] = json!({ "vpaCpuStartupBoost/app": ORIGINAL });
            change(pod);
        })
        .await;
}

/// Upstream's updater sends the resize though it has decided to wait: for a Pending pod, and for one that the budget does not
/// allow to be restarted (3.4 a).
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_to_wait_is_not_resized() {
    for rules in dialects() {
        let world = World::start(rules, "InPlace").await;
        world.pods_of(0, "1/1Gi").await;
        world.pod("web-0", "1/1Gi").await;
        let pending = json!({ "status": { "phase": "Pending" } });
        world.pods().patch_status("web-0", &PatchParams::default(), &Patch::Merge(pending)).await.unwrap();
        world
            .pod_with("web-1", "1/1Gi", |pod| {
                pod["spec"]["containers"][0]["resizePolicy"] =
                    json!([{ "resourceName": "cpu", "restartPolicy": "RestartContainer" }]);
            })
            .await;
        let sets: Api<k8s_openapi::api::apps::v1::ReplicaSet> = Api::default_namespaced(world.admin.clone());
        let four = Patch::Merge(json!({ "spec": { "replicas": 4 } }));
        sets.patch("web", &PatchParams::default(), &four).await.unwrap();
        world.recommend("2/2Gi").await;
        world.pass(Duration::from_hours(24)).await;
        assert_eq!((world.count("/resize"), world.count("/eviction")), (0, 0));
        let message = world.condition("PodsUpdated").await.unwrap().message.unwrap();
        assert!(message.contains("waiting: 2 (DisruptionBudget: 1, PodPending: 1)"), "{message}");
    }
}

/// Upstream unboosts as many pods at a time as it may evict (3.5).
#[tokio::test(start_paused = true)]
async fn all_pods_of_a_workload_are_unboosted_at_once() {
    let world = World::start(Rules::v1_36(), "Recreate").await;
    boost(&world, 10).await;
    world.pods_of(0, "1/1Gi").await;
    let sets: Api<k8s_openapi::api::apps::v1::ReplicaSet> = Api::default_namespaced(world.admin.clone());
    let six = Patch::Merge(json!({ "spec": { "replicas": 6 } }));
    sets.patch("web", &PatchParams::default(), &six).await.unwrap();
    for number in 0..4 {
        boosted(&world, &format!("web-{number}"), |_| {}).await;
    }
    world.pass(Duration::from_secs(13)).await;
    for number in 0..4 {
        assert_eq!(world.requests(&format!("web-{number}")).await, amounts("100m/1Gi"), "web-{number}");
    }
    assert_eq!(world.count("/eviction"), 0);
}

/// Upstream's updater does nothing, unboosting included, while the admission controller does not renew its lease (3.5).
#[tokio::test(start_paused = true)]
async fn a_boost_ends_though_the_admission_controller_is_unavailable() {
    let mut world = World::new(Rules::v1_36()).await;
    world.vpa("Recreate", json!({})).await;
    boost(&world, 10).await;
    let admission_lease = Some(AdmissionLease { namespace: "default".into(), ..AdmissionLease::default() });
    world.start_updater(Options { admission_lease, ..options() });
    boosted(&world, "web-0", |_| {}).await;
    world.pass(Duration::from_secs(13)).await;
    assert_eq!(world.requests("web-0").await, amounts("100m/1Gi"));
}

/// Upstream leaves pods boosted whose gate, boost or VPA is gone, in the modes that do not resize anyway (3.5).
#[tokio::test(start_paused = true)]
async fn a_boost_ends_in_every_mode_though_its_gate_is_off_or_it_is_deleted() {
    for mode in ["Off", "Initial", "Recreate", "InPlaceOrRecreate", "InPlace", "Auto"] {
        let mut world = World::new(Rules::v1_36()).await;
        world.vpa(mode, json!({})).await;
        boost(&world, 10).await;
        world.start_updater(Options { startup_boost: false, ..options() });
        boosted(&world, "web-0", |_| {}).await;
        world.pass(Duration::from_secs(13)).await;
        assert_eq!(world.requests("web-0").await, amounts("100m/1Gi"), "{mode}: the gate is off");

        let world = World::start(Rules::v1_36(), mode).await;
        boost(&world, 3600).await;
        boosted(&world, "web-0", |_| {}).await;
        world.pass(MOMENT).await;
        assert_eq!(world.requests("web-0").await, amounts("1/1Gi"), "{mode}");
        let none = json!({ "spec": { "startupBoost": null } });
        world.vpas().patch("web", &PatchParams::default(), &Patch::Merge(none)).await.unwrap();
        world.pass(MOMENT).await;
        assert_eq!(world.requests("web-0").await, amounts("100m/1Gi"), "{mode}: the boost is gone");
        assert_eq!(world.count("/eviction"), 0, "{mode}");
    }
}

/// Upstream's unboost sets memory back, too, and resizes the other containers of the pod in modes that never resize (3.5, 5.2).
#[tokio::test(start_paused = true)]
async fn an_unboost_changes_the_cpu_of_boosted_containers_alone() {
    for mode in ["Off", "Initial", "Recreate"] {
        let world = World::start(Rules::v1_36(), mode).await;
        boost(&world, 10).await;
        let recommended = |name: &str| {
            let amounts = json!({ "cpu": "150m", "memory": "2Gi" });
            json!({ "containerName": name, "target": amounts, "lowerBound": amounts, "upperBound": amounts })
        };
        let both = json!([recommended("app"), recommended("side")]);
        let status = json!({ "status": { "recommendation": { "containerRecommendations": both } } });
        world.vpas().patch_status("web", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        let side = json!({ "name": "side", "image": "i", "resources": { "requests": { "cpu": "1", "memory": "1Gi" } } });
        boosted(&world, "web-0", |pod| pod["spec"]["containers"].as_array_mut().unwrap().push(side)).await;
        world.pass(Duration::from_secs(13)).await;
        let containers = world.state("web-0").await.containers;
        let expected = if mode == "Off" { "100m/1Gi" } else { "150m/1Gi" };
        assert_eq!(containers[0].desired.requests, amounts(expected), "{mode}");
        assert_eq!(containers[1].desired.requests, amounts("1/1Gi"), "{mode}");
    }
}

/// A pod limit range and a container without a recommendation end upstream's updater (4.3).
#[tokio::test(start_paused = true)]
async fn a_pod_limit_range_and_a_container_without_a_recommendation_stop_no_update() {
    for resources in [json!({ "requests": { "cpu": "500m", "memory": "1Gi" } }), json!({})] {
        for bound in ["max", "min"] {
            let world = World::start(Rules::v1_36(), "InPlace").await;
            let ranges: Api<LimitRange> = Api::default_namespaced(world.admin.clone());
            let side = json!({ "name": "side", "image": "i", "resources": resources });
            let add = |pod: &mut Value| pod["spec"]["containers"].as_array_mut().unwrap().push(side);
            world.pod_with("web-0", "1/1Gi", add).await;
            let (cpu, memory) = if bound == "max" { ("3", "8Gi") } else { ("10m", "1Mi") };
            let range = json!({
                "metadata": { "name": "r" },
                "spec": { "limits": [{ "type": "Pod", bound: { "cpu": cpu, "memory": memory } }] },
            });
            ranges.create(&PostParams::default(), &object(range)).await.unwrap();
            world.pass(MOMENT).await;
            world.recommend("2/2Gi").await;
            world.pass(MOMENT).await;
            // Whether the API server takes it is another matter: a pod without limits may not exceed a maximum.
            assert!(world.count("/resize") > 0, "{bound}, {resources}");
        }
    }
}

/// Upstream writes what is infeasible before it has tried it, and never clears it: the next recommendation is compared with one
/// that was never sent (3.4 c).
#[tokio::test(start_paused = true)]
async fn a_resize_that_was_not_attempted_is_not_recorded_as_infeasible() {
    let world = World::start(Rules::kep(), "InPlace").await;
    world.pod("web-0", "1/1Gi").await;
    world.recommend("6/2Gi").await;
    world.pass(MOMENT).await;
    world.answer("web-0", Answer::Infeasible).await;
    world.pass(MOMENT).await;
    world.recommend("8/4Gi").await;
    world.pass(MOMENT).await;
    let infeasible = world.state("web-0").await.record.infeasible.unwrap();
    assert_eq!(infeasible.requests, [("app".to_owned(), amounts("6/2Gi"))].into());
    // Lower than what was not attempted, but not lower than what was.
    world.recommend("7/3Gi").await;
    world.pass(Duration::from_mins(10)).await;
    assert_eq!(world.count("/resize"), 1);
}

/// A pod that has been not ready for a minute counts as running, as upstream has it, so that the budget alone would allow the
/// eviction of the one pod that serves.
#[tokio::test(start_paused = true)]
async fn the_only_ready_pod_of_several_is_not_evicted() {
    let world = World::start(Rules::v1_36(), "Recreate").await;
    world.pods_of(3, "1/1Gi").await;
    let now = world.clock.now().to_string();
    let unready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "lastTransitionTime": now }] } });
    for pod in ["web-1", "web-2"] {
        world.node().patch_status(pod, &PatchParams::default(), &Patch::Merge(&unready)).await.unwrap();
    }
    world.pass(Duration::from_mins(5)).await;
    world.recommend("2/2Gi").await;
    world.pass(Duration::from_mins(5)).await;
    let names = world.names().await;
    assert!(names.contains(&"web-0".to_owned()), "{names:?}");
    assert!(names.len() < 3, "a pod that is not ready is evicted: {names:?}");
}
