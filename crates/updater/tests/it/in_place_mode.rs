//! The update mode `InPlace` in a cluster: the test plan of AEP-8818, with both detections of what is infeasible.

use std::io;
use std::time::Duration;

use http::Uri;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use plumb_client::Api;
use plumb_recommender::WINDOW_PEAK_ANNOTATION;
use plumb_resize::rules::Rules;
use plumb_resize::status::Stage;
use plumb_testkit::object;
use plumb_updater::Options;
use plumb_updater::attempt::{ANNOTATION, IN_PLACE_UPDATED, Record};
use plumb_updater::mode::Modes;
use plumb_vpa_api::VerticalPodAutoscalerCheckpoint;
use serde_json::{Value, json};

use super::make::amounts;
use super::world::{Answer, MOMENT, World, dialects, options};

const DAY: Duration = Duration::from_hours(24);

#[tokio::test(start_paused = true)]
async fn a_pod_is_resized_in_place_and_events_report_it() {
    for rules in dialects() {
        let world = World::start(rules, "InPlace").await;
        world.pod("web-1", "1/1Gi").await;
        world.recommend("2/2Gi").await;
        world.pass(MOMENT).await;
        assert_eq!(world.requests("web-1").await, amounts("2/2Gi"));
        assert_eq!((world.count("/resize"), world.count("/eviction")), (1, 0));
        world.answer("web-1", Answer::Applied).await;
        world.pass(MOMENT).await;
        assert_eq!(world.count("/resize"), 1, "once is enough");
        let events = world.events("web-1").await;
        assert_eq!(
            events["InPlaceResizedByVPA"],
            [("Pod was resized in place by VPA Updater.".to_owned(), 1)]
        );
        assert!(world.events("web").await.contains_key("InPlaceResizedPod"));
        let condition = world.condition("PodsUpdated").await.unwrap();
        assert_eq!(condition.message.as_deref(), Some("updated: 1, waiting: 0, infeasible: 0, boosted: 0"));
        assert_eq!(condition.status.as_str(), "True");
        let pod = world.pods().get("web-1").await.unwrap();
        assert_eq!(pod.metadata.annotations.unwrap()[IN_PLACE_UPDATED], "true");
    }
}

#[tokio::test(start_paused = true)]
async fn a_vpa_without_recommendation_or_without_pods_does_not_say_that_pods_are_updated() {
    let [rules, _] = dialects();
    let world = World::start(rules, "InPlace").await;
    let said = async || {
        let condition = world.condition("PodsUpdated").await.unwrap();
        (condition.status.as_str().to_owned(), condition.reason.unwrap())
    };
    let (no, yes) = ("False".to_owned(), "True".to_owned());
    world.pass(MOMENT).await;
    assert_eq!(said().await, (no.clone(), "NoRecommendation".to_owned()));
    world.recommend("1/1Gi").await;
    world.pass(MOMENT).await;
    assert_eq!(said().await, (no, "NoPodsMatched".to_owned()));
    world.pod("web-1", "1/1Gi").await;
    world.pass(MOMENT).await;
    assert_eq!(said().await, (yes, "AllPodsUpdated".to_owned()));
}

/// No eviction on failure, infeasible status, patch rejection, no retry for an unchanged recommendation, retry after a
/// change, a successful update clears the attempt.
#[tokio::test(start_paused = true)]
async fn an_infeasible_resize_is_not_retried_until_the_recommendation_is_lower() {
    for rules in dialects() {
        let refuses = rules.refuse_over_capacity;
        let world = World::start(rules, "InPlace").await;
        world.pod("web-1", "1/1Gi").await;
        world.recommend("6/2Gi").await;
        world.pass(MOMENT).await;
        // Accepted, and the node says so; or refused by the API server.
        if refuses {
            assert_eq!(world.requests("web-1").await, amounts("1/1Gi"));
        } else {
            assert_eq!(world.requests("web-1").await, amounts("6/2Gi"));
            world.answer("web-1", Answer::Infeasible).await;
            world.pass(MOMENT).await;
        }
        let record = world.state("web-1").await.record;
        let infeasible = record.infeasible.expect("a record");
        assert_eq!(infeasible.requests, [("app".to_owned(), amounts("6/2Gi"))].into());
        assert_eq!(infeasible.allocatable, amounts("4/8Gi"));
        assert_eq!(world.count("/resize"), 1);
        let condition = world.condition("PodsUpdated").await.unwrap();
        assert_eq!(condition.message.as_deref(), Some("updated: 0, waiting: 0, infeasible: 1, boosted: 0"));

        // Neither the same nor a higher recommendation is attempted, however long that takes.
        world.pass(DAY).await;
        world.recommend("7/2Gi").await;
        world.pass(Duration::from_hours(1)).await;
        assert_eq!(world.count("/resize"), 1);
        // It is said once, not in every pass.
        let skipped = &world.events("web-1").await["InPlaceResizeSkipped"];
        assert_eq!(skipped.iter().map(|(_, count)| count).sum::<i32>(), 1, "{skipped:?}");

        // One that is lower is.
        world.recommend("3/3Gi").await;
        world.pass(MOMENT).await;
        assert_eq!(world.requests("web-1").await, amounts("3/3Gi"));
        assert_eq!((world.count("/resize"), world.count("/eviction")), (2, 0));
        world.answer("web-1", Answer::Applied).await;
        world.pass(MOMENT).await;
        let state = world.state("web-1").await;
        assert_eq!((state.stage, state.record), (Stage::Applied, Record::default()));
        // What was infeasible at first is attempted again, since nothing is recorded any more.
        world.recommend("6/2Gi").await;
        world.pass(MOMENT).await;
        assert_eq!(world.count("/resize"), 3);
        assert_eq!(world.names().await, ["web-1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_condition_without_a_generation_is_not_about_a_resize_of_a_moment_ago() {
    for mode in ["InPlace", "InPlaceOrRecreate"] {
        let rules = Rules { refuse_over_capacity: false, ..Rules::v1_36() };
        let world = World::start(rules, mode).await;
        world.pod("web-1", "1/1Gi").await;
        world.recommend("3/2Gi").await;
        world.pass(MOMENT).await;
        // Nor is it evicted, because a lower recommendation comes first.
        world.recommend("2/3Gi").await;
        world.answer_without_generation("web-1", Answer::Infeasible).await;
        world.pass(Duration::from_secs(8)).await;
        assert_eq!(world.requests("web-1").await, amounts("2/3Gi"));
        world.answer_without_generation("web-1", Answer::Applied).await;
        world.pass(MOMENT).await;
        assert_eq!((world.count("/resize"), world.count("/eviction")), (2, 0), "{mode}");
        assert_eq!(world.state("web-1").await.record.infeasible, None, "{mode}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_survives_a_restart_of_the_updater() {
    for rules in dialects() {
        let refuses = rules.refuse_over_capacity;
        let mut world = World::start(rules, "InPlace").await;
        world.pod("web-1", "1/1Gi").await;
        world.recommend("6/2Gi").await;
        world.pass(MOMENT).await;
        if !refuses {
            world.answer("web-1", Answer::Infeasible).await;
            world.pass(MOMENT).await;
        }
        assert_eq!(world.count("/resize"), 1);
        world.kill_updater().await;
        world.start_updater(options());
        world.recommend("7/2Gi").await;
        world.pass(DAY).await;
        assert_eq!(world.count("/resize"), 1, "the new updater knows what the old one has learned");
        world.recommend("2/2Gi").await;
        world.pass(MOMENT).await;
        assert_eq!(world.requests("web-1").await, amounts("2/2Gi"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_has_grown_is_worth_another_attempt() {
    for rules in dialects() {
        let refuses = rules.refuse_over_capacity;
        let world = World::start(rules, "InPlace").await;
        world.pod("web-1", "1/1Gi").await;
        world.recommend("6/2Gi").await;
        world.pass(MOMENT).await;
        if !refuses {
            world.answer("web-1", Answer::Infeasible).await;
            world.pass(MOMENT).await;
            // The node has the values already; only a recommendation that differs is sent.
            world.recommend("7/2Gi").await;
            world.pass(MOMENT).await;
        }
        assert_eq!(world.count("/resize"), 1);
        world.set_allocatable("2", "8Gi").await;
        world.pass(MOMENT).await;
        assert_eq!(world.count("/resize"), 1, "a smaller node is not");
        world.set_allocatable("8", "8Gi").await;
        world.pass(MOMENT).await;
        assert_eq!(world.count("/resize"), 2);
        assert_eq!(world.requests("web-1").await.cpu, Some(if refuses { 6000 } else { 7000 }));
    }
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_a_node_for_as_long_as_it_takes() {
    for (answer, reason) in [
        (Answer::InProgress, "ResizeInProgress"),
        (Answer::Deferred, "ResizeDeferred"),
        (Answer::Error, "ResizeError"),
    ] {
        for rules in dialects() {
            let world = World::start(rules, "InPlace").await;
            world.pod("web-1", "1/1Gi").await;
            world.recommend("2/2Gi").await;
            world.pass(MOMENT).await;
            world.answer("web-1", answer).await;
            world.pass(MOMENT).await;
            let before = world.writes_to("web-1").len();
            world.pass(DAY).await;
            // A newer recommendation waits, too, even a lower one, and that is said.
            world.recommend("3/3Gi").await;
            world.pass(Duration::from_hours(1)).await;
            world.recommend("1500m/2Gi").await;
            world.pass(Duration::from_hours(1)).await;
            assert_eq!(world.writes_to("web-1").len(), before, "no write to the pod");
            assert_eq!((world.count("/resize"), world.count("/eviction")), (1, 0));
            let condition = world.condition("PodsUpdated").await.unwrap();
            let waiting = format!("updated: 0, waiting: 1 ({reason}: 1), infeasible: 0, boosted: 0");
            assert_eq!(condition.message, Some(waiting));
            let events = world.events("web-1").await;
            let newer = events["VPAUpdateWaiting"].iter().filter(|(message, _)| message.contains("newer"));
            assert_eq!(newer.count(), 1, "{events:?}");
            // Once the node is done, the latest recommendation is applied.
            world.answer("web-1", Answer::Applied).await;
            world.pass(MOMENT).await;
            assert_eq!(world.requests("web-1").await, amounts("1500m/2Gi"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_update_that_fails_at_first_succeeds_in_the_end() {
    for rules in dialects() {
        let world = World::start(rules, "InPlace").await;
        world.pod("web-1", "1/1Gi").await;
        // The API server does not answer three times.
        let mut failures = 3;
        world.intercept(move |uri: &mut Uri| {
            if uri.path().ends_with("/resize") && failures > 0 {
                failures -= 1;
                return Err(io::Error::other("connection refused"));
            }
            Ok(())
        });
        world.recommend("2/2Gi").await;
        world.pass(MOMENT).await;
        assert_eq!(world.requests("web-1").await, amounts("1/1Gi"));
        let attempts = world.count("/resize");
        assert!((2..=3).contains(&attempts), "a second, then two: {attempts}");
        world.pass(Duration::from_mins(1)).await;
        assert_eq!(world.requests("web-1").await, amounts("2/2Gi"));
        assert_eq!(world.count("/resize"), 4);
        world.answer("web-1", Answer::Deferred).await;
        world.pass(Duration::from_hours(2)).await;
        world.answer("web-1", Answer::Applied).await;
        world.pass(MOMENT).await;
        assert_eq!(world.condition("PodsUpdated").await.unwrap().status.as_str(), "True");
        assert_eq!((world.count("/resize"), world.count("/eviction")), (4, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_feature_gate_running_pods_are_left_as_they_are() {
    let [rules, _] = dialects();
    let mut world = World::new(rules).await;
    world.vpa("InPlace", json!({})).await;
    let modes = Modes { in_place: false, ..Modes::default() };
    world.start_updater(Options { modes, ..options() });
    world.pod("web-1", "1/1Gi").await;
    world.recommend("2/2Gi").await;
    world.pass(DAY).await;
    assert_eq!(world.writes_to("web-1"), [""; 0]);
    let condition = world.condition("PodsUpdated").await.unwrap();
    assert_eq!(condition.reason.as_deref(), Some("FeatureGateDisabled"));
}

#[tokio::test(start_paused = true)]
async fn without_pods_resize_no_pod_is_updated_and_the_vpa_reports_why() {
    let [rules, _] = dialects();
    let mut world = World::new(rules).await;
    world.vpa("InPlace", json!({})).await;
    // An API server that has only what the group apps has.
    world.intercept(|uri: &mut Uri| {
        if uri.path() == "/api/v1" {
            *uri = "/apis/apps/v1".parse().unwrap();
        }
        Ok(())
    });
    world.start_updater(options());
    world.pod("web-1", "1/1Gi").await;
    world.recommend("2/2Gi").await;
    world.pass(DAY).await;
    assert_eq!(world.writes_to("web-1"), [""; 0]);
    let condition = world.condition("ConfigUnsupported").await.expect("a condition");
    assert_eq!(condition.status.as_str(), "True");
    assert!(condition.message.unwrap().contains("pods/resize"));
    // The cluster is upgraded.
    world.intercept(|_| Ok(()));
    world.pass(Duration::from_mins(15)).await;
    assert_eq!(world.requests("web-1").await, amounts("2/2Gi"));
    assert_eq!(world.condition("ConfigUnsupported").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_resize_is_reported_once_and_retried_when_something_changes() {
    for rules in dialects() {
        let world = World::start(rules, "InPlace").await;
        // Requests equal limits, which the policy changes: another QoS class.
        world
            .pod_with("web-1", "1/1Gi", |pod| {
                pod["spec"]["containers"][0]["resources"]["limits"] = json!({ "cpu": "1", "memory": "1Gi" });
            })
            .await;
        let policy = json!({ "spec": { "resourcePolicy": { "containerPolicies": [
            { "containerName": "*", "controlledValues": "RequestsOnly" },
        ] } } });
        world.vpas().patch("web", &PatchParams::default(), &Patch::Merge(policy)).await.unwrap();
        world.recommend("500m/1Gi").await;
        world.pass(DAY).await;
        assert_eq!(world.count("/resize"), 1);
        let refused = world.events("web-1").await["VPAUpdateRefused"].clone();
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(
            world.pods().get("web-1").await.unwrap().metadata.annotations.unwrap().contains_key(ANNOTATION)
        );
        world.recommend("400m/1Gi").await;
        world.pass(DAY).await;
        assert_eq!((world.count("/resize"), world.count("/eviction")), (2, 0));
        let condition = world.condition("PodsUpdated").await.unwrap();
        let waiting = "updated: 0, waiting: 1 (ResizeRejected: 1), infeasible: 0, boosted: 0";
        assert_eq!(condition.message.as_deref(), Some(waiting));
    }
}

/// Upstream remembers the recommendation before the policy caps it, and compares that in one place and the capped one in
/// another (reference/vpa.md 3.4 d).
#[tokio::test(start_paused = true)]
async fn an_infeasible_resize_is_compared_after_the_policy_is_applied() {
    let [rules, _] = dialects();
    let world = World::start(rules, "InPlace").await;
    let policy = json!({ "spec": { "resourcePolicy": { "containerPolicies": [
        { "containerName": "*", "maxAllowed": { "cpu": "5" } },
    ] } } });
    world.vpas().patch("web", &PatchParams::default(), &Patch::Merge(policy)).await.unwrap();
    world.pod("web-1", "1/1Gi").await;
    world.recommend("9/2Gi").await;
    world.pass(MOMENT).await;
    assert_eq!(world.requests("web-1").await, amounts("5/2Gi"));
    world.answer("web-1", Answer::Infeasible).await;
    world.pass(MOMENT).await;
    // Lower, but not once it is capped.
    world.recommend("7/2Gi").await;
    world.pass(Duration::from_mins(10)).await;
    assert_eq!(world.count("/resize"), 1);
    world.recommend("3/2Gi").await;
    world.pass(MOMENT).await;
    assert_eq!(world.requests("web-1").await, amounts("3/2Gi"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_changed_meanwhile_is_read_again() {
    let [rules, _] = dialects();
    let world = World::start(rules, "InPlace").await;
    world.pod("web-1", "1/1Gi").await;
    world.pass(MOMENT).await;
    // Another client updates the pod just before the updater does.
    let (admin, mut once) = (world.pods(), true);
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while receiver.recv().await.is_some() {
            let label = Patch::Merge(json!({ "metadata": { "labels": { "edited": "yes" } } }));
            admin.patch("web-1", &PatchParams::default(), &label).await.unwrap();
        }
    });
    world.intercept(move |uri: &mut Uri| {
        if uri.path().ends_with("/resize") && std::mem::take(&mut once) {
            sender.send(()).unwrap();
        }
        Ok(())
    });
    world.recommend("2/2Gi").await;
    world.pass(MOMENT).await;
    assert_eq!(world.requests("web-1").await, amounts("2/2Gi"));
    assert!(!world.events("web-1").await.contains_key("VPAUpdateRefused"));
}

#[tokio::test(start_paused = true)]
async fn with_the_guard_memory_is_not_lowered_below_what_the_checkpoints_say_was_in_use() {
    // The end of bucket 36 is where bucket 37 starts, a little over a gigabyte; and 15 percent.
    assert_eq!(guarded_memory(json!({})).await, 1_168_723_597);
}

#[tokio::test(start_paused = true)]
async fn with_the_guard_memory_is_not_lowered_below_the_peak_of_a_window_that_is_not_over() {
    let peak = |until: &str| json!({ WINDOW_PEAK_ANNOTATION: format!(r#"{{"bytes":2147483648,"until":"{until}"}}"#) });
    assert_eq!(guarded_memory(peak("2026-03-01T18:00:00Z")).await, 2_469_606_195);
    // The recommender that wrote it is gone.
    assert_eq!(guarded_memory(peak("2026-03-01T08:00:00Z")).await, 1_168_723_597);
}

/// The memory of a pod with 4 GiB after 256 MiB were recommended, with the guard and a checkpoint that has these annotations.
async fn guarded_memory(annotations: Value) -> i64 {
    let [rules, _] = dialects();
    let world = World::start(rules, "InPlace").await;
    let checkpoint = json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscalerCheckpoint",
        "metadata": { "name": "web-app", "annotations": annotations },
        "spec": { "vpaObjectName": "web", "containerName": "app" },
        "status": { "version": "v3", "memoryHistogram": { "bucketWeights": { "8": 10000, "36": 1 }, "totalWeight": 2.0 } },
    });
    let checkpoints: Api<VerticalPodAutoscalerCheckpoint> = Api::default_namespaced(world.admin.clone());
    checkpoints.create(&PostParams::default(), &object(checkpoint)).await.unwrap();
    let guarded = json!({ "metadata": { "annotations": { "plumb.dev/memory-decrease-guard": "true" } } });
    world.vpas().patch("web", &PatchParams::default(), &Patch::Merge(guarded)).await.unwrap();
    world.pod("web-1", "1/4Gi").await;
    world.recommend("2/256Mi").await;
    world.pass(MOMENT).await;
    world.requests("web-1").await.memory.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_target_that_was_replaced_are_resized_though_it_selects_other_labels() {
    let [rules, _] = dialects();
    let world = World::start(rules, "InPlace").await;
    world.pod("web-1", "1/1Gi").await;
    world.recommend("2/2Gi").await;
    world.pass(MOMENT).await;
    assert_eq!(world.requests("web-1").await, amounts("2/2Gi"));
    world.delete_workload().await;
    world.workload_selecting("web", "shop", 1).await;
    world.pass(Duration::from_mins(1)).await;
    world.pod_with("web-2", "1/1Gi", |pod| pod["metadata"]["labels"] = json!({ "app": "shop" })).await;
    world.pass(MOMENT).await;
    assert_eq!(world.requests("web-2").await, amounts("2/2Gi"));
}

#[tokio::test(start_paused = true)]
async fn a_vpa_whose_pods_another_vpa_controls_has_an_event_and_a_condition_without_a_new_pod() {
    let world = World::start(Rules::v1_36(), "InPlace").await;
    world.pods_of(1, "1/1Gi").await;
    world.recommend("2/2Gi").await;
    world.pass(MOMENT).await;
    let vpa = json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": "younger" },
        "spec": {
            "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "updatePolicy": { "updateMode": "InPlace" },
        },
    });
    world.vpas().create(&PostParams::default(), &object(vpa)).await.unwrap();
    world.recommend_for("younger", "3/3Gi").await;
    world.pass(MOMENT).await;
    let message = "VPA web is older and controls the pods of Deployment web: this VPA has no effect";
    assert_eq!(world.events("younger").await["OverlappingVPA"], [(message.to_owned(), 1)]);
    let condition = async || {
        let status = world.vpas().get("younger").await.unwrap().status.unwrap();
        let mut conditions = status.conditions.into_iter();
        let condition = conditions.find(|condition| condition.type_.as_str() == "PodsUpdated").unwrap();
        (condition.reason.unwrap(), condition.message.unwrap())
    };
    assert_eq!(condition().await, ("OverlappingVPA".to_owned(), message.to_owned()));
    world.pass(Duration::from_mins(5)).await;
    assert_eq!(world.events("younger").await["OverlappingVPA"][0].1, 1, "once");
    world.answer("web-0", Answer::Applied).await;
    world.vpas().delete("web", &DeleteParams::default()).await.unwrap();
    world.pass(MOMENT).await;
    assert_eq!(world.requests("web-0").await, amounts("3/3Gi"), "it controls them now");
    assert_ne!(condition().await.0, "OverlappingVPA");
}
