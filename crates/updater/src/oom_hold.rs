//! What recent OOM kills hold back: a recommendation from before a kill is not applied after it.
//!
//! A kill reaches the updater and the recommender at the same time, so that the updater may decide before the recommender has
//! counted the kill. A quick OOM kill makes a pod one to update, and without this it would be updated to what was recommended
//! before: to less memory than it was killed with, within the new bounds, so that it would stay there.
//!
//! ```text
//!   a kill of the last two minutes that is not counted ──▶ the pod waits; no pod of the VPA gets less memory
//!   a kill of the last day                             ──▶ the pod does not get less memory: in place memory stays as it is,
//!                                                          and it is not evicted, since the new pod would get less
//! ```
//!
//! The recommender counts a kill as the memory peak of a window, which is a day by default: after it the recommendation is
//! about usage from after the kill.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::decide::Subject;
use crate::state::{ContainerRecommendation, ContainerState, PodState, Recommendation};

/// How long an update waits for the recommender to count a kill: two of its default intervals. A recommender that does not
/// report which kills it has counted is not waited for any longer than this.
pub const COUNTED_WITHIN: SignedDuration = SignedDuration::from_mins(2);
/// For how long after a kill a pod does not get less memory: the recommender's default memory aggregation interval.
pub const NO_DECREASE_WITHIN: SignedDuration = SignedDuration::from_hours(24);
/// The recommender's default `--oom-min-bump-up-bytes`.
const MIN_BUMP_UP_BYTES: i64 = 100 << 20;

/// What OOM kills hold back for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomHold {
    /// Until when the pod is not updated at all, because the recommender has not counted a kill of it yet.
    pub uncounted_until: Option<Timestamp>,
    /// Until when the pod is not evicted, because the recommendation has less memory than the pod has.
    pub decrease_until: Option<Timestamp>,
}

/// Holds the recommendations for the pods of a VPA back, as recent OOM kills require. `counted_until` is up to when the
/// recommender has counted kills, if it reports that.
pub fn hold(subjects: &mut [Subject], counted_until: Option<Timestamp>, now: Timestamp) {
    // The containers with a kill that is not counted, and when the last of them is not waited for any longer.
    let mut uncounted: BTreeSet<Box<str>> = BTreeSet::new();
    let mut last: Option<Timestamp> = None;
    for subject in subjects.iter().filter(|subject| subject.pod.is_live()) {
        for (container, until) in uncounted_kills(subject, counted_until, now) {
            uncounted.insert(container.into());
            last = last.max(Some(until));
        }
    }
    for subject in subjects {
        let own = uncounted_kills(subject, counted_until, now).map(|(_, until)| until).max();
        let no_decrease_until = |container: &ContainerState| {
            let own = container.oom_kill.and_then(|kill| within(kill.killed, NO_DECREASE_WITHIN, now));
            own.max(last.filter(|_| uncounted.contains(&*container.name)))
        };
        let (recommendation, decrease_until) = without_decreases(subject, no_decrease_until);
        if let Some(recommendation) = recommendation {
            subject.recommendation = Some(Arc::new(recommendation));
        }
        subject.oom_hold = (own.is_some() || decrease_until.is_some())
            .then_some(OomHold { uncounted_until: own, decrease_until });
    }
}

/// The containers of a pod with a kill that the recommender has not counted, and until when that is waited for.
fn uncounted_kills(
    subject: &Subject,
    counted_until: Option<Timestamp>,
    now: Timestamp,
) -> impl Iterator<Item = (&str, Timestamp)> {
    let pod = &*subject.pod;
    let recommendation = subject.recommendation.as_deref();
    pod.containers.iter().filter_map(move |container| {
        let wanted = recommendation?.get(&container.name)?;
        let until = within(container.oom_kill?.killed, COUNTED_WITHIN, now)?;
        let is_counted = counted_until >= Some(container.oom_kill?.killed)
            || is_raised(pod, container, wanted, counted_until.is_some())
            || wanted.target.memory.is_none();
        (!is_counted).then_some((container.name.as_str(), until))
    })
}

/// Whether a recommendation has at least as much memory as a recommender with the default settings gives a container with
/// these requests after a kill, so that it has counted one. If the recommender does not report which kills it has counted, any
/// increase is taken for that: under a `maxAllowed` a recommendation may never rise by as much, and a container that is killed
/// more often than every two minutes would not get more memory.
fn is_raised(
    pod: &PodState,
    container: &ContainerState,
    wanted: &ContainerRecommendation,
    is_reported: bool,
) -> bool {
    let Some(request) = container.current(&pod.stage).requests.memory else { return true };
    if !is_reported {
        return wanted.target.memory.is_some_and(|target| target > request);
    }
    let bumped = request.saturating_add(MIN_BUMP_UP_BYTES).max(request.saturating_add(request / 5));
    wanted.target.memory.is_some_and(|target| target >= bumped)
}

/// The end of a period after a kill, unless that is over. A node's clock may be ahead, by as much as the period.
fn within(killed: Timestamp, period: SignedDuration, now: Timestamp) -> Option<Timestamp> {
    let until = killed.checked_add(period).ok()?;
    (now < until && killed.duration_since(now) < period).then_some(until)
}

/// The recommendation for a pod without the decreases of memory that are held back, and until when the last of them is; none
/// if it has no such decrease.
fn without_decreases(
    subject: &Subject,
    no_decrease_until: impl Fn(&ContainerState) -> Option<Timestamp>,
) -> (Option<Recommendation>, Option<Timestamp>) {
    let pod = &*subject.pod;
    let Some(recommendation) = subject.recommendation.as_deref() else { return (None, None) };
    let mut held: Option<(Recommendation, Timestamp)> = None;
    for container in &pod.containers {
        let Some(until) = no_decrease_until(container) else { continue };
        let Some(index) = recommendation.containers.iter().position(|one| one.name == container.name) else {
            continue;
        };
        // While a resize is not applied, the container has what the node reports, and may have been killed with that.
        let has = container.current(&pod.stage);
        let wanted = &recommendation.containers[index];
        let is_lower =
            |wanted: Option<i64>, has: Option<i64>| wanted.is_some_and(|wanted| Some(wanted) < has);
        if !is_lower(wanted.target.memory, has.requests.memory)
            && !is_lower(wanted.limits.memory, has.limits.memory)
        {
            continue;
        }
        let (kept, last) = held.get_or_insert_with(|| (recommendation.clone(), until));
        *last = until.max(*last);
        let kept = &mut kept.containers[index];
        let at_least = |wanted: Option<i64>, has: Option<i64>| {
            wanted.map(|wanted| has.map_or(wanted, |has| wanted.max(has)))
        };
        kept.target.memory = at_least(kept.target.memory, has.requests.memory);
        kept.limits.memory = at_least(kept.limits.memory, has.limits.memory);
        // What the container has is not outside of the range.
        kept.upper.memory = kept.upper.memory.max(kept.target.memory).filter(|_| kept.upper.memory.is_some());
    }
    held.map_or((None, None), |(recommendation, until)| (Some(recommendation), Some(until)))
}
