//! The decision tables of AEP-8818, for every update mode.

use std::collections::BTreeMap;

use k8s_openapi::jiff::SignedDuration;
use plumb_resize::qos::QosClass;
use plumb_updater::attempt::{ANNOTATION, Accepted, FailedUnboost, Infeasible, Record, Rejected};
use plumb_updater::decide::{Plan, Policy, Settings, Subject, Surroundings, plan, triage};
use plumb_updater::in_place::{Backoff, InPlace, Recreating, Wait};
use plumb_updater::mode::{Actuation, AutoMode, Modes, NoActuation};
use plumb_updater::obstacle::Obstacle;
use plumb_updater::shrink_first::NodeDecision;
use plumb_vpa_api::{EvictionChangeRequirement, EvictionRequirement, UpdateMode};
use serde_json::{Value, json};

use super::make::{
    amounts, annotated, at, in_progress, now, pending, pod, recommend, resizing, restarts, state, subject,
};

/// What becomes of a pod, in a word: as `InPlaceDecision` of AEP-8818 calls it.
fn word(plan: &Plan) -> String {
    let in_place = |decision: &InPlace| match decision {
        InPlace::Updated => "updated".to_owned(),
        InPlace::Resize { costs_budget: false } => "approved".to_owned(),
        InPlace::Resize { costs_budget: true } => "approved within budget".to_owned(),
        InPlace::Wait(wait) => format!("deferred: {}", wait.reason()),
        InPlace::Infeasible { record: Some(_) } => "infeasible".to_owned(),
        InPlace::Infeasible { record: None } => "infeasible cached".to_owned(),
    };
    match plan {
        Plan::None(why) => format!("none: {why:?}"),
        Plan::InPlace(decided) => decided.first().map_or("not due".into(), |one| in_place(&one.decision)),
        Plan::Recreating(decided) => decided.first().map_or("not due".into(), |one| match &one.decision {
            Recreating::InPlace(decision) => in_place(decision),
            Recreating::Evict(cause) => format!("evict: {}", cause.reason()),
        }),
    }
}

/// What a decision is asked with, beyond the pod.
#[derive(Clone)]
struct World {
    modes: Modes,
    settings: Settings,
    requirements: Vec<EvictionRequirement>,
    configured: Option<i64>,
    /// How many more pods of the replica set run.
    others: usize,
    obstacle: Option<Obstacle>,
    admission_is_alive: bool,
}

impl Default for World {
    fn default() -> Self {
        Self {
            modes: Modes::default(),
            settings: Settings::default(),
            requirements: Vec::new(),
            configured: Some(2),
            others: 1,
            obstacle: None,
            admission_is_alive: true,
        }
    }
}

fn decide(mode: &UpdateMode, subject: Subject, world: &World) -> Plan {
    let policy = Policy {
        actuation: world.modes.actuation(mode),
        min_replicas: None,
        requirements: world.requirements.clone(),
        evict_after_oom: None,
    };
    let mut subjects = vec![subject];
    for number in 0..world.others {
        // These have the recommendation of the first one.
        subjects.push(super::make::subject(&pod(&format!("other-{number}"), "1/1Gi"), "1/1Gi"));
    }
    let triage = triage(&subjects, &policy, &world.settings.priority, now());
    let configured = BTreeMap::from([("set".to_owned(), world.configured)]);
    let obstacle = |_: &_, _: &_| world.obstacle.clone();
    let surroundings = Surroundings {
        configured: &configured,
        siblings: &[],
        obstacle: &obstacle,
        admission_is_alive: world.admission_is_alive,
        eviction_pause: None,
        now: now(),
    };
    plan(&subjects, &triage, &policy, &world.settings, &surroundings).0
}

fn ask(mode: &UpdateMode, pod: &Value, target: &str, world: &World) -> String {
    word(&decide(mode, subject(pod, target), world))
}

const RECENT: &str = "2026-01-01T23:59:00Z";
const LONG_AGO: &str = "2026-01-01T20:00:00Z";

/// A row of the table: what is asked, and what becomes of the pod in the modes `InPlace` and `InPlaceOrRecreate`.
type Row = (&'static str, Value, World, &'static str, &'static str);

fn rows() -> Vec<Row> {
    let plain = || pod("web", "1/1Gi");
    let resize = |condition| resizing(plain(), "2/2Gi", condition);
    let world = World::default;
    let mut orphan = plain();
    orphan["metadata"]["ownerReferences"] = json!([]);
    let mut waiting = plain();
    waiting["status"]["phase"] = json!("Pending");
    let no_skip =
        World { settings: Settings { skip_budget: false, ..Settings::default() }, ..World::default() };
    vec![
        ("owner unknown", orphan, world(), "deferred: OwnerUnknown", "deferred: OwnerUnknown"),
        ("Pending", waiting, world(), "deferred: PodPending", "deferred: PodPending"),
        (
            "no group",
            plain(),
            World { configured: None, ..world() },
            "deferred: ReplicasUnknown",
            "deferred: ReplicasUnknown",
        ),
        (
            "Infeasible",
            resize(Some(pending("Infeasible", RECENT))),
            world(),
            "infeasible",
            "evict: ResizeInfeasible",
        ),
        (
            "Deferred",
            resize(Some(pending("Deferred", RECENT))),
            world(),
            "deferred: ResizeDeferred",
            "deferred: ResizeDeferred",
        ),
        (
            "Deferred for hours",
            resize(Some(pending("Deferred", LONG_AGO))),
            world(),
            "deferred: ResizeDeferred",
            "evict: ResizeDeferred",
        ),
        (
            "InProgress",
            resize(Some(in_progress(None, RECENT))),
            world(),
            "deferred: ResizeInProgress",
            "deferred: ResizeInProgress",
        ),
        (
            "InProgress for hours",
            resize(Some(in_progress(None, LONG_AGO))),
            world(),
            "deferred: ResizeInProgress",
            "evict: ResizeInProgress",
        ),
        (
            "Error",
            resize(Some(in_progress(Some("Error"), RECENT))),
            world(),
            "deferred: ResizeError",
            "evict: ResizeError",
        ),
        (
            "not answered for hours",
            resize(None),
            world(),
            "deferred: ResizeProposed",
            "evict: ResizeInProgress",
        ),
        (
            "an unknown reason reads as Deferred",
            resize(Some(pending("Moonlight", RECENT))),
            world(),
            "deferred: ResizeDeferred",
            "deferred: ResizeDeferred",
        ),
        ("skip-budget, no restart", plain(), world(), "approved", "approved"),
        (
            "skip-budget, no restart, all others missing",
            plain(),
            World { others: 0, ..world() },
            "approved",
            "approved",
        ),
        (
            "skip-budget, RestartContainer, disruptable",
            restarts(plain(), "cpu"),
            world(),
            "approved within budget",
            "approved within budget",
        ),
        (
            "skip-budget, RestartContainer, not disruptable",
            restarts(plain(), "cpu"),
            World { configured: Some(4), ..world() },
            "deferred: DisruptionBudget",
            "deferred: DisruptionBudget",
        ),
        (
            "skip-budget, RestartContainer, below minReplicas",
            restarts(plain(), "cpu"),
            World { others: 0, configured: Some(1), ..world() },
            "deferred: BelowMinReplicas",
            "deferred: BelowMinReplicas",
        ),
        (
            "skip-budget, RestartContainer for what does not change",
            restarts(pod("web", "2/1Gi"), "cpu"),
            World { others: 0, ..world() },
            "approved",
            "approved",
        ),
        (
            "no skip-budget, disruptable",
            plain(),
            no_skip.clone(),
            "approved within budget",
            "approved within budget",
        ),
        (
            "no skip-budget, not disruptable",
            plain(),
            World { configured: Some(4), ..no_skip.clone() },
            "deferred: DisruptionBudget",
            "deferred: DisruptionBudget",
        ),
        (
            "no skip-budget, below minReplicas",
            plain(),
            World { others: 0, configured: Some(1), ..no_skip },
            "deferred: BelowMinReplicas",
            "deferred: BelowMinReplicas",
        ),
    ]
}

#[test]
fn every_row_of_the_table_is_decided_as_the_mode_has_it() {
    for (name, pod, world, in_place, in_place_or_recreate) in rows() {
        let subject = || Subject { observed: at(LONG_AGO), ..subject(&pod, "2/2Gi") };
        let ask = |mode: &UpdateMode| word(&decide(mode, subject(), &world));
        assert_eq!(ask(&UpdateMode::InPlace), in_place, "InPlace: {name}");
        assert_eq!(ask(&UpdateMode::InPlaceOrRecreate), in_place_or_recreate, "InPlaceOrRecreate: {name}");
        assert_eq!(ask(&UpdateMode::Auto), in_place_or_recreate, "Auto: {name}");
        for mode in [UpdateMode::Off, UpdateMode::Initial] {
            assert_eq!(ask(&mode), "none: Mode", "{mode:?}: {name}");
        }
        assert!(!ask(&UpdateMode::Recreate).starts_with("approved"), "Recreate: {name}");
    }
}

/// A node does not lower a memory limit below the usage, and reports an error (KEP-1287). A pod that is created with that limit
/// instead would be OOM-killed once it uses as much.
#[test]
fn a_pod_is_not_evicted_because_its_memory_cannot_be_lowered() {
    let lowering = |from: &str, to: &str, condition: Value| resizing(pod("web", from), to, Some(condition));
    let error = || in_progress(Some("Error"), LONG_AGO);
    for (from, to, condition, target, expected) in [
        ("2/2Gi", "2/1Gi", error(), "2/1Gi", "deferred: ResizeError"),
        ("2/2Gi", "2/1Gi", in_progress(None, LONG_AGO), "2/1Gi", "deferred: ResizeInProgress"),
        ("2/2Gi", "2/1Gi", error(), "2/1000Mi", "deferred: ResizeError"),
        // A higher recommendation ends the attempt.
        ("2/2Gi", "2/1Gi", error(), "2/3Gi", "approved"),
        ("2/2Gi", "2/1Gi", error(), "3/1Gi", "approved"),
        // Anything else that fails is as before.
        ("2/2Gi", "1/1Gi", error(), "1/1Gi", "evict: ResizeError"),
        ("2/1Gi", "2/2Gi", error(), "2/2Gi", "evict: ResizeError"),
        ("1/1Gi", "2/2Gi", in_progress(None, LONG_AGO), "2/2Gi", "evict: ResizeInProgress"),
    ] {
        let pod = lowering(from, to, condition);
        let subject = Subject { observed: at(LONG_AGO), ..subject(&pod, target) };
        let found = word(&decide(&UpdateMode::InPlaceOrRecreate, subject, &World::default()));
        assert_eq!(found, expected, "{from} to {to}, then {target}");
    }
}

#[test]
fn recreate_evicts_within_the_budget_and_never_resizes() {
    let plain = pod("web", "1/1Gi");
    let mut waiting = plain.clone();
    waiting["status"]["phase"] = json!("Pending");
    let table = [
        ("two of two run", &plain, World::default(), "evict: Recreate"),
        ("one of two runs", &plain, World { others: 0, ..World::default() }, "deferred: BelowMinReplicas"),
        (
            "two of four run",
            &plain,
            World { configured: Some(4), ..World::default() },
            "deferred: DisruptionBudget",
        ),
        (
            "a pending pod costs nothing",
            &waiting,
            World { configured: Some(4), ..World::default() },
            "evict: Recreate",
        ),
        (
            "unknown replicas",
            &plain,
            World { configured: None, ..World::default() },
            "deferred: ReplicasUnknown",
        ),
    ];
    for (name, pod, world, wanted) in table {
        assert_eq!(ask(&UpdateMode::Recreate, pod, "2/2Gi", &world), wanted, "{name}");
    }
}

#[test]
fn feature_gates_decide_what_a_mode_means() {
    let modes = |in_place, in_place_or_recreate| Modes { in_place, in_place_or_recreate, ..Modes::default() };
    let table = [
        (UpdateMode::InPlace, modes(false, true), Actuation::None(NoActuation::GateOff)),
        (UpdateMode::InPlace, modes(true, false), Actuation::InPlace),
        (UpdateMode::InPlaceOrRecreate, modes(true, false), Actuation::Recreate),
        (UpdateMode::InPlaceOrRecreate, modes(false, true), Actuation::InPlaceOrRecreate),
        (UpdateMode::Auto, modes(true, false), Actuation::Recreate),
        (UpdateMode::Auto, modes(true, true), Actuation::InPlaceOrRecreate),
        (UpdateMode::Auto, Modes { auto: AutoMode::Recreate, ..Modes::default() }, Actuation::Recreate),
        (UpdateMode::Recreate, Modes::default(), Actuation::Recreate),
        (
            UpdateMode::InPlace,
            Modes { resize_served: false, ..Modes::default() },
            Actuation::None(NoActuation::ResizeNotServed),
        ),
        (
            UpdateMode::InPlaceOrRecreate,
            Modes { resize_served: false, ..Modes::default() },
            Actuation::Recreate,
        ),
        (
            UpdateMode::Other("Sideways".into()),
            Modes::default(),
            Actuation::None(NoActuation::Unknown("Sideways".into())),
        ),
    ];
    for (mode, modes, wanted) in table {
        assert_eq!(modes.actuation(&mode), wanted, "{mode:?} with {modes:?}");
    }
}

fn recorded(pod: Value, record: &Record) -> Value {
    annotated(pod, ANNOTATION, &record.annotation().unwrap())
}

fn infeasible(requests: &str, allocatable: &str) -> Record {
    let requests = [("app".to_owned(), amounts(requests))].into();
    Record {
        infeasible: Some(Infeasible { requests, allocatable: amounts(allocatable) }),
        ..Record::default()
    }
}

#[test]
fn an_infeasible_resize_is_retried_only_if_a_value_is_lower_or_the_node_has_grown() {
    // The stored attempt, allocatable then, the recommendation now (the node has 8/16Gi), what becomes of the pod.
    let table = [
        ("2/2Gi", "8/16Gi", "2/2Gi", "infeasible cached"),
        ("2/2Gi", "8/16Gi", "3/2Gi", "infeasible cached"),
        ("2/2Gi", "8/16Gi", "3/3Gi", "infeasible cached"),
        ("2/2Gi", "8/16Gi", "3/1900Mi", "approved"),
        ("2/2Gi", "8/16Gi", "1900m/4Gi", "approved"),
        ("2/2Gi", "4/16Gi", "2/2Gi", "approved"),
        ("2/2Gi", "8/8Gi", "4/4Gi", "approved"),
        ("2/2Gi", "16/32Gi", "2/2Gi", "infeasible cached"),
        // What only one side names is not lower.
        ("2/-", "8/16Gi", "3/1500Mi", "infeasible cached"),
        ("-/2Gi", "8/16Gi", "500m/3Gi", "infeasible cached"),
        ("2/2Gi", "-/-", "2/2Gi", "infeasible cached"),
    ];
    for (stored, allocatable, target, wanted) in table {
        let pod = recorded(pod("web", "1/1Gi"), &infeasible(stored, allocatable));
        let found = ask(&UpdateMode::InPlace, &pod, target, &World::default());
        assert_eq!(found, wanted, "{stored} was infeasible at {allocatable}, {target} is recommended");
    }
}

#[test]
fn an_infeasible_status_is_about_the_values_in_the_spec() {
    let resizing = |requests| resizing(pod("web", "1/1Gi"), requests, Some(pending("Infeasible", RECENT)));
    let in_place = |pod: &Value, target| ask(&UpdateMode::InPlace, pod, target, &World::default());
    assert_eq!(in_place(&resizing("4/4Gi"), "4/4Gi"), "infeasible");
    assert_eq!(in_place(&resizing("4/4Gi"), "5/4Gi"), "infeasible");
    assert_eq!(in_place(&resizing("4/4Gi"), "3/5Gi"), "approved");
    // Back to what it has.
    assert_eq!(in_place(&resizing("4/4Gi"), "1/1Gi"), "approved");
    let known = recorded(resizing("4/4Gi"), &infeasible("4/4Gi", "8/16Gi"));
    assert_eq!(in_place(&known, "4/4Gi"), "infeasible cached");
    assert_eq!(in_place(&known, "3/4Gi"), "approved");
    // An older attempt is not about this spec.
    let older = recorded(resizing("4/4Gi"), &infeasible("6/6Gi", "8/16Gi"));
    assert_eq!(in_place(&older, "5/5Gi"), "infeasible");
    // A lower attempt that the API server found infeasible left the spec as it is: it is not sent again.
    let refused = recorded(resizing("4/4Gi"), &infeasible("3/4Gi", "8/16Gi"));
    assert_eq!(in_place(&refused, "3/4Gi"), "infeasible cached");
    assert_eq!(in_place(&refused, "3/5Gi"), "infeasible cached");
    assert_eq!(in_place(&refused, "2/4Gi"), "approved");
    // The node has grown since: what is recommended is attempted, what is attempted already is recorded anew.
    let smaller = recorded(resizing("4/4Gi"), &infeasible("4/4Gi", "2/16Gi"));
    assert_eq!(in_place(&smaller, "5/5Gi"), "approved");
    assert_eq!(in_place(&smaller, "4/4Gi"), "infeasible");
}

#[test]
fn what_the_node_has_applied_is_not_infeasible_whatever_is_recorded() {
    let in_place = |pod: &Value, target| ask(&UpdateMode::InPlace, pod, target, &World::default());
    // A condition without a generation, of an earlier spec, was taken for one of this spec.
    let applied = recorded(pod("web", "2/2Gi"), &infeasible("2/2Gi", "8/16Gi"));
    assert_eq!(in_place(&applied, "3/3Gi"), "approved");
    let proposed = recorded(resizing(pod("web", "1/1Gi"), "2/2Gi", None), &infeasible("2/2Gi", "8/16Gi"));
    assert_eq!(in_place(&proposed, "3/3Gi"), "infeasible cached");
}

#[test]
fn a_failure_without_a_generation_is_not_taken_for_one_of_a_resize_of_a_moment_ago() {
    let accepted = |at_time: &str| Record {
        accepted: Some(Accepted { generation: 2, at: at(at_time) }),
        ..Record::default()
    };
    let undated = |mut condition: Value| {
        condition.as_object_mut().unwrap().remove("observedGeneration");
        condition
    };
    let (infeasible, error) = (pending("Infeasible", RECENT), in_progress(Some("Error"), RECENT));
    let (just_now, earlier) = ("2026-01-01T23:59:55Z", "2026-01-01T23:59:45Z");
    // The condition, when the updater resized the pod, and what becomes of it in both modes.
    let table = [
        (undated(infeasible.clone()), just_now, "deferred: ResizeProposed", "deferred: ResizeProposed"),
        (undated(error.clone()), just_now, "deferred: ResizeProposed", "deferred: ResizeProposed"),
        (undated(infeasible.clone()), earlier, "infeasible", "evict: ResizeInfeasible"),
        (undated(error), earlier, "deferred: ResizeError", "evict: ResizeError"),
        (infeasible, just_now, "infeasible", "evict: ResizeInfeasible"),
    ];
    for (condition, resized, in_place, recreating) in table {
        let pod = resizing(pod("web", "1/1Gi"), "2/2Gi", Some(condition.clone()));
        let pod = recorded(pod, &accepted(resized));
        let found = [UpdateMode::InPlace, UpdateMode::InPlaceOrRecreate]
            .map(|mode| ask(&mode, &pod, "2/2Gi", &World::default()));
        assert_eq!(found, [in_place, recreating], "{condition}, resized at {resized}");
    }
}

#[test]
fn the_infeasible_values_that_are_recorded_are_those_of_the_spec() {
    let pod = resizing(pod("web", "1/1Gi"), "4/4Gi", Some(pending("Infeasible", RECENT)));
    let Plan::InPlace(decided) = decide(&UpdateMode::InPlace, subject(&pod, "5/5Gi"), &World::default())
    else {
        panic!("another plan");
    };
    let InPlace::Infeasible { record: Some(record) } = &decided[0].decision else {
        panic!("{decided:?}");
    };
    assert_eq!(record.requests, [("app".to_owned(), amounts("4/4Gi"))].into());
    assert_eq!(record.allocatable, amounts("8/16Gi"));
}

#[test]
fn a_rejected_resize_is_sent_again_only_for_another_recommendation_or_generation() {
    let rejected = |generation, target: &str| {
        let pod = state(&pod("web", "1/1Gi"));
        let rejected = Rejected { resources: pod.with(&recommend(target)), generation, message: "no".into() };
        Record { rejected: Some(rejected), ..Record::default() }
    };
    let in_place = |record: &Record| {
        ask(&UpdateMode::InPlace, &recorded(pod("web", "1/1Gi"), record), "2/2Gi", &World::default())
    };
    assert_eq!(in_place(&rejected(1, "2/2Gi")), "deferred: ResizeRejected");
    assert_eq!(in_place(&rejected(1, "2/3Gi")), "approved");
    assert_eq!(in_place(&rejected(0, "2/2Gi")), "approved");
}

#[test]
fn a_pod_is_not_attempted_during_a_backoff() {
    let mut subject = subject(&pod("web", "1/1Gi"), "2/2Gi");
    let until = at("2026-01-02T00:00:01Z");
    subject.backoff = Some(Backoff { until, reason: "QuotaExceeded", message: "exceeded quota".into() });
    let found = decide(&UpdateMode::InPlace, subject.clone(), &World::default());
    assert_eq!(word(&found), "deferred: QuotaExceeded");
    subject.backoff = Some(Backoff { until: now(), reason: "QuotaExceeded", message: String::new() });
    assert_eq!(word(&decide(&UpdateMode::InPlace, subject, &World::default())), "approved");
}

#[test]
fn the_clock_of_a_timeout_begins_with_each_attempt() {
    let mut pod = resizing(pod("web", "1/1Gi"), "2/2Gi", Some(pending("Deferred", LONG_AGO)));
    let in_place_or_recreate =
        |subject: Subject| word(&decide(&UpdateMode::InPlaceOrRecreate, subject, &World::default()));
    let record = |generation| Record {
        accepted: Some(Accepted { generation, at: at("2026-01-01T23:58:00Z") }),
        ..Record::default()
    };
    // The node reports Deferred since the attempt before this one.
    let young = recorded(pod.clone(), &record(2));
    let old_observation = |pod: &Value| Subject { observed: at(LONG_AGO), ..subject(pod, "2/2Gi") };
    assert_eq!(in_place_or_recreate(old_observation(&young)), "deferred: ResizeDeferred");
    // The record is about another generation: what this updater observed counts.
    let other = recorded(pod.clone(), &record(1));
    assert_eq!(in_place_or_recreate(subject(&other, "2/2Gi")), "deferred: ResizeDeferred");
    assert_eq!(in_place_or_recreate(old_observation(&other)), "evict: ResizeDeferred");
    // A restart of the updater does not begin it anew.
    pod = recorded(
        pod,
        &Record { accepted: Some(Accepted { generation: 2, at: at(LONG_AGO) }), ..Record::default() },
    );
    assert_eq!(in_place_or_recreate(subject(&pod, "2/2Gi")), "evict: ResizeDeferred");
}

#[test]
fn a_pod_that_waits_is_decided_about_again_at_its_deadline() {
    let pod = resizing(pod("web", "1/1Gi"), "2/2Gi", Some(pending("Deferred", "2026-01-01T23:58:00Z")));
    let policy = |mode: &UpdateMode| Policy {
        actuation: Modes::default().actuation(mode),
        min_replicas: None,
        requirements: Vec::new(),
        evict_after_oom: None,
    };
    let again = |mode| {
        let subjects = [Subject { observed: at(LONG_AGO), ..subject(&pod, "2/2Gi") }];
        let policy = policy(&mode);
        let settings = Settings::default();
        let triage = triage(&subjects, &policy, &settings.priority, now());
        let configured = BTreeMap::new();
        let surroundings = Surroundings {
            configured: &configured,
            siblings: &[],
            obstacle: &|_, _| None,
            admission_is_alive: true,
            eviction_pause: None,
            now: now(),
        };
        plan(&subjects, &triage, &policy, &settings, &surroundings).1
    };
    assert_eq!(again(UpdateMode::InPlaceOrRecreate), Some(at("2026-01-02T00:03:00Z")));
    // InPlace waits for as long as it takes.
    assert_eq!(again(UpdateMode::InPlace), None);
}

#[test]
fn in_place_or_recreate_evicts_where_a_resize_could_not_succeed_unless_a_quota_forbids_it() {
    let qos = Obstacle::QosClass { from: QosClass::Guaranteed, to: QosClass::Burstable };
    let capacity = Obstacle::NodeCapacity {
        resource: plumb_resize::resource::Resource::Cpu,
        requested: 9000,
        allocatable: 8000,
    };
    let table = [
        (qos.clone(), 1, "evict: QoSClassWouldChange"),
        // Within the budget.
        (qos, 0, "deferred: BelowMinReplicas"),
        (capacity, 1, "evict: NodeCapacity"),
        (Obstacle::Rejected("invalid".into()), 1, "evict: ResizeRejected"),
        (Obstacle::Quota("exceeded quota".into()), 1, "deferred: QuotaExceeded"),
        (Obstacle::NotAllowed, 1, "deferred: RecommendationRefused"),
    ];
    for (obstacle, others, wanted) in table {
        let world = World { obstacle: Some(obstacle.clone()), others, ..World::default() };
        let pod = pod("web", "1/1Gi");
        assert_eq!(ask(&UpdateMode::InPlaceOrRecreate, &pod, "2/2Gi", &world), wanted, "{obstacle}");
        assert_eq!(ask(&UpdateMode::InPlace, &pod, "2/2Gi", &world), "approved", "{obstacle}");
    }
}

#[test]
fn in_place_or_recreate_resizes_an_infeasible_pod_to_a_lower_recommendation() {
    let pod = resizing(pod("web", "1/1Gi"), "4/4Gi", Some(pending("Infeasible", RECENT)));
    let ask = |target: &str, world: &World| ask(&UpdateMode::InPlaceOrRecreate, &pod, target, world);
    assert_eq!(ask("3/4Gi", &World::default()), "approved");
    assert_eq!(ask("4/4Gi", &World::default()), "evict: ResizeInfeasible");
    assert_eq!(ask("5/4Gi", &World::default()), "evict: ResizeInfeasible");
    let alone = World { others: 0, ..World::default() };
    assert_eq!(ask("4/4Gi", &alone), "deferred: BelowMinReplicas");
    assert_eq!(ask("3/4Gi", &alone), "approved", "though it may not be evicted");
    let rejected = World { obstacle: Some(Obstacle::Rejected("invalid".into())), ..World::default() };
    assert_eq!(ask("3/4Gi", &rejected), "evict: ResizeInfeasible");
}

#[test]
fn a_pod_that_would_not_be_created_with_the_recommendation_is_never_evicted() {
    let infeasible = resizing(pod("web", "1/1Gi"), "3/3Gi", Some(pending("Infeasible", RECENT)));
    let failing = resizing(pod("web", "1/1Gi"), "3/3Gi", Some(in_progress(Some("Error"), RECENT)));
    for (obstacle, wanted) in [
        (Obstacle::NotAllowed, "deferred: RecommendationRefused"),
        (Obstacle::Quota("exceeded quota".into()), "deferred: QuotaExceeded"),
    ] {
        let world = World { obstacle: Some(obstacle), ..World::default() };
        for pod in [&pod("web", "1/1Gi"), &infeasible, &failing] {
            assert_eq!(ask(&UpdateMode::Recreate, pod, "4/4Gi", &world), wanted);
            assert_eq!(ask(&UpdateMode::InPlaceOrRecreate, pod, "4/4Gi", &world), wanted);
        }
    }
}

#[test]
fn eviction_requirements_bind_evictions_alone() {
    let requires = |resources: &[&str], change_requirement| World {
        requirements: vec![EvictionRequirement {
            resources: resources.iter().map(|name| (*name).to_owned()).collect(),
            change_requirement,
        }],
        ..World::default()
    };
    let lower = || requires(&["cpu", "memory"], EvictionChangeRequirement::TargetLowerThanRequests);
    let higher = || requires(&["memory"], EvictionChangeRequirement::TargetHigherThanRequests);
    let plain = pod("web", "1/1Gi");
    let table = [
        (UpdateMode::Recreate, "2/2Gi", lower(), "deferred: EvictionRequirements"),
        (UpdateMode::Recreate, "2/2Gi", higher(), "evict: Recreate"),
        (UpdateMode::Recreate, "2/512Mi", lower(), "evict: Recreate"),
        (UpdateMode::Recreate, "2/1Gi", higher(), "deferred: EvictionRequirements"),
        (UpdateMode::InPlaceOrRecreate, "2/2Gi", lower(), "approved"),
        (UpdateMode::InPlace, "2/2Gi", lower(), "approved"),
    ];
    for (mode, target, world, wanted) in table {
        assert_eq!(ask(&mode, &plain, target, &world), wanted, "{mode:?} to {target}");
    }
    // A container that lacks a request may always be evicted.
    assert_eq!(ask(&UpdateMode::Recreate, &pod("web", "1/-"), "2/2Gi", &lower()), "evict: Recreate");
    let infeasible = resizing(plain, "2/2Gi", Some(pending("Infeasible", RECENT)));
    assert_eq!(
        ask(&UpdateMode::InPlaceOrRecreate, &infeasible, "2/2Gi", &lower()),
        "deferred: EvictionRequirements"
    );
}

#[test]
fn pods_are_evicted_only_while_new_ones_get_the_recommendation() {
    let world = World { admission_is_alive: false, ..World::default() };
    let plain = pod("web", "1/1Gi");
    assert_eq!(ask(&UpdateMode::Recreate, &plain, "2/2Gi", &world), "deferred: AdmissionControllerDown");
    // Upstream's updater does not resize then, either; a resize does not need the admission controller.
    assert_eq!(ask(&UpdateMode::InPlaceOrRecreate, &plain, "2/2Gi", &world), "approved");
    assert_eq!(ask(&UpdateMode::InPlace, &plain, "2/2Gi", &world), "approved");
}

#[test]
fn pods_that_are_boosted_or_without_a_recommendation_are_left_to_others() {
    let boosted = annotated(pod("web", "1/1Gi"), "vpaCpuStartupBoost/app", "{}");
    assert_eq!(ask(&UpdateMode::InPlace, &boosted, "2/2Gi", &World::default()), "not due");
    let mut nothing = subject(&pod("web", "1/1Gi"), "2/2Gi");
    nothing.recommendation = None;
    assert_eq!(word(&decide(&UpdateMode::InPlace, nothing, &World::default())), "not due");
    let mut terminating = pod("web", "1/1Gi");
    terminating["metadata"]["deletionTimestamp"] = json!(RECENT);
    assert_eq!(ask(&UpdateMode::InPlace, &terminating, "2/2Gi", &World::default()), "not due");
}

#[test]
fn a_newer_recommendation_waits_for_the_resize_in_progress_and_the_wait_is_reported() {
    let pod = resizing(pod("web", "1/1Gi"), "2/2Gi", Some(pending("Deferred", LONG_AGO)));
    let wait_of = |subject| {
        let Plan::InPlace(decided) = decide(&UpdateMode::InPlace, subject, &World::default()) else {
            panic!("another plan");
        };
        match decided.into_iter().next().map(|one| one.decision) {
            Some(InPlace::Wait(wait @ Wait::Deferred { .. })) => wait.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let wait = |target| wait_of(subject(&pod, target));
    assert_eq!(wait("2/2Gi"), "the node deferred the resize: too big");
    let newer = "the node deferred the resize: too big; a newer recommendation waits for it";
    assert_eq!(wait("3/3Gi"), newer);
    // Even a lower one.
    assert_eq!(wait("1500m/2Gi"), newer);
    let stuck = Subject { node_decision: NodeDecision::NoShrinkHelps, ..subject(&pod, "2/2Gi") };
    assert_eq!(
        wait_of(stuck),
        "the node deferred the resize: too big; it would not fit if all other pods of the node shrank to their recommendations"
    );
}

#[test]
fn timeouts_are_settings() {
    let mut world = World::default();
    world.settings.timeouts.deferred = SignedDuration::from_hours(24);
    world.settings.timeouts.in_progress = SignedDuration::from_secs(1);
    let deferred = resizing(pod("web", "1/1Gi"), "2/2Gi", Some(pending("Deferred", LONG_AGO)));
    let progressing = resizing(pod("web", "1/1Gi"), "2/2Gi", Some(in_progress(None, RECENT)));
    let ask = |pod: &Value| {
        let subject = Subject { observed: at(LONG_AGO), ..subject(pod, "2/2Gi") };
        word(&decide(&UpdateMode::InPlaceOrRecreate, subject, &world))
    };
    assert_eq!(ask(&deferred), "deferred: ResizeDeferred");
    assert_eq!(ask(&progressing), "evict: ResizeInProgress");
    let unanswered = resizing(pod("web", "1/1Gi"), "2/2Gi", None);
    let recent =
        super::decisions::ask(&UpdateMode::InPlaceOrRecreate, &unanswered, "2/2Gi", &World::default());
    assert_eq!(recent, "deferred: ResizeProposed");
}

#[test]
fn a_failed_unboost_holds_evictions_but_for_a_lack_of_memory() {
    let held = "deferred: UnboostFailed";
    // When the container was OOM-killed, the recommendation, and what becomes of the pod in the mode Recreate. It has 1 CPU and
    // 1Gi, and did not get 3 CPUs at the end of its boost.
    let table = [
        (None, "3/1Gi", held),
        (None, "3/1050Mi", held),
        (None, "2/1Gi", "evict: Recreate"),
        (None, "3/2Gi", "evict: Recreate"),
        // Less memory can wait until the CPU fits.
        (None, "3/512Mi", held),
        // A quick OOM kill, and more memory is recommended, though within the range.
        (Some("2026-01-01T23:55:00Z"), "3/1050Mi", "evict: Recreate"),
        (Some("2026-01-01T23:30:00Z"), "3/1050Mi", held),
        // A new pod would have the same memory.
        (Some("2026-01-01T23:55:00Z"), "3/1Gi", held),
    ];
    let unboost =
        FailedUnboost { cpu: BTreeMap::from([("app".into(), 3000)]), allocatable: amounts("8/16Gi") };
    let record = Record { unboost: Some(unboost), ..Record::default() }.annotation().unwrap();
    for (killed, recommended, expected) in table {
        let mut pod = annotated(pod("web", "1/1Gi"), ANNOTATION, &record);
        if let Some(killed) = killed {
            pod["status"]["containerStatuses"][0]["lastState"] = json!({ "terminated": {
                "reason": "OOMKilled", "exitCode": 137, "startedAt": killed, "finishedAt": killed,
            } });
        }
        let what = format!("killed {killed:?}, {recommended}");
        assert_eq!(ask(&UpdateMode::Recreate, &pod, recommended, &World::default()), expected, "{what}");
    }
    assert_eq!(
        Wait::UnboostFailed.to_string(),
        "the resize at the end of the startup boost failed; the pod is not evicted for the same CPU recommendation"
    );
}
