//! The word that the API server writes when a change is stored.

use k8s_openapi::api::core::v1::Pod;
use plumb_resize::rules::Rules;
use plumb_resize::status::propose;

use super::super::cluster::{Cluster, set_sizes};
use super::super::pods::PodExt;
use super::super::sizes::{PodSizes, containers, size, wire};
use super::{cluster, pod};

fn proposed(cluster: &Cluster, new: &Pod) -> Option<String> {
    let mut new = new.clone();
    propose(&cluster.pod, &mut new, &cluster.rules).unwrap();
    new.status.and_then(|status| status.resize)
}

#[test]
fn any_change_of_resources_is_proposed() {
    let cluster = cluster(Rules::kep());
    for (name, desired) in [
        ("a request", "150/200 64/128"),
        ("a limit alone", "100/250 64/128"),
        ("less", "50/100 32/64"),
        ("memory", "100/200 96/128"),
    ] {
        let new = cluster.pod.respec(|spec| set_sizes(spec, desired));
        assert_eq!(proposed(&cluster, &new).as_deref(), Some("Proposed"), "{name}");
    }
}

#[test]
fn a_change_of_other_fields_leaves_the_resize_status_unchanged() {
    let mut cluster = cluster(Rules::kep());
    let image = |pod: &Pod| pod.respec(|spec| spec.containers[0].image = Some("plumb/load:2".to_owned()));
    assert_eq!(proposed(&cluster, &image(&cluster.pod)), None);
    cluster.ask("100000/100000 64/128");
    cluster.decide();
    cluster.report(10);
    assert_eq!(proposed(&cluster, &image(&cluster.pod)).as_deref(), Some("Infeasible"));
    let spelled = cluster.pod.respec(|spec| set_sizes(spec, "100000/100000 64/128"));
    assert_eq!(proposed(&cluster, &spelled).as_deref(), Some("Infeasible"), "the same amounts");
}

#[test]
fn without_the_rule_no_resize_status_is_written() {
    let cluster = cluster(Rules::v1_36());
    let new = cluster.pod.respec(|spec| set_sizes(spec, "150/200 64/128"));
    assert_eq!(proposed(&cluster, &new), None);
}

#[test]
fn going_back_is_a_proposal_like_any_other_and_the_node_ends_it() {
    // The API server does not know what its node is about to take; only the node can say that it is over.
    let table = [
        ("nothing was decided yet", "150/200 64/128", false),
        ("requests are on their way", "150/200 64/128", true),
        ("limits are on their way, and the status does not tell which", "100/300 64/128", true),
        ("refused", "100000/100000 64/128", true),
    ];
    for (name, desired, decided) in table {
        let mut cluster = cluster(Rules::kep());
        cluster.ask(desired);
        if decided {
            cluster.decide();
            cluster.report(10);
        }
        cluster.ask("100/200 64/128");
        assert_eq!(cluster.word(), Some("Proposed"), "{name}");
        cluster.decide();
        cluster.report(20);
        assert_eq!(cluster.word(), None, "{name}: nothing had been carried out");
    }
}

#[test]
fn going_back_to_what_is_allocated_but_not_actual_is_in_progress() {
    let mut cluster = cluster(Rules::kep());
    cluster.neighbour(2_000);
    cluster.ask("150/200 64/128");
    cluster.decide();
    cluster.ask("3000/3000 64/128");
    cluster.decide();
    cluster.report(10);
    assert_eq!(cluster.word(), Some("Deferred"));
    cluster.ask("150/200 64/128");
    assert_eq!(cluster.word(), Some("Proposed"));
    cluster.decide();
    cluster.report(20);
    assert_eq!(cluster.word(), Some("InProgress"));
}

#[test]
fn resources_of_the_pod_as_a_whole_are_proposed_too() {
    for level in ["300/400 128/256", "200/500 128/256"] {
        let pod = pod(containers("100/- 64/-")).level("200/400 128/256");
        let mut cluster = Cluster::run(pod, Rules::kep());
        assert_eq!(cluster.word(), None);
        assert_eq!(cluster.try_ask(|spec| spec.resources = Some(wire(size(level)))), []);
        assert_eq!(cluster.word(), Some("Proposed"), "{level}");
    }
}

#[test]
fn a_pod_that_no_node_has_reported_on_is_proposed() {
    let mut cluster = cluster(Rules::kep());
    cluster.pod.status = None;
    let new = cluster.pod.respec(|spec| set_sizes(spec, "150/200 64/128"));
    assert_eq!(proposed(&cluster, &new).as_deref(), Some("Proposed"));
}
