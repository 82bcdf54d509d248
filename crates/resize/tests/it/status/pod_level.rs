//! Pods with resources of their own: what they share is shown once, at the pod.

use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use plumb_resize::status::{IN_PROGRESS, Stage};

use super::super::cluster::Cluster;
use super::super::pods::PodExt;
use super::super::sizes::{PodSizes, containers, size, wire};
use super::{both, is_shown, pod};

fn level(text: &str) -> ResourceRequirements {
    wire(size(text))
}

#[test]
fn a_pod_whose_containers_inherit_its_limits_is_settled_when_they_do() {
    for rules in both() {
        let mut cluster = Cluster::run(pod(containers("100/- 64/-")).level("200/400 128/256"), rules);
        assert!(!is_shown(&cluster, IN_PROGRESS));
        assert_eq!(cluster.cgroups.containers[0], Some(size("100/400 64/256")), "what its cgroup holds");
        assert_eq!(cluster.reading().stage, Stage::Applied);

        assert_eq!(cluster.try_ask(|spec| spec.resources = Some(level("300/500 128/256"))), []);
        assert_eq!(cluster.reading().stage, Stage::Proposed);
        cluster.decide();
        cluster.report(10);
        assert_eq!(cluster.reading().stage, Stage::InProgress);
        let status = cluster.pod.status_of();
        assert_eq!(status.allocated_resources, level("300/500 128/256").requests);
        assert_eq!(status.resources, Some(level("200/400 128/256")));

        cluster.carry_out();
        cluster.report(20);
        assert_eq!(cluster.reading().stage, Stage::Applied);
        let status = cluster.pod.status_of();
        assert_eq!(status.resources, Some(level("300/500 128/256")));
        let container = &status.container_statuses.as_ref().unwrap()[0];
        assert_eq!(container.resources, Some(level("100/- 64/-")), "a limit that is inherited is the pod's");
        let values = cluster.reading().pod.unwrap();
        assert_eq!(values.desired, size("300/500 128/256"));
        assert_eq!((values.allocated, values.actual), (Some(values.desired.requests), Some(values.desired)));
    }
}

#[test]
fn a_pod_without_pod_level_resources_has_the_sums_of_its_containers_in_1_36() {
    let [kep, shipped] = both();
    let pod = || pod(containers("100/200 64/128 | 50/- 32/64")).overhead("cpu=10m memory=8Mi");
    let cluster = Cluster::run(pod(), kep);
    let status = cluster.pod.status_of();
    assert_eq!((&status.allocated_resources, &status.resources), (&None, &None), "the KEP has none");

    let mut cluster = Cluster::run(pod(), shipped);
    let status = cluster.pod.status_of();
    assert_eq!(status.allocated_resources, level("160/- 104/-").requests, "with the overhead");
    assert_eq!(status.resources, Some(level("150/- 96/192")), "one container has no cpu limit");
    assert_eq!(cluster.reading().stage, Stage::Applied);

    // While a container is resized, the allocated sum is ahead of the actual one.
    let resize = |spec: &mut PodSpec| spec.containers[0].resources = Some(level("200/300 64/128"));
    assert_eq!(cluster.try_ask(resize), []);
    cluster.decide();
    cluster.report(10);
    let status = cluster.pod.status_of();
    assert_eq!(status.allocated_resources, level("260/- 104/-").requests);
    assert_eq!(status.resources, Some(level("150/- 96/192")));
    cluster.carry_out();
    cluster.report(20);
    assert_eq!(cluster.pod.status_of().resources, Some(level("250/- 96/192")));
}

#[test]
fn pod_level_resources_that_a_kubelet_sums_up_are_no_new_resize() {
    // A kubelet adds the overhead, and what it reads back of the pod's cgroup may be a little off.
    let pod = pod(containers("100/- 64/-")).level("200/400 128/256").overhead("cpu=50m memory=8Mi");
    let [_, shipped] = both();
    let mut cluster = Cluster::run(pod, shipped);
    let status = cluster.pod.status.as_mut().unwrap();
    status.allocated_resources = level("250/- 136/-").requests;
    status.resources = Some(level("251/400 136/256"));
    assert_eq!(cluster.reading().stage, Stage::Applied);
    assert_eq!(cluster.try_ask(|spec| spec.resources = Some(level("300/400 128/256"))), []);
    assert_eq!(cluster.reading().stage, Stage::Proposed);
}

#[test]
fn a_pod_level_limit_alone_is_proposed_until_the_node_has_decided() {
    let [_, shipped] = both();
    let mut cluster = Cluster::run(pod(containers("100/- 64/-")).level("200/400 128/256"), shipped);
    assert_eq!(cluster.try_ask(|spec| spec.resources = Some(level("200/500 128/256"))), []);
    assert_eq!(cluster.reading().stage, Stage::Proposed);
}

#[test]
fn overhead_is_not_shown_as_what_the_pod_declares() {
    let [kep, _] = both();
    let pod = pod(containers("100/- 64/-")).level("200/400 128/256").overhead("cpu=50m memory=8Mi");
    let cluster = Cluster::run(pod, kep);
    assert_eq!(cluster.pod.status_of().resources, Some(level("200/400 128/256")));
    assert_eq!(cluster.reading().stage, Stage::Applied);
}

#[test]
fn limits_of_zero_are_actual_as_they_are_declared() {
    for (own, shared) in [("0 64/128", "200/400 128/256"), ("- 64/128", "0 128/256")] {
        let [kep, _] = both();
        let cluster = Cluster::run(pod(containers(own)).level(shared), kep);
        assert_eq!(cluster.reading().stage, Stage::Applied, "{own} in {shared}");
    }
}
