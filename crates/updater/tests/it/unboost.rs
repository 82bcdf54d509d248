//! The end of CPU start-up boosts, in a cluster.

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams};
use plumb_metrics::Text;
use plumb_resize::rules::Rules;
use plumb_updater::Options;
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
            let ended = "CPU start-up boost of container app ended: request 1 to ";
            assert!(world.events("web-0").await["StartupBoostEnded"][0].0.starts_with(ended), "{mode}");
            let of_vpa = &world.events("web").await["StartupBoostEnded"][0].0;
            assert!(of_vpa.starts_with(&format!("Pod web-0: {ended}")), "{of_vpa}");
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
async fn a_boost_ends_though_the_vpa_or_its_boost_is_deleted() {
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

/// What our own annotation says of the same boost.
const BOOST: &str = r#"{"app":{"unboosted":{"request":"100m"},"boosted":{"request":"1"}}}"#;

#[tokio::test(start_paused = true)]
async fn boosts_are_reported_by_events_the_condition_and_metrics() {
    let world = World::start(Rules::v1_36(), "Off").await;
    boost(&world, ten_seconds()).await;
    let annotations = json!({ "vpaCpuStartupBoost/app": ORIGINAL, "plumb.dev/cpu-startup-boost": BOOST });
    world.pod_with("web-0", "1/1Gi", |pod| pod["metadata"]["annotations"] = annotations).await;
    world.pass(MOMENT).await;
    let condition = world.condition("PodsUpdated").await.unwrap();
    assert_eq!(condition.reason.as_deref(), Some("PodsBoosted"));
    assert_eq!(condition.message.as_deref(), Some("boosted: 1"));
    let begun = "CPU start-up boost of container app: request 100m to request 1, until the pod has been ready for 10 s";
    assert_eq!(world.events("web-0").await["StartupBoosted"], [(begun.to_owned(), 1)]);
    assert_eq!(world.events("web").await["StartupBoosted"], [(format!("Pod web-0: {begun}"), 1)]);
    assert!(metrics(&world).contains("vpa_updater_startup_boosted_pods 1\n"), "{}", metrics(&world));

    world.pass(Duration::from_secs(8)).await;
    world.answer("web-0", Answer::Applied).await;
    world.pass(Duration::from_secs(20)).await;
    assert_eq!(world.condition("PodsUpdated").await, None, "no pod is boosted, and the mode is Off");
    for line in [
        "vpa_updater_startup_boosted_pods 0",
        "vpa_updater_unboosted_pods_total{reason=\"Ready\"} 1",
        "vpa_updater_unboost_delay_seconds_count 1",
        "vpa_updater_unboost_delay_seconds_bucket{le=\"0.1\"} 1",
    ] {
        assert!(metrics(&world).lines().any(|found| found == line), "{line} is not in {}", metrics(&world));
    }
}

fn metrics(world: &World) -> String {
    let mut text = Text::default();
    world.metrics.render(&mut text);
    text.finish()
}

#[tokio::test(start_paused = true)]
async fn a_failed_unboost_is_counted_under_upstreams_name() {
    let world = World::start(Rules::v1_36(), "Off").await;
    boost(&world, ten_seconds()).await;
    world.intercept(|uri| {
        let resizes = uri.path().ends_with("/resize");
        if resizes { Err(std::io::Error::other("the API server is away")) } else { Ok(()) }
    });
    boosted(&world, ORIGINAL).await;
    world.pass(Duration::from_secs(20)).await;
    let metrics = metrics(&world);
    let has = |start: &str| metrics.lines().any(|line| line.starts_with(start) && !line.ends_with(" 0"));
    assert!(has("vpa_updater_failed_unboost_attempts_total{reason=\"RequestFailed\"}"), "{metrics}");
    let upstreams = metrics.lines().find(|line| line.contains("reason=\"UnboostError\"")).unwrap();
    assert!(upstreams.starts_with("vpa_updater_failed_in_place_update_attempts_total{"), "{upstreams}");
    assert!(world.events("web").await.contains_key("UnboostFailed"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_known_before_its_vpa_is_not_unboosted_too_early() {
    let mut world = World::new(Rules::v1_36()).await;
    world.vpa("Off", json!({})).await;
    // Another process has read the VPA, and this one lags behind.
    world.intercept(|uri| {
        let lags = uri.path().ends_with("/verticalpodautoscalers")
            && uri.query().is_some_and(|q| q.contains("watch"));
        if lags { Err(std::io::Error::other("the watch is broken")) } else { Ok(()) }
    });
    world.start_updater(options());
    world.pass(MOMENT).await;
    world.vpas().delete("web", &DeleteParams::default()).await.unwrap();
    world.vpa("Off", json!({})).await;
    boost(&world, ten_seconds()).await;
    boosted(&world, ORIGINAL).await;
    world.pass(Duration::from_secs(8)).await;
    assert_eq!(world.requests("web-0").await, amounts("1/1Gi"));
    world.intercept(|_| Ok(()));
    world.pass(Duration::from_mins(1)).await;
    assert_eq!(world.requests("web-0").await, amounts("100m/1Gi"));
}

/// The container of a pod has restarted, and is not ready.
async fn restart(world: &World, count: i32) {
    let now = world.clock.now().to_string();
    let resources = world.pods().get("web-0").await.unwrap().spec.unwrap().containers[0].resources.clone();
    let status = json!({ "status": {
        "conditions": [{ "type": "Ready", "status": "False", "lastTransitionTime": now }],
        "containerStatuses": [{
            "name": "app", "image": "i", "imageID": "", "ready": false, "restartCount": count, "started": true,
            "state": { "running": { "startedAt": now } }, "resources": resources,
            "allocatedResources": resources.as_ref().and_then(|resources| resources.requests.clone()),
        }],
    } });
    world.node().patch_status("web-0", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_container_that_restarts_is_boosted_again_only_if_the_option_is_set() {
    let annotate = async |world: &World, value: &str| {
        let patch = json!({ "metadata": { "annotations": { "plumb.dev/startup-boost-on-restart": value } } });
        world.vpas().patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    for (flag, annotation, is_boosted) in
        [(false, None, false), (true, None, true), (false, Some("true"), true), (true, Some("false"), false)]
    {
        let mut world = World::new(Rules::v1_36()).await;
        world.vpa("Off", json!({})).await;
        boost(&world, ten_seconds()).await;
        if let Some(value) = annotation {
            annotate(&world, value).await;
        }
        world.start_updater(Options { startup_boost_on_restart: flag, ..options() });
        world.pod("web-0", "100m/1Gi").await;
        world.pass(MOMENT).await;
        restart(&world, 1).await;
        world.pass(MOMENT).await;
        let expected = if is_boosted { "1/1Gi" } else { "100m/1Gi" };
        assert_eq!(world.requests("web-0").await, amounts(expected), "{flag} {annotation:?}");
        if !is_boosted {
            continue;
        }
        let begun = "CPU start-up boost of container app, which restarts: request 100m to request 1";
        assert_eq!(world.events("web-0").await["StartupBoosted"], [(begun.to_owned(), 1)]);

        // It is ready again, and the boost ends as any other.
        world.answer("web-0", Answer::Applied).await;
        world.pass(Duration::from_secs(8)).await;
        assert_eq!(world.requests("web-0").await, amounts("1/1Gi"));
        world.pass(MOMENT).await;
        assert_eq!(world.requests("web-0").await, amounts("100m/1Gi"));
        world.answer("web-0", Answer::Applied).await;
        world.pass(Duration::from_secs(20)).await;
        assert!(!is_marked(&world).await);

        // The same restart is not boosted twice, another one is; and after the deadline a boost ends, ready or not.
        restart(&world, 1).await;
        world.pass(MOMENT).await;
        assert_eq!(world.requests("web-0").await, amounts("100m/1Gi"));
        world.pass(Duration::from_mins(40)).await;
        restart(&world, 2).await;
        world.pass(Duration::from_mins(29)).await;
        assert_eq!(world.requests("web-0").await, amounts("1/1Gi"), "the deadline counts from the restart");
        world.pass(Duration::from_mins(2)).await;
        assert_eq!(world.requests("web-0").await, amounts("100m/1Gi"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_boost_lasts_as_long_as_it_should_though_conditions_have_whole_seconds() {
    let world = World::start(Rules::v1_36(), "Off").await;
    boost(&world, ten_seconds()).await;
    // Ready 900 ms into a second: the condition says 900 ms less.
    world.pass(Duration::from_millis(900)).await;
    boosted(&world, ORIGINAL).await;
    world.pass(Duration::from_millis(9_900)).await;
    assert_eq!(world.requests("web-0").await, amounts("1/1Gi"));
    world.pass(Duration::from_millis(200)).await;
    assert_eq!(world.requests("web-0").await, amounts("100m/1Gi"));
}

/// The node has no capacity for the recommendation, so the container gets its own CPU: the recommendation is the matter of the
/// updater from then on.
#[tokio::test(start_paused = true)]
async fn an_unboost_to_more_than_the_node_has_is_taken_back_once() {
    for answer in [Answer::Deferred, Answer::Infeasible] {
        for rules in dialects() {
            let world = World::start(rules, "Initial").await;
            boost(&world, ten_seconds()).await;
            world.recommend("3/1Gi").await;
            boosted(&world, ORIGINAL).await;
            world.pass(Duration::from_secs(12)).await;
            assert_eq!(world.requests("web-0").await, amounts("3/1Gi"));
            world.answer("web-0", answer).await;
            world.pass(Duration::from_secs(12)).await;
            assert_eq!(world.requests("web-0").await, amounts("100m/1Gi"), "{answer:?}");
            world.answer("web-0", Answer::Applied).await;
            world.pass(Duration::from_mins(10)).await;
            assert_eq!(world.requests("web-0").await, amounts("100m/1Gi"), "{answer:?}");
            assert_eq!((world.count("/resize"), world.count("/eviction")), (2, 0), "{answer:?}");
            assert!(!is_marked(&world).await, "{answer:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unboost_that_the_api_server_refuses_gives_the_container_its_own_cpu() {
    let world = World::start(Rules::v1_36(), "Initial").await;
    boost(&world, ten_seconds()).await;
    // More than the node has, which the API server answers with 403.
    world.recommend("6/1Gi").await;
    boosted(&world, ORIGINAL).await;
    world.pass(Duration::from_secs(12)).await;
    assert_eq!(world.requests("web-0").await, amounts("100m/1Gi"));
    world.answer("web-0", Answer::Applied).await;
    world.pass(Duration::from_mins(10)).await;
    assert!(!is_marked(&world).await);
    assert_eq!((world.count("/resize"), world.count("/eviction")), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn an_unboost_that_a_policy_denies_gives_the_container_its_own_cpu_whatever_the_code() {
    for reason in ["Forbidden", "Invalid", "RequestEntityTooLarge"] {
        let world = World::start(Rules::v1_36(), "Initial").await;
        boost(&world, ten_seconds()).await;
        world.recommend("150m/1Gi").await;
        let is_own =
            "quantity(object.spec.containers[0].resources.requests['cpu']).isLessThan(quantity('150m'))";
        world.deny("pods/resize", is_own, reason).await;
        boosted(&world, ORIGINAL).await;
        world.pass(Duration::from_secs(12)).await;
        assert_eq!(world.requests("web-0").await, amounts("100m/1Gi"), "{reason}");
        assert_eq!((world.count("/resize"), world.count("/eviction")), (2, 0), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unboost_that_is_applied_stays_though_its_annotations_cannot_be_removed() {
    let world = World::start(Rules::v1_36(), "Initial").await;
    boost(&world, ten_seconds()).await;
    world.recommend("150m/1Gi").await;
    boosted(&world, ORIGINAL).await;
    world.pass(Duration::from_secs(12)).await;
    assert_eq!(world.requests("web-0").await, amounts("150m/1Gi"));
    world.deny("pods", "false", "Forbidden").await;
    world.answer("web-0", Answer::Applied).await;
    world.pass(Duration::from_mins(1)).await;
    assert_eq!(world.requests("web-0").await, amounts("150m/1Gi"));
    assert_eq!(world.count("/resize"), 1);
    assert!(is_marked(&world).await);
    assert!(world.events("web-0").await.contains_key("UnboostFailed"));
    world.allow().await;
    world.pass(Duration::from_mins(20)).await;
    assert!(!is_marked(&world).await);
    assert_eq!(world.requests("web-0").await, amounts("150m/1Gi"));
}

#[tokio::test(start_paused = true)]
async fn a_boost_ends_though_the_controller_of_the_pod_cannot_be_read() {
    for (annotation, recommended, expected) in
        [(ORIGINAL, "6/1Gi", "100m/1Gi"), (ORIGINAL, "3/1Gi", "100m/1Gi"), ("{", "150m/1Gi", "150m/1Gi")]
    {
        let world = World::start(Rules::v1_36(), "Initial").await;
        boost(&world, ten_seconds()).await;
        world.recommend(recommended).await;
        boosted(&world, annotation).await;
        world.pass(MOMENT).await;
        // Which controllers there are is known by now.
        world.intercept(|uri| {
            let reads = uri.path().ends_with("/replicasets/web");
            if reads { Err(std::io::Error::other("the controller cannot be read")) } else { Ok(()) }
        });
        world.pass(Duration::from_secs(12)).await;
        if recommended == "3/1Gi" {
            world.answer("web-0", Answer::Deferred).await;
            world.pass(Duration::from_secs(12)).await;
        }
        assert_eq!(world.requests("web-0").await, amounts(expected), "{annotation} {recommended}");
    }
}

#[tokio::test(start_paused = true)]
async fn boosted_pods_without_a_vpa_are_found_though_they_cannot_be_listed_at_first() {
    let mut world = World::new(Rules::v1_36()).await;
    boosted(&world, ORIGINAL).await;
    let mut failures = 0;
    world.intercept(move |uri| {
        let fails = uri.path() == "/api/v1/pods" && failures < 5;
        failures += usize::from(fails);
        if fails { Err(std::io::Error::other("the API server is away")) } else { Ok(()) }
    });
    world.start_updater(options());
    world.pass(Duration::from_mins(1)).await;
    assert_eq!(world.requests("web-0").await, amounts("100m/1Gi"));
}

#[tokio::test(start_paused = true)]
async fn an_unboost_without_the_resize_subresource_is_an_error_and_tried_again() {
    let world = World::start(Rules::v1_36(), "Off").await;
    boost(&world, ten_seconds()).await;
    world.intercept(|uri| {
        if uri.path().ends_with("/resize") {
            *uri = uri.path().replace("/resize", "/none").parse().unwrap();
        }
        Ok(())
    });
    boosted(&world, ORIGINAL).await;
    world.pass(Duration::from_secs(30)).await;
    assert!(world.events("web-0").await.contains_key("UnboostFailed"));
    world.intercept(|_| Ok(()));
    world.pass(Duration::from_mins(20)).await;
    assert_eq!(world.requests("web-0").await, amounts("100m/1Gi"));
}

/// AEP-7862: the updater does not evict a pod whose unboost failed. Its replacement would be boosted, and fail in the same way.
#[tokio::test(start_paused = true)]
async fn a_pod_is_not_evicted_after_its_unboost_failed_or_was_deferred() {
    for rules in dialects() {
        for mode in ["Recreate", "InPlaceOrRecreate", "InPlace"] {
            for (answer, recommended) in
                [(Answer::Infeasible, "3/1Gi"), (Answer::Deferred, "3/1Gi"), (Answer::Applied, "6/1Gi")]
            {
                let what = format!("{mode} {answer:?} {recommended}");
                // The API server refuses more than the node has by one dialect, the node by the other.
                let refuses = recommended == "6/1Gi" && rules == Rules::v1_36();
                let mut world = World::new(rules.clone()).await;
                world.vpa(mode, json!({ "minReplicas": 1 })).await;
                world.start_updater(options());
                boost(&world, ten_seconds()).await;
                world.recommend("150m/1Gi").await;
                boosted(&world, ORIGINAL).await;
                world.pass(MOMENT).await;
                world.recommend(recommended).await;
                world.pass(Duration::from_secs(12)).await;
                if !refuses {
                    assert_eq!(world.requests("web-0").await, amounts(recommended), "{what}");
                    let answer = if recommended == "6/1Gi" { Answer::Infeasible } else { answer };
                    world.answer("web-0", answer).await;
                    world.pass(Duration::from_secs(12)).await;
                }
                assert_eq!(world.requests("web-0").await, amounts("100m/1Gi"), "{what}");
                assert!(
                    !world.events("web-0").await.contains_key("StartupBoostEnded"),
                    "{what}: not applied"
                );
                let attempts = world.count("/resize");
                world.answer("web-0", Answer::Applied).await;
                world.pass(Duration::from_secs(12)).await;
                assert!(!is_marked(&world).await, "{what}");
                let ended = "CPU start-up boost of container app ended: request 1 to request 100m";
                assert_eq!(
                    world.events("web-0").await["StartupBoostEnded"],
                    [(ended.to_owned(), 1)],
                    "{what}"
                );

                // A deferred resize is attempted again in place, and an infeasible one is not.
                if answer == Answer::Deferred && mode != "Recreate" {
                    assert_eq!(world.requests("web-0").await, amounts(recommended), "{what}");
                    world.answer("web-0", Answer::Deferred).await;
                } else {
                    assert_eq!(world.count("/resize"), attempts, "{what}");
                }
                world.kill_updater().await;
                world.start_updater(options());
                world.pass(Duration::from_mins(10)).await;
                assert_eq!(
                    (world.names().await, world.count("/eviction")),
                    (vec!["web-0".to_owned()], 0),
                    "{what}"
                );
                if mode != "InPlace" {
                    let message = world.condition("PodsUpdated").await.unwrap().message.unwrap();
                    assert!(message.contains("UnboostFailed: 1"), "{what}: {message}");
                }

                // Less CPU is another matter.
                if answer == Answer::Deferred && mode != "Recreate" {
                    continue;
                }
                world.recommend("200m/1Gi").await;
                world.pass(MOMENT).await;
                if mode == "Recreate" {
                    assert_eq!(world.count("/eviction"), 1, "{what}");
                } else {
                    assert_eq!(world.requests("web-0").await, amounts("200m/1Gi"), "{what}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_unboost_failed_is_updated_once_its_node_has_grown() {
    for (rules, mode) in dialects()
        .into_iter()
        .flat_map(|rules| ["InPlace", "InPlaceOrRecreate"].map(|mode| (rules.clone(), mode)))
    {
        let world = World::start(rules.clone(), mode).await;
        boost(&world, ten_seconds()).await;
        world.recommend("6/1Gi").await;
        boosted(&world, ORIGINAL).await;
        world.pass(Duration::from_secs(12)).await;
        if rules != Rules::v1_36() {
            world.answer("web-0", Answer::Infeasible).await;
            world.pass(Duration::from_secs(12)).await;
        }
        world.answer("web-0", Answer::Applied).await;
        world.pass(Duration::from_mins(2)).await;
        assert_eq!(world.requests("web-0").await, amounts("100m/1Gi"), "{mode}");
        world.set_allocatable("16", "32Gi").await;
        world.pass(MOMENT).await;
        assert_eq!(world.requests("web-0").await, amounts("6/1Gi"), "{mode}");
        assert_eq!(world.count("/eviction"), 0, "{mode}");
    }
}
