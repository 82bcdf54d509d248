//! Which pods are due, and in which order: upstream's tables.

use k8s_openapi::jiff::SignedDuration;
use plumb_resize::resource::Declared;
use plumb_updater::decide::{Policy, Standing, Subject, triage};
use plumb_updater::mode::Actuation;
use plumb_updater::priority::{Priority, Settings, Verdict, verdict};
use plumb_updater::state::{ContainerRecommendation, Recommendation};
use serde_json::{Value, json};

use super::make::{amounts, annotated, at, now, pod, recommend, state, subject};

/// A recommendation with bounds given as such.
fn bounded(target: &str, lower: &str, upper: &str) -> Recommendation {
    Recommendation {
        containers: vec![ContainerRecommendation {
            name: "app".into(),
            target: amounts(target),
            limits: Declared::NONE,
            lower: amounts(lower),
            upper: amounts(upper),
        }],
    }
}

fn judge(pod: &Value, recommendation: &Recommendation) -> Verdict {
    verdict(&state(pod), recommendation, &Settings::default(), None, now())
}

fn priority(pod: &Value, recommendation: &Recommendation) -> (bool, bool, f64) {
    // Any difference and any age will do.
    let settings = Settings {
        pod_update_threshold: 0.0,
        lifetime_threshold: SignedDuration::ZERO,
        ..Settings::default()
    };
    match verdict(&state(pod), recommendation, &settings, None, now()) {
        Verdict::Update(Priority { outside_range, scale_up, resource_diff }) => {
            (outside_range, scale_up, resource_diff)
        }
        Verdict::Leave(_) => panic!("not due"),
    }
}

#[test]
fn priorities_are_those_of_upstream() {
    // Requests, target, lower and upper bound, then: outside of the range, scale up, difference.
    let table = [
        ("2/-", "10/-", "-/-", "-/-", (false, true, 4.0)),
        ("4/-", "2/-", "-/-", "-/-", (false, false, 0.5)),
        ("4/-", "2/-", "1/-", "3/-", (true, false, 0.5)),
        ("4/-", "5/-", "1/-", "6/-", (false, true, 0.25)),
        ("4/-", "4/-", "1/-", "6/-", (false, false, 0.0)),
        ("10m/-", "900m/-", "100m/-", "1/-", (true, true, 89.0)),
        ("1/10Mi", "2/5Mi", "-/-", "-/-", (false, true, 1.5)),
        ("1/10Mi", "500m/5Mi", "-/-", "-/-", (false, false, 1.0)),
        ("4/-", "3/-", "5/-", "6/-", (true, false, 0.25)),
    ];
    for (requests, target, lower, upper, wanted) in table {
        let found = priority(&pod("web", requests), &bounded(target, lower, upper));
        assert_eq!(found, wanted, "{requests} to {target} within {lower} and {upper}");
    }
    let (outside_range, scale_up, diff) = priority(&pod("web", "-/-"), &bounded("1/-", "-/-", "-/-"));
    assert!(outside_range && scale_up && diff > 100.0, "a missing request is outside of any range");
}

fn two_containers() -> (Value, Recommendation) {
    let mut pod = pod("web", "2/-");
    let mut second = pod["spec"]["containers"][0].clone();
    second["name"] = json!("second");
    second["resources"]["requests"] = json!({ "cpu": "2" });
    pod["spec"]["containers"].as_array_mut().unwrap().push(second);
    let mut recommendation = bounded("1/-", "-/-", "-/-");
    recommendation.containers.push(ContainerRecommendation {
        name: "second".into(),
        target: amounts("6/-"),
        ..ContainerRecommendation::default()
    });
    (pod, recommendation)
}

#[test]
fn containers_are_added_up_and_those_that_were_not_observed_are_left_out() {
    let (pod, recommendation) = two_containers();
    assert_eq!(priority(&pod, &recommendation), (false, true, 0.75));
    let observed = annotated(pod.clone(), "vpaObservedContainers", "app");
    assert_eq!(priority(&observed, &recommendation), (false, false, 0.5));
    let both = annotated(pod.clone(), "vpaObservedContainers", "app, second");
    assert_eq!(priority(&both, &recommendation), (false, true, 0.75));
    // What cannot be parsed is ignored.
    let broken = annotated(pod, "vpaObservedContainers", "App!,");
    assert_eq!(priority(&broken, &recommendation), (false, true, 0.75));
}

#[test]
fn within_the_bounds_a_pod_is_updated_if_it_is_old_and_differs_enough() {
    let started = |when: &str| {
        let mut pod = pod("web", "4/-");
        pod["status"]["startTime"] = json!(when);
        pod
    };
    let eleven = started("2026-01-01T13:00:00Z");
    let thirteen = started("2026-01-01T11:00:00Z");
    let differs = bounded("5/-", "1/-", "6/-");
    assert_eq!(judge(&eleven, &differs), Verdict::Leave(Some(at("2026-01-02T01:00:00Z"))));
    assert!(matches!(judge(&thirteen, &differs), Verdict::Update(_)));
    let similar = bounded("4200m/-", "1/-", "6/-");
    assert_eq!(judge(&thirteen, &similar), Verdict::Leave(None));
    // Outside of the bounds age does not matter.
    assert!(matches!(judge(&eleven, &bounded("5/-", "4500m/-", "6/-")), Verdict::Update(_)));
}

fn oom_killed(mut pod: Value, started: &str, finished: &str) -> Value {
    pod["status"]["containerStatuses"][0]["lastState"] = json!({ "terminated": {
        "reason": "OOMKilled", "exitCode": 137, "startedAt": started, "finishedAt": finished,
    } });
    pod
}

#[test]
fn a_pod_that_was_oom_killed_soon_after_its_start_is_updated_if_anything_changes() {
    let differs = bounded("5/-", "1/-", "6/-");
    let same = bounded("4/-", "1/-", "6/-");
    let plain = || pod("web", "4/-");
    let table = [
        ("2026-01-01T23:50:00Z", "2026-01-01T23:55:00Z", true),
        // It ran for longer than ten minutes.
        ("2026-01-01T23:40:00Z", "2026-01-01T23:55:00Z", false),
        // The kill was longer than ten minutes ago.
        ("2026-01-01T23:40:00Z", "2026-01-01T23:45:00Z", false),
    ];
    for (started, finished, due) in table {
        let killed = oom_killed(plain(), started, finished);
        assert_eq!(matches!(judge(&killed, &differs), Verdict::Update(_)), due, "{started} to {finished}");
        assert_eq!(judge(&killed, &same), Verdict::Leave(None));
    }
    // A VPA may have a threshold of its own.
    let killed = oom_killed(plain(), "2026-01-01T23:40:00Z", "2026-01-01T23:55:00Z");
    let hour = Some(SignedDuration::from_hours(1));
    let own = verdict(&state(&killed), &differs, &Settings::default(), hour, now());
    assert!(matches!(own, Verdict::Update(_)));
}

#[test]
fn pods_that_need_more_come_first_then_those_that_differ_most() {
    let subjects: Vec<Subject> = [
        ("down-a-little", "4/-", "3/-"),
        ("up-a-little", "2/-", "3/-"),
        ("in-bounds", "4/-", "4/-"),
        ("down-a-lot", "8/-", "1/-"),
        ("up-a-lot", "1/-", "9/-"),
        ("also-up-a-little", "2/-", "3/-"),
    ]
    .map(|(name, requests, target)| subject(&pod(name, requests), target))
    .into();
    let policy = Policy {
        actuation: Actuation::InPlace,
        min_replicas: None,
        requirements: Vec::new(),
        evict_after_oom: None,
    };
    let triage = triage(&subjects, &policy, &Settings::default(), now());
    let names: Vec<_> = triage.due.iter().map(|at| subjects[*at].pod.object.name.as_str()).collect();
    assert_eq!(names, ["up-a-lot", "also-up-a-little", "up-a-little", "down-a-lot", "down-a-little"]);
    assert_eq!(triage.others, [(2, Standing::Updated)]);
    assert_eq!(recommend("3/-").containers.len(), 1);
}
