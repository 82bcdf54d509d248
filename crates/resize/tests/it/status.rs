//! Where a resize stands: what the node keeps, what it shows, and how that is read.

mod kubelet;
mod pod_level;
mod proposed;
mod recover;
mod resize_status;

use k8s_openapi::api::core::v1::PodCondition;
use plumb_resize::rules::Rules;
use plumb_resize::status::{ERROR, IN_PROGRESS, PENDING, PendingReason, ResizeOutcome, Stage, condition};

use super::cluster::{Cluster, at};
use super::pods::{PodExt, pod};
use super::sizes::{containers, resources};

fn cluster(rules: Rules) -> Cluster {
    Cluster::run(pod(containers("100/200 64/128")), rules)
}

fn both() -> [Rules; 2] {
    [Rules::kep(), Rules::v1_36()]
}

#[track_caller]
fn shown<'a>(cluster: &'a Cluster, type_: &str) -> &'a PodCondition {
    condition(cluster.pod.status_of(), type_).expect("the condition is there")
}

fn is_shown(cluster: &Cluster, type_: &str) -> bool {
    condition(cluster.pod.status_of(), type_).is_some()
}

/// The fields of a condition that a resize decides.
fn fields(condition: &PodCondition) -> (&str, Option<&str>, Option<&str>, Option<i64>) {
    let PodCondition { status, reason, message, observed_generation, .. } = condition;
    (status, reason.as_deref(), message.as_deref(), *observed_generation)
}

const FULL: &str = "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000";

#[test]
fn an_allocation_keeps_its_generation_while_newer_specs_are_pending() {
    for rules in both() {
        let mut cluster = cluster(rules);
        cluster.neighbour(2_000);
        cluster.ask("150/200 64/128");
        assert_eq!(cluster.decide(), ResizeOutcome::Started);
        cluster.report(10);
        assert_eq!(fields(shown(&cluster, IN_PROGRESS)), ("True", None, None, Some(2)));

        cluster.ask("3000/3000 64/128");
        assert_eq!(cluster.decide(), ResizeOutcome::Pending(PendingReason::Deferred));
        cluster.report(20);
        assert_eq!(fields(shown(&cluster, IN_PROGRESS)), ("True", None, None, Some(2)), "sticky");
        assert_eq!(fields(shown(&cluster, PENDING)), ("True", Some("Deferred"), Some(FULL), Some(3)));
        assert_eq!(cluster.reading().stage, Stage::Deferred { message: FULL.to_owned() });
        assert_eq!(cluster.pod.status_of().observed_generation, Some(3));

        cluster.carry_out();
        cluster.report(30);
        assert!(!is_shown(&cluster, IN_PROGRESS) && is_shown(&cluster, PENDING), "each ends by itself");

        cluster.ledger.release("neighbour");
        assert_eq!(cluster.decide(), ResizeOutcome::Started);
        cluster.report(40);
        assert!(!is_shown(&cluster, PENDING));
        assert_eq!(fields(shown(&cluster, IN_PROGRESS)), ("True", None, None, Some(3)), "a new allocation");
        cluster.carry_out();
        cluster.report(50);
        assert_eq!(cluster.pod.status_of().conditions, Some(Vec::new()), "removed, never False");
        assert_eq!(cluster.reading().stage, Stage::Applied);
    }
}

#[test]
fn a_refusal_is_news_only_when_it_is_a_new_one_but_its_generation_is_always_the_latest() {
    let mut cluster = cluster(Rules::kep());
    cluster.neighbour(2_000);
    cluster.ask("3000/3000 64/128");
    assert_eq!(cluster.decide(), ResizeOutcome::Pending(PendingReason::Deferred));
    cluster.neighbour(2_500);
    assert_eq!(cluster.decide(), ResizeOutcome::Unchanged, "the same reason with other figures");
    cluster.report(10);
    assert!(shown(&cluster, PENDING).message.as_deref().unwrap().contains("used: 2500"));
    cluster.pod = cluster.pod.respec(|spec| spec.containers[0].image = Some("plumb/load:2".to_owned()));
    assert_eq!(cluster.decide(), ResizeOutcome::Pending(PendingReason::Deferred));
    cluster.report(20);
    assert_eq!(shown(&cluster, PENDING).observed_generation, Some(3));
    cluster.move_to_node(2_000);
    assert_eq!(cluster.decide(), ResizeOutcome::Pending(PendingReason::Infeasible));
}

#[test]
fn an_error_is_kept_until_the_allocation_is_actual_or_replaced() {
    for rules in both() {
        let mut cluster = cluster(rules);
        cluster.ask("150/200 64/128");
        cluster.decide();
        cluster.allocation.failed("the runtime is away");
        cluster.report(10);
        let error = ("True", Some(ERROR), Some("the runtime is away"), Some(2));
        assert_eq!(fields(shown(&cluster, IN_PROGRESS)), error);
        let stage = cluster.reading().stage;
        assert_eq!(stage.to_string(), "failing: the runtime is away");
        assert!(!stage.is_final());
        assert_eq!(
            cluster.word(),
            cluster.rules.publish_resize_status.then_some("InProgress"),
            "an error is no word"
        );

        assert_eq!(cluster.decide(), ResizeOutcome::Unchanged);
        cluster.report(20);
        assert_eq!(fields(shown(&cluster, IN_PROGRESS)), error, "looking again does not erase it");

        let mut replaced = cluster.clone();
        replaced.ask("160/200 64/128");
        replaced.decide();
        replaced.report(30);
        assert_eq!(fields(shown(&replaced, IN_PROGRESS)), ("True", None, None, Some(3)));

        cluster.carry_out();
        cluster.report(30);
        assert!(!is_shown(&cluster, IN_PROGRESS));
        cluster.cgroups.containers[0] = Some(resources("70/70 64/128").containers[0]);
        cluster.report(40);
        assert_eq!(shown(&cluster, IN_PROGRESS).reason, None, "an error that is over does not come back");
    }
}

#[test]
fn the_time_of_the_last_transition_is_kept_while_the_reason_stays() {
    let mut cluster = cluster(Rules::kep());
    let times = |cluster: &Cluster| {
        let condition = shown(cluster, PENDING);
        (condition.last_transition_time.clone().unwrap(), condition.last_probe_time.clone().unwrap())
    };
    cluster.neighbour(2_000);
    cluster.ask("3000/3000 64/128");
    cluster.decide();
    cluster.report(10);
    assert_eq!(times(&cluster), (at(10), at(10)));
    assert_eq!(cluster.reading().since, Some(at(10)));
    cluster.neighbour(2_100);
    cluster.decide();
    cluster.report(20);
    assert_eq!(times(&cluster), (at(10), at(20)), "another message is no transition");
    cluster.ask("100000/100000 64/128");
    cluster.decide();
    cluster.report(30);
    assert_eq!(times(&cluster), (at(30), at(30)), "another reason is one");
}

#[test]
fn a_desire_that_is_taken_back_leaves_nothing_behind() {
    for rules in both() {
        let mut cluster = cluster(rules);
        cluster.ask("100000/100000 64/128");
        assert_ne!(cluster.decide(), ResizeOutcome::Started);
        cluster.report(10);
        assert!(is_shown(&cluster, PENDING));
        cluster.ask("100/200 64/128");
        assert_eq!(cluster.reading().stage, Stage::Proposed, "the reason that is still shown is an old one");
        assert_eq!(cluster.reading().since, None);
        assert_eq!(cluster.decide(), ResizeOutcome::Withdrawn);
        assert_eq!(cluster.decide(), ResizeOutcome::Unchanged);
        cluster.report(20);
        assert_eq!(cluster.word(), None);
        assert!(!is_shown(&cluster, PENDING));
        assert_eq!(cluster.reading().stage, Stage::Applied);
    }
}

#[test]
fn a_pending_resize_leaves_the_allocation_and_the_cgroups_unchanged() {
    let mut cluster = cluster(Rules::kep());
    let before = (cluster.allocation.allocated.clone(), cluster.cgroups.clone());
    cluster.ask("100000/100000 64/128");
    assert_eq!(cluster.decide(), ResizeOutcome::Pending(PendingReason::Infeasible));
    assert_eq!(cluster.plan(), []);
    assert_eq!((cluster.allocation.allocated, cluster.cgroups), before);
}

#[test]
fn a_pod_that_has_ended_shows_no_resize() {
    for phase in ["Succeeded", "Failed"] {
        for rules in both() {
            let mut cluster = cluster(rules);
            cluster.ask("150/200 64/128");
            cluster.decide();
            cluster.ask("100000/100000 64/128");
            cluster.decide();
            cluster.report(10);
            assert!(is_shown(&cluster, PENDING) && is_shown(&cluster, IN_PROGRESS));
            cluster.pod.status.as_mut().unwrap().phase = Some(phase.to_owned());
            assert_eq!(cluster.reading().stage, Stage::Applied);
            cluster.report(20);
            assert_eq!(cluster.word(), None);
            assert!(!is_shown(&cluster, PENDING) && !is_shown(&cluster, IN_PROGRESS), "{phase}");
        }
    }
}

#[test]
fn fields_other_than_those_of_a_resize_are_not_changed() {
    let mut cluster = cluster(Rules::kep());
    let ready =
        PodCondition { type_: "Ready".to_owned(), status: "True".to_owned(), ..PodCondition::default() };
    let status = cluster.pod.status.as_mut().unwrap();
    status.conditions = Some(vec![ready.clone()]);
    status.message = Some("hello".to_owned());
    cluster.ask("150/200 64/128");
    cluster.decide();
    cluster.report(10);
    assert_eq!(cluster.pod.status_of().conditions.as_ref().unwrap().len(), 2);
    cluster.carry_out();
    cluster.report(20);
    assert_eq!(cluster.pod.status_of().conditions, Some(vec![ready]));
    assert_eq!(cluster.pod.status_of().message.as_deref(), Some("hello"));
    assert!(cluster.pod.status_of().container_statuses.as_ref().unwrap()[0].ready);
}
