//! Updates after OOM kills: none applies a recommendation from before a kill.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use plumb_resize::rules::Rules;
use plumb_updater::Options;
use plumb_updater::decide::Subject;
use plumb_updater::oom_hold::{OomHold, hold};
use plumb_vpa_api::kills_counted_message;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::make::{amounts, at, now, pod, state, subject};
use super::world::{Answer, MOMENT, World, dialects, options};

fn killed(mut pod: Value, finished: &str) -> Value {
    pod["status"]["containerStatuses"][0]["lastState"] = json!({ "terminated": {
        "reason": "OOMKilled", "exitCode": 137, "startedAt": finished, "finishedAt": finished,
    } });
    pod
}

fn target(subject: &Subject) -> String {
    let target = subject.recommendation.as_ref().unwrap().containers[0].target;
    format!("{}/{}Mi", target.cpu.unwrap(), target.memory.unwrap() >> 20)
}

#[test]
fn a_recommendation_from_before_a_kill_waits_and_less_memory_is_held_back() {
    let a_minute_ago = "2026-01-01T23:59:00Z";
    let a_minute = Some(at("2026-01-02T00:01:00Z"));
    let a_day = Some(at("2026-01-02T23:59:00Z"));
    // When the container was killed, up to when kills are counted, the recommendation; then what is held back, and what of the
    // recommendation is left. The container has 1 CPU and 1024Mi.
    let table = [
        // Not counted yet: the pod waits, and memory stays.
        (a_minute_ago, None, "2/600Mi", a_minute, a_day, "2000/1024Mi"),
        (a_minute_ago, Some("2026-01-01T23:58:59Z"), "2/600Mi", a_minute, a_day, "2000/1024Mi"),
        (a_minute_ago, None, "2/1024Mi", a_minute, None, "2000/1024Mi"),
        // A little more is no sign that the kill is counted.
        (a_minute_ago, Some("2026-01-01T23:58:59Z"), "2/1100Mi", a_minute, None, "2000/1100Mi"),
        // Counted.
        (a_minute_ago, Some(a_minute_ago), "2/600Mi", None, a_day, "2000/1024Mi"),
        (a_minute_ago, Some(a_minute_ago), "2/1100Mi", None, None, "2000/1100Mi"),
        (a_minute_ago, Some("2026-01-01T23:58:59Z"), "2/1300Mi", None, None, "2000/1300Mi"),
        // By another recommender, which does not report it: any increase is one, as under a maxAllowed.
        (a_minute_ago, None, "2/1300Mi", None, None, "2000/1300Mi"),
        (a_minute_ago, None, "2/1025Mi", None, None, "2000/1025Mi"),
        // It is not waited for any longer.
        ("2026-01-01T23:58:00Z", None, "2/600Mi", None, Some(at("2026-01-02T23:58:00Z")), "2000/1024Mi"),
        ("2026-01-01T23:58:00Z", None, "2/1100Mi", None, None, "2000/1100Mi"),
        ("2026-01-01T00:00:00Z", None, "2/600Mi", None, None, "2000/600Mi"),
        // The clock of a node is ahead.
        ("2026-01-02T00:01:00Z", None, "2/1024Mi", Some(at("2026-01-02T00:03:00Z")), None, "2000/1024Mi"),
        ("2026-01-02T00:03:00Z", None, "2/1024Mi", None, None, "2000/1024Mi"),
        ("2026-01-03T00:03:00Z", None, "2/600Mi", None, None, "2000/600Mi"),
    ];
    for (finished, counted, recommended, uncounted_until, decrease_until, left) in table {
        let mut subjects = [subject(&killed(pod("web", "1/1Gi"), finished), recommended)];
        hold(&mut subjects, counted.map(at), now());
        let held = subjects[0].oom_hold.unwrap_or(OomHold { uncounted_until: None, decrease_until: None });
        let what = format!("{finished}, counted until {counted:?}: {recommended}");
        assert_eq!(held, OomHold { uncounted_until, decrease_until }, "{what}");
        assert_eq!(target(&subjects[0]), left, "{what}");
    }
}

#[test]
fn other_pods_of_the_vpa_get_no_less_memory_while_a_kill_is_not_counted() {
    let subjects = || {
        let killed = killed(pod("web-0", "1/1Gi"), "2026-01-01T23:59:00Z");
        [
            subject(&killed, "2/600Mi"),
            subject(&pod("web-1", "1/1Gi"), "2/600Mi"),
            subject(&pod("web-2", "1/512Mi"), "2/600Mi"),
        ]
    };
    let mut uncounted = subjects();
    hold(&mut uncounted, None, now());
    assert_eq!(uncounted.each_ref().map(target), ["2000/1024Mi", "2000/1024Mi", "2000/600Mi"]);
    let until = Some(at("2026-01-02T00:01:00Z"));
    assert_eq!(uncounted[1].oom_hold, Some(OomHold { uncounted_until: None, decrease_until: until }));
    assert_eq!(uncounted[2].oom_hold, None, "more memory is not held back");
    let mut counted = subjects();
    hold(&mut counted, Some(now()), now());
    assert_eq!(counted.each_ref().map(target), ["2000/1024Mi", "2000/600Mi", "2000/600Mi"]);
}

#[test]
fn a_limit_is_held_back_like_a_request_and_a_resize_that_is_not_applied_does_not_count() {
    let mut limited = killed(pod("web", "1/512Mi"), "2026-01-01T23:50:00Z");
    limited["spec"]["containers"][0]["resources"]["limits"] = json!({ "memory": "1Gi" });
    limited["status"]["containerStatuses"][0]["resources"] =
        limited["spec"]["containers"][0]["resources"].clone();
    let mut one = subject(&limited, "1/600Mi");
    let mut recommendation = (**one.recommendation.as_ref().unwrap()).clone();
    recommendation.containers[0].limits = amounts("-/700Mi");
    one.recommendation = Some(recommendation.into());
    let mut subjects = [one];
    hold(&mut subjects, None, now());
    let held = &subjects[0].recommendation.as_ref().unwrap().containers[0];
    assert_eq!((held.target, held.limits), (amounts("1/600Mi"), amounts("-/1Gi")));
    assert!(subjects[0].oom_hold.is_some_and(|hold| hold.decrease_until.is_some()));

    // 20Gi are in the spec and infeasible; the container was killed with 1Gi.
    let infeasible = super::make::resizing(
        killed(pod("web", "1/1Gi"), "2026-01-01T23:50:00Z"),
        "1/20Gi",
        Some(super::make::pending("Infeasible", "2026-01-01T23:59:00Z")),
    );
    let mut subjects = [subject(&infeasible, "1/2Gi")];
    hold(&mut subjects, None, now());
    assert_eq!((target(&subjects[0]), subjects[0].oom_hold), ("1000/2048Mi".to_owned(), None));
}

#[test]
fn the_latest_kill_counts_whether_the_container_waits_or_runs_again() {
    let (earlier, later) = ("2026-01-01T23:50:00Z", "2026-01-01T23:55:00Z");
    let kill = |finished: &str| json!({ "terminated": { "reason": "OOMKilled", "exitCode": 137, "startedAt": finished, "finishedAt": finished } });
    let failed = json!({ "terminated": { "reason": "Error", "exitCode": 1, "startedAt": later, "finishedAt": later } });
    // The container's `lastState`, its `state`, and the kill.
    let table = [
        (kill(earlier), kill(later), Some(later)),
        (kill(later), kill(earlier), Some(later)),
        (kill(earlier), json!({ "running": { "startedAt": later } }), Some(earlier)),
        (kill(earlier), failed.clone(), Some(earlier)),
        (failed, kill(later), Some(later)),
        (json!({}), json!({ "running": { "startedAt": later } }), None),
    ];
    for (last, present, expected) in table {
        let mut pod = pod("web", "1/1Gi");
        pod["status"]["containerStatuses"][0]["lastState"] = last;
        pod["status"]["containerStatuses"][0]["state"] = present;
        let found = state(&pod).containers[0].oom_kill.map(|kill| kill.killed);
        assert_eq!(found, expected.map(at), "{pod}");
    }
}

proptest! {
    /// Whatever was killed, whenever, and whatever is recommended: for a day no pod gets less memory than it was killed with.
    #[test]
    fn no_pod_gets_less_memory_than_it_was_killed_with(
        pods in proptest::collection::vec((1_i64..4096, proptest::option::of(-3000_i64..200_000)), 1..6),
        recommended in 1_i64..4096,
        counted in proptest::option::of(-3000_i64..200_000),
    ) {
        let before = |seconds: i64| now() - SignedDuration::from_secs(seconds);
        let mut subjects: Vec<Subject> = pods
            .iter()
            .enumerate()
            .map(|(number, (mebibytes, kill))| {
                let plain = pod(&format!("web-{number}"), &format!("1/{mebibytes}Mi"));
                let pod = kill.map_or(plain.clone(), |kill| killed(plain, &before(kill).to_string()));
                subject(&pod, &format!("1/{recommended}Mi"))
            })
            .collect();
        hold(&mut subjects, counted.map(before), now());
        for (subject, (mebibytes, kill)) in subjects.iter().zip(&pods) {
            let memory = subject.recommendation.as_ref().unwrap().containers[0].target.memory.unwrap() >> 20;
            let hold = subject.oom_hold.unwrap_or(OomHold { uncounted_until: None, decrease_until: None });
            if kill.is_some_and(|kill| kill < 86_400) {
                prop_assert!(memory >= *mebibytes);
            }
            prop_assert_eq!(hold.decrease_until.is_some(), memory > recommended);
            let latest = now() + SignedDuration::from_mins(4);
            prop_assert!(hold.uncounted_until.is_none_or(|until| until > now() && until <= latest), "bounded");
        }
    }
}

/// The node reports that the container of a pod was OOM-killed a second ago, and runs again.
async fn kill(world: &World, pod: &str) -> Timestamp {
    let killed = world.clock.now() - SignedDuration::from_secs(1);
    let resources = world.pods().get(pod).await.unwrap().spec.unwrap().containers[0].resources.clone();
    let status = json!({ "status": { "containerStatuses": [{
        "name": "app", "image": "i", "imageID": "", "ready": true, "restartCount": 1, "started": true,
        "state": { "running": { "startedAt": world.clock.now().to_string() } },
        "lastState": { "terminated": {
            "reason": "OOMKilled", "exitCode": 137,
            "startedAt": (killed - SignedDuration::from_mins(1)).to_string(), "finishedAt": killed.to_string(),
        } },
        "allocatedResources": resources.as_ref().and_then(|resources| resources.requests.clone()),
        "resources": resources,
    }] } });
    world.node().patch_status(pod, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    // Times in the API are in whole seconds.
    Timestamp::from_second(killed.as_second()).unwrap()
}

/// The recommender has counted kills up to a time, and recommends this, within wide bounds.
async fn count_kills(world: &World, until: Timestamp, target: &str) {
    let condition =
        json!({ "type": "OOMKillsCounted", "status": "True", "message": kills_counted_message(until) });
    let target = super::make::list(amounts(target));
    let recommended = json!([{
        "containerName": "app", "target": target, "lowerBound": { "memory": "1Mi" }, "upperBound": { "memory": "100Gi" },
    }]);
    let status =
        json!({ "recommendation": { "containerRecommendations": recommended }, "conditions": [condition] });
    let patch = Patch::Merge(json!({ "status": status }));
    world.vpas().patch_status("web", &PatchParams::default(), &patch).await.unwrap();
}

/// Three pods of 1Gi for which 600Mi are recommended, within the bounds.
async fn three_pods(rules: Rules, mode: &str) -> World {
    let world = World::start(rules, mode).await;
    count_kills(&world, Timestamp::UNIX_EPOCH, "1/600Mi").await;
    world.pods_of(3, "1/1Gi").await;
    world.pass(Duration::from_mins(3)).await;
    assert_eq!((world.count("/resize"), world.count("/eviction")), (0, 0), "they are within the bounds");
    world
}

#[tokio::test(start_paused = true)]
async fn a_quick_oom_kill_is_not_answered_with_the_recommendation_from_before_it() {
    for rules in dialects() {
        for mode in ["Recreate", "InPlaceOrRecreate", "InPlace"] {
            let world = three_pods(rules.clone(), mode).await;
            let mut last = Timestamp::UNIX_EPOCH;
            for pod in ["web-0", "web-1", "web-2"] {
                last = kill(&world, pod).await;
            }
            world.pass(Duration::from_secs(30)).await;
            assert_eq!((world.count("/resize"), world.count("/eviction")), (0, 0), "{mode}");
            let waits = world.condition("PodsUpdated").await.unwrap();
            assert_eq!(
                waits.reason.as_deref(),
                Some("AllPodsUpdated"),
                "{mode}: memory stays, and nothing else differs"
            );

            // Once the kill is counted the pods get more memory.
            count_kills(&world, last, "1/1400Mi").await;
            world.pass(MOMENT).await;
            if mode == "Recreate" {
                assert!(world.count("/eviction") > 0, "{mode}");
            } else {
                assert_eq!((world.count("/resize"), world.count("/eviction")), (3, 0), "{mode}");
                assert_eq!(world.requests("web-0").await, amounts("1/1400Mi"), "{mode}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_an_uncounted_kill_waits_and_says_so() {
    for mode in ["Recreate", "InPlaceOrRecreate", "InPlace"] {
        let world = three_pods(Rules::v1_36(), mode).await;
        // More CPU, and memory as before.
        count_kills(&world, Timestamp::UNIX_EPOCH, "2/1100Mi").await;
        world.pass(MOMENT).await;
        assert_eq!((world.count("/resize"), world.count("/eviction")), (0, 0), "{mode}: within the bounds");
        let killed = kill(&world, "web-0").await;
        world.pass(MOMENT).await;
        assert_eq!((world.count("/resize"), world.count("/eviction")), (0, 0), "{mode}");
        let condition = world.condition("PodsUpdated").await.unwrap();
        let message = condition.message.unwrap();
        assert!(message.contains("OOMKillNotCounted: 1"), "{mode}: {message}");
        // The recommendation is the same, but it includes the kill.
        count_kills(&world, killed, "2/1100Mi").await;
        world.pass(MOMENT).await;
        assert_eq!(world.count("/resize") + world.count("/eviction"), 1, "{mode}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_recommender_that_does_not_count_a_kill_is_waited_for_two_minutes() {
    let world = three_pods(Rules::v1_36(), "InPlace").await;
    count_kills(&world, Timestamp::UNIX_EPOCH, "2/1100Mi").await;
    kill(&world, "web-0").await;
    world.pass(Duration::from_secs(110)).await;
    assert_eq!(world.count("/resize"), 0);
    world.pass(Duration::from_secs(15)).await;
    assert_eq!(world.requests("web-0").await, amounts("2/1100Mi"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_killed_keeps_its_memory_for_a_day_and_gets_the_cpu_in_place() {
    for mode in ["Recreate", "InPlaceOrRecreate", "InPlace"] {
        let mut world = World::new(Rules::v1_36()).await;
        world.vpa(mode, json!({})).await;
        // Two days of virtual time: nothing here depends on the interval.
        world.start_updater(Options { interval: Duration::from_hours(1), ..options() });
        world.recommend("1/1Gi").await;
        world.pods_of(3, "1/1Gi").await;
        let killed = kill(&world, "web-0").await;
        let condition =
            json!({ "type": "OOMKillsCounted", "status": "True", "message": kills_counted_message(killed) });
        let patch = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
        world.vpas().patch_status("web", &PatchParams::default(), &patch).await.unwrap();
        // The bounds are narrow: all pods are updated, but for the memory of the one that was killed.
        world.recommend("2/600Mi").await;
        world.pass(MOMENT).await;
        if mode == "Recreate" {
            assert!(world.names().await.contains(&"web-0".to_owned()));
            world.pass(Duration::from_hours(23)).await;
            assert!(world.names().await.contains(&"web-0".to_owned()));
            let events = world.events("web-0").await;
            assert!(
                events.values().flatten().any(|(message, _)| message.contains("OOM-killed")),
                "{events:?}"
            );
            continue;
        }
        assert_eq!((world.count("/resize"), world.count("/eviction")), (3, 0), "{mode}");
        assert_eq!(world.requests("web-0").await, amounts("2/1Gi"), "{mode}");
        assert_eq!(world.requests("web-1").await, amounts("2/600Mi"), "{mode}");
        for pod in ["web-1", "web-2"] {
            world.answer(pod, Answer::Applied).await;
        }
        kill(&world, "web-0").await;
        world.pass(Duration::from_hours(23)).await;
        assert_eq!(world.requests("web-0").await, amounts("2/1Gi"), "{mode}");
        world.pass(Duration::from_hours(2)).await;
        assert_eq!(world.requests("web-0").await, amounts("2/600Mi"), "{mode}: a day later");
    }
}
