//! No update mode disrupts more pods than the budget allows.

use std::collections::BTreeMap;

use plumb_updater::budget;
use plumb_updater::decide::{Plan, Policy, Settings, Subject, Surroundings, plan, triage};
use plumb_updater::in_place::{InPlace, Recreating, Wait};
use plumb_updater::mode::Modes;
use plumb_updater::obstacle::Obstacle;
use plumb_vpa_api::UpdateMode;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::make::{in_progress, now, pending, pod, resizing, restarts, subject};

/// How a pod stands.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Plain,
    Restarts,
    Pending,
    NotReadyYet,
    NotReadyForLong,
    Infeasible,
    Failing,
    RestartInProgress,
    Obstructed,
    Terminating,
    Updated,
}

const KINDS: [Kind; 11] = [
    Kind::Plain,
    Kind::Restarts,
    Kind::Pending,
    Kind::NotReadyYet,
    Kind::NotReadyForLong,
    Kind::Infeasible,
    Kind::Failing,
    Kind::RestartInProgress,
    Kind::Obstructed,
    Kind::Terminating,
    Kind::Updated,
];

fn make(number: usize, kind: Kind) -> Value {
    let name =
        format!("pod-{number}-{}", if matches!(kind, Kind::Obstructed) { "obstructed" } else { "free" });
    let mut plain = pod(&name, "1/1Gi");
    let since = "2026-01-01T23:59:50Z";
    match kind {
        Kind::Plain | Kind::Obstructed => {}
        Kind::Restarts => plain = restarts(plain, "cpu"),
        Kind::Pending => plain["status"]["phase"] = json!("Pending"),
        Kind::NotReadyYet | Kind::NotReadyForLong => {
            let since = if matches!(kind, Kind::NotReadyYet) { since } else { "2026-01-01T20:00:00Z" };
            plain["status"]["conditions"] =
                json!([{ "type": "Ready", "status": "False", "lastTransitionTime": since }]);
        }
        Kind::Infeasible => plain = resizing(plain, "2/2Gi", Some(pending("Infeasible", since))),
        Kind::Failing => plain = resizing(plain, "2/2Gi", Some(in_progress(Some("Error"), since))),
        Kind::RestartInProgress => {
            plain = resizing(restarts(plain, "cpu"), "2/2Gi", Some(in_progress(None, since)));
        }
        Kind::Terminating => plain["metadata"]["deletionTimestamp"] = json!(since),
        Kind::Updated => plain = pod(&name, "2/2Gi"),
    }
    plain
}

/// Whether a pod serves: it runs, is ready or has been unready for long, and no resize restarts it.
fn serves(kind: Kind) -> bool {
    !matches!(kind, Kind::Pending | Kind::NotReadyYet | Kind::RestartInProgress | Kind::Terminating)
}

#[test]
fn the_only_ready_pod_is_resized_where_that_restarts_nothing() {
    let settings = Settings { skip_budget: false, ..Settings::default() };
    let policy = |mode: &UpdateMode| Policy {
        actuation: Modes::default().actuation(mode),
        min_replicas: None,
        requirements: Vec::new(),
        evict_after_oom: None,
    };
    let mut unready = pod("other", "1/1Gi");
    unready["status"]["conditions"] =
        json!([{ "type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T20:00:00Z" }]);
    let plain = || pod("web", "1/1Gi");
    let wait = || InPlace::Wait(Wait::Budget);
    let resize = || InPlace::Resize { costs_budget: true };
    let table = [
        (UpdateMode::InPlace, plain(), resize()),
        (UpdateMode::InPlaceOrRecreate, plain(), resize()),
        (UpdateMode::InPlace, restarts(plain(), "cpu"), wait()),
        (UpdateMode::InPlaceOrRecreate, restarts(plain(), "cpu"), wait()),
        (UpdateMode::Recreate, plain(), wait()),
    ];
    for (mode, ready, expected) in table {
        let subjects = [subject(&ready, "2/1Gi"), subject(&unready, "1/1Gi")];
        let policy = policy(&mode);
        let triage = triage(&subjects, &policy, &settings.priority, now());
        let configured = BTreeMap::from([("set".to_owned(), Some(2))]);
        let surroundings = Surroundings {
            configured: &configured,
            siblings: &[],
            obstacle: &|_, _| None,
            admission_is_alive: true,
            eviction_pause: None,
            now: now(),
        };
        let (plan, _) = plan(&subjects, &triage, &policy, &settings, &surroundings);
        let found = match &plan {
            Plan::InPlace(decided) => &decided[0].decision,
            Plan::Recreating(decided) => match &decided[0].decision {
                Recreating::InPlace(decision) => decision,
                Recreating::Evict(cause) => panic!("{mode:?}: evicted, {cause}"),
            },
            Plan::None(why) => panic!("{mode:?}: {why:?}"),
        };
        assert_eq!(*found, expected, "{mode:?} {ready}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn no_mode_disrupts_more_pods_than_the_budget_allows(
        kinds in proptest::collection::vec(proptest::sample::select(&KINDS), 0..12),
        more in 0_usize..4,
        sixteenths in 0_u16..=16,
        min_replicas in 1_i32..4,
        skip_budget: bool,
        mode in proptest::sample::select(vec![UpdateMode::InPlaceOrRecreate, UpdateMode::Recreate, UpdateMode::InPlace]),
    ) {
        let subjects: Vec<Subject> =
            kinds.iter().enumerate().map(|(number, kind)| subject(&make(number, *kind), "2/2Gi")).collect();
        let configured = i64::try_from(kinds.len() + more).unwrap();
        let settings = Settings {
            budget: budget::Settings { eviction_tolerance: f64::from(sixteenths) / 16.0, ..budget::Settings::default() },
            skip_budget,
            ..Settings::default()
        };
        let policy = Policy {
            actuation: Modes::default().actuation(&mode),
            min_replicas: Some(min_replicas),
            requirements: Vec::new(),
            evict_after_oom: None,
        };
        let triage = triage(&subjects, &policy, &settings.priority, now());
        let counts = BTreeMap::from([("set".to_owned(), Some(configured))]);
        let obstacle = |pod: &plumb_updater::state::PodState, _: &_| {
            pod.object.name.ends_with("obstructed").then(|| Obstacle::Rejected("invalid".into()))
        };
        let surroundings =
            Surroundings { configured: &counts, siblings: &[], obstacle: &obstacle, admission_is_alive: true, eviction_pause: None, now: now() };
        let (plan, _) = plan(&subjects, &triage, &policy, &settings, &surroundings);
        let mut disrupted = Vec::new();
        // Those of them that are not ready for a while. A pod that is resized without a restart stays ready.
        let mut unready = Vec::new();
        let mut evicted = 0;
        let costs = |at: usize, decision: &InPlace| {
            let InPlace::Resize { costs_budget } = decision else { return false };
            // A resize that restarts a container, or one that counts because resizes do.
            assert_eq!(*costs_budget, !skip_budget || matches!(kinds[at], Kind::Restarts));
            *costs_budget
        };
        match &plan {
            Plan::None(_) => {}
            Plan::InPlace(decided) => {
                let all = decided.iter().filter(|one| costs(one.position, &one.decision));
                disrupted.extend(all.map(|one| one.position));
            }
            Plan::Recreating(decided) => for one in decided {
                match &one.decision {
                    Recreating::InPlace(decision) if costs(one.position, decision) => disrupted.push(one.position),
                    Recreating::InPlace(_) => {}
                    Recreating::Evict(_) => {
                        evicted += 1;
                        unready.push(one.position);
                        disrupted.push(one.position);
                    }
                }
            },
        }
        unready.extend(disrupted.iter().filter(|at| matches!(kinds[**at], Kind::Restarts)));
        unready.sort_unstable();
        unready.dedup();
        let live = kinds.iter().filter(|kind| !matches!(kind, Kind::Terminating)).count();
        prop_assert!(disrupted.is_empty() || live >= usize::try_from(min_replicas).unwrap(), "{evicted} are evicted");
        let is_ready = |kind: Kind| serves(kind) && !matches!(kind, Kind::NotReadyForLong);
        let ready = kinds.iter().filter(|kind| is_ready(**kind)).count();
        let left = ready - unready.iter().filter(|at| is_ready(kinds[**at])).count();
        prop_assert!(
            ready == 0 || left > 0 || configured == 1 || sixteenths == 16,
            "none of {ready} ready pods is left: {plan:?}"
        );
        let before = kinds.iter().filter(|kind| serves(**kind)).count();
        let lost = disrupted.iter().filter(|at| serves(kinds[**at])).count();
        let configured = usize::try_from(configured).unwrap();
        let required = configured - configured * usize::from(sixteenths) / 16;
        // Where the share allows none to be missing, one may be if none is.
        let one = required == configured && before == required;
        prop_assert!(
            lost == 0 || before - lost >= required || (one && lost == 1),
            "{lost} of {before} serving pods are disrupted, {required} are required: {plan:?}"
        );
    }
}
