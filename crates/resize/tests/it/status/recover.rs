//! The allocation that a pod's status tells a node that has no record of it.

use plumb_resize::defaulting::{allocate_at_creation, default_pod};
use plumb_resize::pod::PodResources;
use plumb_resize::rules::Rules;
use plumb_resize::status::{PendingReason, ResizeOutcome, at_admission, recovered};

use super::super::cluster::{Cluster, set_sizes};
use super::super::pods::{PodExt, pod};
use super::super::sizes::{PodSizes, containers, resources, size, wire};
use super::both;

const SMALL: &str = "100/200 64/128";

/// Holds what is recovered from the status to what the node had.
#[track_caller]
fn same(cluster: &Cluster, why: &str) {
    let found = recovered(&cluster.pod, &cluster.desired());
    let had = &cluster.allocation;
    assert_eq!(found.allocated, had.allocated, "{why}");
    assert_eq!((&found.pending, &found.error), (&had.pending, &had.error), "{why}");
}

#[test]
fn the_allocation_is_recovered_at_every_stage_of_a_resize() {
    for rules in both() {
        let mut cluster = Cluster::run(pod(containers(SMALL)), rules);
        same(&cluster, "settled");
        cluster.ask("150/300 64/256");
        same(&cluster, "proposed");
        assert_eq!(cluster.decide(), ResizeOutcome::Started);
        cluster.report(10);
        same(&cluster, "in progress");
        cluster.allocation.failed("the runtime went away");
        cluster.report(20);
        same(&cluster, "error");
        cluster.carry_out();
        cluster.report(30);
        same(&cluster, "completed");
        cluster.neighbour(2_000);
        cluster.ask("3000/3500 64/256");
        assert_eq!(cluster.decide(), ResizeOutcome::Pending(PendingReason::Deferred));
        cluster.report(40);
        same(&cluster, "deferred");
        let never = cluster.try_ask(|spec| set_sizes(spec, "30000/35000 64/256"));
        assert_eq!(never, []);
        assert_ne!(cluster.decide(), ResizeOutcome::Started);
        cluster.report(50);
        same(&cluster, "infeasible");
        cluster.ask("160/300 32/128");
        assert_eq!(cluster.decide(), ResizeOutcome::Started);
        cluster.report(60);
        same(&cluster, "in progress again");
    }
}

#[test]
fn an_older_resize_in_progress_is_recovered_beside_a_pending_one() {
    for rules in both() {
        // Requests equal limits, so that the status tells both.
        let mut cluster = Cluster::run(pod(containers("100 64")), rules);
        cluster.neighbour(2_000);
        cluster.ask("150 64");
        assert_eq!(cluster.decide(), ResizeOutcome::Started);
        cluster.ask("3000 64");
        assert_eq!(cluster.decide(), ResizeOutcome::Pending(PendingReason::Deferred));
        cluster.report(10);
        same(&cluster, "both");
        assert_eq!(recovered(&cluster.pod, &cluster.desired()).generation, 2);
    }
}

#[test]
fn pod_level_resources_are_recovered() {
    for rules in both() {
        let mut cluster = Cluster::run(pod(containers("100/- 64/-")).level("200/400 128/256"), rules);
        cluster.neighbour(2_000);
        same(&cluster, "settled");
        let level = wire(size("3000/3000 128/256"));
        assert_eq!(cluster.try_ask(|spec| spec.resources = Some(level)), []);
        assert_eq!(cluster.decide(), ResizeOutcome::Pending(PendingReason::Deferred));
        cluster.report(10);
        same(&cluster, "deferred");
    }
}

#[test]
fn a_new_pod_is_admitted_with_the_smaller_of_its_allocation_and_its_spec() {
    let table = [
        ("100 64", "100 64", "100 64"),
        ("100 64", "300 128", "100 64"),
        ("300 128", "100 64", "100 64"),
        ("100 128", "300 64", "100 64"),
        // A limit that is not the request is known from the spec only.
        (SMALL, "300/400 64/256", "100/400 64/256"),
        (SMALL, "100/400 128/128", "100/400 64/64"),
        ("100/- 64", "100/200 64", "100/200 64"),
        ("-/- 64/128", "300/400 64/128", "-/400 64/128"),
        ("100 64|-/- -/-", "100 64|50/80 32/64", "100 64|-/80 -/64"),
    ];
    for (created, grown, admitted) in table {
        let mut new = pod(containers(created));
        default_pod(&mut new, &Rules::kep()).unwrap();
        allocate_at_creation(&mut new, &Rules::kep());
        let mut new = new.respec(|spec| set_sizes(spec, grown));
        new.metadata.generation = Some(2);
        let desired = PodResources::desired(new.spec_of()).unwrap();
        let allocation = at_admission(&new, &desired);
        assert_eq!(allocation.allocated, resources(admitted), "{created} to {grown}");
        let expected = if resources(admitted) == desired { 2 } else { 1 };
        assert_eq!(allocation.generation, expected, "{created} to {grown}");
    }
}

#[test]
fn a_new_pod_without_an_allocation_is_admitted_with_its_spec() {
    let new = pod(containers("300 64"));
    let desired = PodResources::desired(new.spec_of()).unwrap();
    assert_eq!(at_admission(&new, &desired).allocated, desired);
}

#[test]
fn pod_level_resources_that_were_added_since_the_creation_are_a_resize() {
    let mut new = pod(containers("100/200 64/128"));
    allocate_at_creation(&mut new, &Rules::kep());
    let new = new.level("1000/2000 64/128");
    let desired = PodResources::desired(new.spec_of()).unwrap();
    assert_eq!(at_admission(&new, &desired).allocated, resources("100/200 64/128"));
}
