//! What must hold, always and in the end.

use plumb_resize::admission::Verdict;
use plumb_resize::plan::{CgroupState, check};
use plumb_resize::resource::{Amounts, PerResource};
use plumb_resize::status::{PendingReason, PodResizeStatus, Projection};
use stateright::Property;

use super::Protocol;
use super::state::{Newcomer, PodState, State, held};

pub(super) const ALLOCATIONS_FIT: &str = "the allocated resources never exceed the node";
pub(super) const NODE_NOT_OVERCOMMITTED: &str = "the allocated and actual resources never exceed the node";
pub(super) const CONTAINERS_WITHIN_POD: &str = "container limits never exceed the pod's";
const WORDS_LEGAL: &str = "the word changes only as the table says";
const WORD_PRESENT: &str = "there is a word while desired and actual requests differ";
pub(super) const ENDS_WELL: &str =
    "in the end the latest desired state is actual, or pending for a reason that holds";

pub(super) fn all(protocol: &Protocol) -> Vec<Property<Protocol>> {
    let mut properties = vec![
        Property::always(ALLOCATIONS_FIT, |protocol: &Protocol, state: &State| {
            let allocated = total(protocol, state, |protocol, state, pod| {
                protocol.pods[pod].shape.requests(&state.pods[pod].allocation.allocated)
            });
            allocated.within(protocol.allocatable)
        }),
        Property::always(NODE_NOT_OVERCOMMITTED, |protocol: &Protocol, state: &State| {
            let held = total(protocol, state, |protocol, state, pod| {
                let (shape, entry) = (&protocol.pods[pod].shape, &state.pods[pod]);
                let allocated = shape.requests(&entry.allocation.allocated);
                allocated.larger(held(shape, &entry.truth))
            });
            held.within(protocol.allocatable)
        }),
        Property::always(CONTAINERS_WITHIN_POD, |_: &Protocol, state: &State| {
            state.pods.iter().all(|pod| check(&pod.truth, PerResource::default()).is_ok())
        }),
        Property::always(WORDS_LEGAL, |_: &Protocol, state: &State| !state.illegal_word),
        Property::always(ENDS_WELL, |protocol: &Protocol, state: &State| {
            !protocol.nothing_left_to_do(state)
                || (0..state.pods.len()).all(|pod| ended_well(protocol, state, pod))
        }),
    ];
    if protocol.pods.len() > 1 {
        properties.push(Property::sometimes(
            "a resize is deferred and then taken",
            |_: &Protocol, state: &State| {
                let taken = |pod: &PodState| pod.allocation.generation == pod.generation;
                state.pods.iter().any(|pod| shows_deferred(&pod.shown) && taken(pod))
            },
        ));
    }
    if protocol.growths > 0 {
        properties.push(Property::always(
            "only users set a limit above the maximum of growth",
            |protocol: &Protocol, state: &State| {
                let has_acted = state.resizes < protocol.resizes;
                has_acted || (0..state.pods.len()).all(|pod| within_bounds(protocol, state, pod))
            },
        ));
        properties.push(Property::sometimes(
            "a growth by the node is actual, and the resize of a user too",
            |protocol: &Protocol, state: &State| {
                let settled = |pod: &PodState| pod.allocation.generation == pod.generation;
                let both = state.growths == 0 && state.resizes < protocol.resizes;
                both && protocol.nothing_left_to_do(state) && state.pods.iter().all(settled)
            },
        ));
    }
    if protocol.pods.iter().any(|pod| pod.holder.is_some()) {
        properties.push(Property::sometimes(
            "a container runs with less than it is allocated, and the error is shown",
            |protocol: &Protocol, state: &State| {
                let shows_error = |pod: &PodState| shown_error(&pod.shown).is_some();
                protocol.nothing_left_to_do(state) && state.pods.iter().any(shows_error)
            },
        ));
    }
    if protocol.rules.publish_resize_status {
        properties.push(Property::always(WORD_PRESENT, |protocol: &Protocol, state: &State| {
            (0..state.pods.len()).all(|pod| {
                let desired = &protocol.pods[pod].choices[state.pods[pod].desired];
                let shown = &state.pods[pod].shown;
                let requests_differ = desired
                    .containers
                    .iter()
                    .zip(&shown.actual.containers)
                    .any(|(a, b)| a.requests != b.requests);
                !requests_differ || shown.resize_status.is_some()
            })
        }));
    }
    if protocol.resizes > 2 {
        properties.push(Property::sometimes(
            "a resize is carried out while a newer one is deferred",
            |_: &Protocol, state: &State| {
                state.pods.iter().any(|pod| pod.shown.pending.is_some() && pod.shown.in_progress.is_some())
            },
        ));
    }
    if protocol.newcomer.is_some() {
        properties.push(Property::sometimes("a new pod gets in", |_: &Protocol, state: &State| {
            state.newcomer == Newcomer::Running
        }));
        properties.push(Property::sometimes("a new pod loses the race", |_: &Protocol, state: &State| {
            state.newcomer == Newcomer::Rejected
        }));
    }
    properties
}

fn total(
    protocol: &Protocol,
    state: &State,
    amounts: impl Fn(&Protocol, &State, usize) -> Amounts,
) -> Amounts {
    let newcomer = protocol.newcomer.filter(|_| state.newcomer == Newcomer::Running);
    let start = newcomer.unwrap_or(Amounts::ZERO);
    (0..state.pods.len()).fold(start, |sum, pod| sum.plus(amounts(protocol, state, pod)))
}

fn ended_well(protocol: &Protocol, state: &State, pod: usize) -> bool {
    let (model, entry) = (&protocol.pods[pod], &state.pods[pod]);
    let desired = &model.choices[entry.desired];
    let allocated = &entry.allocation.allocated;
    let cgroups = CgroupState::running(&model.shape, allocated);
    let allocation_is_actual = entry.truth == cgroups && entry.shown.actual == *allocated;
    let shown_as_allocated = entry.shown.allocated == *allocated && entry.shown.in_progress.is_none();
    // A container that holds memory keeps the resize in progress, but every container runs, and the error is shown.
    let kept_from_it = entry.allocation.error.is_some()
        && entry.truth.containers.iter().all(Option::is_some)
        && shown_error(&entry.shown) == entry.allocation.error.as_deref();
    let kept_from_it = model.holder.is_some() && kept_from_it;
    let answered = if desired == allocated {
        let word = if kept_from_it && protocol.rules.publish_resize_status {
            Some(PodResizeStatus::InProgress)
        } else {
            None
        };
        entry.shown.pending.is_none() && entry.shown.resize_status == word
    } else {
        // Refused, for a reason that still stands, and said so about the latest generation.
        let reason = match protocol.verdict(state, pod) {
            Some(Verdict::Deferred(_)) => Some(PendingReason::Deferred),
            Some(Verdict::Infeasible(_)) => Some(PendingReason::Infeasible),
            Some(Verdict::Fits) | None => None,
        };
        let shown = entry.shown.pending.as_ref();
        reason.is_some()
            && shown.map(|pending| pending.reason) == reason
            && shown.is_some_and(|pending| pending.generation == entry.generation)
    };
    let settled = allocation_is_actual && shown_as_allocated;
    (settled || kept_from_it) && answered
}

fn shown_error(shown: &Projection) -> Option<&str> {
    shown.in_progress.as_ref()?.error.as_deref()
}

fn shows_deferred(shown: &Projection) -> bool {
    shown.pending.as_ref().is_some_and(|pending| pending.reason == PendingReason::Deferred)
}

/// Whether the desired limits of a pod are within the bounds of its growth.
fn within_bounds(protocol: &Protocol, state: &State, pod: usize) -> bool {
    let model = &protocol.pods[pod];
    let desired = &model.choices[state.pods[pod].desired];
    model.shape.containers.iter().zip(&desired.containers).all(|(part, wanted)| {
        model.bounds.all(|resource, bounds| {
            let maximum = bounds.as_ref().and_then(|bounds| bounds.maximum(&part.name));
            maximum.is_none_or(|maximum| wanted.limits[resource].is_some_and(|limit| limit <= maximum))
        })
    })
}
