//! What is forgotten when.

use plumb_recommender::{ContainerPolicy, ResourcePolicy, VpaSettings};

use super::super::{DAY, HOUR, MINUTE, cpu, memory};
use super::{Bed, bed, equals, vpa};

const APP: &[(&str, &str)] = &[("app", "x")];

fn aggregates_after_garbage(bed: &mut Bed) -> usize {
    bed.cluster.collect_garbage();
    bed.cluster.size().aggregates
}

#[test]
fn an_aggregate_expires_eight_days_after_its_last_sample() {
    let mut bed = bed();
    bed.vpa("v", APP);
    bed.pod("p", APP);
    bed.sample("p", cpu(0, 100)).unwrap();
    bed.pass(8 * DAY - 1);
    assert_eq!((aggregates_after_garbage(&mut bed), bed.target("v").as_str()), (1, "126m/250Mi"));
    bed.pass(1);
    assert_eq!((aggregates_after_garbage(&mut bed), bed.target("v").as_str()), (0, ""));

    // The pod is still there: its next sample starts anew.
    bed.sample("p", cpu(8 * DAY, 100)).unwrap();
    assert_eq!((aggregates_after_garbage(&mut bed), bed.samples_of("v")), (1, 1));
}

#[test]
fn an_aggregate_without_samples_expires_eight_days_after_it_was_made() {
    let mut bed = bed();
    bed.vpa("v", APP);
    bed.pod("p", APP);
    bed.pass(MINUTE);
    assert_eq!(aggregates_after_garbage(&mut bed), 1);
    bed.pass(8 * DAY);
    assert_eq!(aggregates_after_garbage(&mut bed), 0);
}

#[test]
fn only_cpu_samples_count_as_samples() {
    let mut bed = bed();
    bed.vpa("v", APP);
    bed.pod("p", APP);
    bed.sample("p", memory(7 * DAY, 1 << 30)).unwrap_err();
    bed.pass(7 * DAY);
    bed.sample("p", memory(7 * DAY, 1 << 30)).unwrap();
    bed.pass(DAY);
    assert_eq!(aggregates_after_garbage(&mut bed), 0);
}

#[test]
fn a_policy_shortens_the_window() {
    let mut bed = bed();
    let mut policy = ContainerPolicy::new("*");
    policy.memory_interval_count = Some(4);
    let mut update = vpa("v", equals(APP));
    update.settings =
        VpaSettings { policy: ResourcePolicy { containers: vec![policy] }, ..VpaSettings::default() };
    bed.cluster.apply_vpa(update);
    bed.pod("p", APP);
    bed.sample("p", cpu(0, 100)).unwrap();
    bed.pass(4 * DAY - HOUR);
    assert_eq!(aggregates_after_garbage(&mut bed), 1);
    bed.pass(HOUR);
    assert_eq!(aggregates_after_garbage(&mut bed), 0);
}

#[test]
fn an_aggregate_without_samples_is_deleted_with_its_pods_unless_their_controller_exists() {
    for (active, target_exists, left) in
        [(true, false, 1), (false, true, 1), (true, true, 1), (false, false, 0)]
    {
        let mut bed = bed();
        let mut update = vpa("v", equals(APP));
        update.target_exists = target_exists;
        bed.cluster.apply_vpa(update);
        bed.pod_with("p", APP, &["app"], active);
        assert_eq!(
            aggregates_after_garbage(&mut bed),
            left,
            "active: {active}, target exists: {target_exists}"
        );
        // With a sample it stays in any case.
        bed.pod_with("p", APP, &["app"], true);
        bed.sample("p", cpu(0, 1)).unwrap();
        bed.pod_with("p", APP, &["app"], active);
        assert_eq!(aggregates_after_garbage(&mut bed), 1);
    }
    let mut bed = bed();
    bed.pod("p", APP);
    bed.delete_pod("p");
    assert_eq!(aggregates_after_garbage(&mut bed), 0);
}
