//! What a node shows is what any client reads.

use k8s_openapi::api::core::v1::Pod;
use plumb_resize::pod::PodResources;
use plumb_resize::resource::{Declared, Requirements};
use plumb_resize::rules::Rules;
use plumb_resize::status::{Allocation, Pending, PendingReason, PodResizeStatus, Stage, project, read};
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::cluster::at;
use super::super::pods::{PodExt, container, pod};
use super::super::sizes::wire;
use super::requirements;

/// The values of a pod: each declares at most what the one before it does, as a limit that is being added is
/// desired first, then allocated, then actual.
fn values() -> impl Strategy<Value = (PodResources, PodResources, PodResources)> {
    let three = || {
        (requirements(), requirements(), requirements()).prop_map(|(desired, allocated, actual)| {
            let allocated = declared_by(desired, allocated);
            (desired, allocated, declared_by(allocated, actual))
        })
    };
    // Often enough nothing differs.
    let three = prop_oneof![3 => three(), 2 => requirements().prop_map(|same| (same, same, same))];
    (vec(three.clone(), 1..4), prop::option::of(three)).prop_map(|(containers, pod)| {
        let pick = |value: fn(&(Requirements, Requirements, Requirements)) -> Requirements| PodResources {
            containers: containers.iter().map(value).collect(),
            pod: pod.as_ref().map(value),
        };
        (pick(|three| three.0), pick(|three| three.1), pick(|three| three.2))
    })
}

/// `size`, of what `by` declares.
fn declared_by(by: Requirements, size: Requirements) -> Requirements {
    let of = |by: Declared, size: Declared| Declared::of(|r| by[r].and(size[r]));
    Requirements { requests: of(by.requests, size.requests), limits: of(by.limits, size.limits) }
}

/// What a node knows of a pod once it has observed the spec: pending if the desired resources are not allocated.
fn allocations() -> impl Strategy<Value = (Allocation, PodResources, PodResources)> {
    let pending = ("[a-z ]{0,8}", any::<bool>(), 2i64..9);
    let error = prop_oneof![3 => Just(None), 1 => "[a-z ]{0,8}".prop_map(Some)];
    (values(), pending, error).prop_map(
        |((desired, allocated, actual), (message, never, generation), error)| {
            let reason = if never { PendingReason::Infeasible } else { PendingReason::Deferred };
            let pending = (desired != allocated).then_some(Pending { reason, message, generation });
            (Allocation { pending, error, ..Allocation::new(allocated, 1) }, desired, actual)
        },
    )
}

fn rules() -> impl Strategy<Value = Rules> {
    prop_oneof![Just(Rules::kep()), Just(Rules::v1_36())]
}

/// A pod that wants this, with nothing shown of a resize yet.
fn wanting(desired: &PodResources, generation: i64) -> Pod {
    let named = |(i, size): (usize, &Requirements)| {
        let mut container = container(&format!("c{i}"), "", "");
        container.resources = Some(wire(*size));
        container
    };
    let mut pod = pod(desired.containers.iter().enumerate().map(named)).running();
    pod.spec.as_mut().unwrap().resources = desired.pod.map(wire);
    pod.metadata.generation = Some(generation);
    pod
}

proptest! {
    #[test]
    fn a_reported_status_is_read_back((allocation, desired, actual) in allocations(), rules in rules()) {
        let generation = allocation.pending.as_ref().map_or(7, |pending| pending.generation);
        let projection = project(&allocation, &desired, generation, &actual, &rules);
        let mut pod = wanting(&desired, generation);
        let spec = pod.spec.clone().unwrap();
        projection.publish(&spec, pod.status.as_mut().unwrap(), &at(0));
        let reading = read(&pod).unwrap();

        prop_assert_eq!(&reading.pending, &projection.pending);
        prop_assert_eq!(&reading.in_progress, &projection.in_progress);
        prop_assert_eq!(reading.resize_status, projection.resize_status);
        let shown: Vec<Requirements> =
            reading.containers.iter().map(|container| container.values.actual.unwrap()).collect();
        prop_assert_eq!(&shown, &projection.actual.containers);
        for (container, allocated) in reading.containers.iter().zip(&projection.allocated.containers) {
            prop_assert_eq!(container.values.allocated.unwrap_or_default(), allocated.requests);
        }
        prop_assert_eq!(reading.pod.and_then(|pod| pod.actual), projection.actual.pod);
        prop_assert_eq!(
            reading.pod.and_then(|pod| pod.allocated), projection.allocated.pod.map(|pod| pod.requests)
        );
        prop_assert_eq!(pod.status_of().observed_generation, Some(generation));

        // And the stage is the one that the node meant, with or without a word for it.
        let expected = match (&allocation.pending, &projection.in_progress) {
            (Some(Pending { reason: PendingReason::Infeasible, message, .. }), _) => {
                Stage::Infeasible { message: message.clone() }
            }
            (Some(Pending { reason: PendingReason::Deferred, message, .. }), _) => {
                Stage::Deferred { message: message.clone() }
            }
            (None, Some(progress)) => match &progress.error {
                Some(message) => Stage::Failing { message: message.clone() },
                None => Stage::InProgress,
            },
            (None, None) => Stage::Applied,
        };
        prop_assert_eq!(reading.stage, expected);
    }

    #[test]
    fn publishing_twice_changes_nothing_but_the_time_of_looking(
        (allocation, desired, actual) in allocations(), rules in rules(),
    ) {
        let projection = project(&allocation, &desired, 9, &actual, &rules);
        let mut pod = wanting(&desired, 9);
        let spec = pod.spec.clone().unwrap();
        projection.publish(&spec, pod.status.as_mut().unwrap(), &at(0));
        let once = pod.clone();
        projection.publish(&spec, pod.status.as_mut().unwrap(), &at(60));
        for condition in pod.status.as_mut().unwrap().conditions.iter_mut().flatten() {
            prop_assert_eq!(condition.last_probe_time.replace(at(0)), Some(at(60)));
        }
        prop_assert_eq!(pod, once);
    }

    #[test]
    fn the_resize_status_is_set_as_long_as_anything_desired_is_not_actual(
        (desired, allocated, actual) in values(), refused in prop::option::of(any::<bool>()),
    ) {
        let pending = refused.filter(|_| desired != allocated).map(|never| Pending {
            reason: if never { PendingReason::Infeasible } else { PendingReason::Deferred },
            message: String::new(),
            generation: 2,
        });
        let allocation = Allocation { pending, ..Allocation::new(allocated.clone(), 1) };
        let word = project(&allocation, &desired, 2, &actual, &Rules::kep()).resize_status;
        prop_assert_eq!(word.is_none(), desired == actual && desired == allocated);
        prop_assert_eq!(word == Some(PodResizeStatus::InProgress), desired == allocated && desired != actual);
    }

    #[test]
    fn an_unknown_resize_status_reads_as_deferred(word in "[A-Za-z]{1,12}") {
        prop_assume!(!["Proposed", "InProgress", "Infeasible"].contains(&word.as_str()));
        let mut pod = wanting(&PodResources::default(), 1);
        pod.status.as_mut().unwrap().resize = Some(word);
        let reading = read(&pod).unwrap();
        prop_assert_eq!(reading.resize_status, Some(PodResizeStatus::Deferred));
        let is_deferred = matches!(reading.stage, Stage::Deferred { .. });
        prop_assert!(is_deferred);
    }
}
