//! In which order pods are updated and deleted.

use std::cmp::Reverse;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use plumb_controller_runtime::{adoption, pods};

use super::lifecycle::State;
use crate::api::cloneset::{PriorityStrategy, ScatterTerm};

/// Sorts pods in the order in which they are updated: those that serve least first, then by priority, spread by labels,
/// and before all those that are prepared already. `all` are the pods of the set, those that were updated among them.
pub fn for_update(
    candidates: &mut Vec<Arc<Pod>>,
    all: &[Arc<Pod>],
    priority: &PriorityStrategy,
    scatter: &[ScatterTerm],
) {
    candidates.sort_by_cached_key(|pod| UpdateRank::of(pod));
    if !priority.weight_priority.is_empty() {
        candidates.sort_by_cached_key(|pod| Reverse(weight(priority, pod)));
    } else if !priority.order_priority.is_empty() {
        candidates.sort_by_cached_key(|pod| order(priority, pod));
    }
    let mut terms: Vec<&ScatterTerm> = scatter.iter().collect();
    terms.sort_by_key(|term| Reverse(candidates.iter().filter(|pod| has_label(pod, term)).count()));
    for term in terms {
        scatter_by(term, candidates, all);
    }
    candidates.sort_by_key(|pod| State::of(pod) != State::PreparingUpdate);
}

/// The sort key of pods, field by field, the smaller first: upstream's `ActivePods`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct UpdateRank {
    is_assigned: bool,
    phase: u8,
    is_ready: bool,
    /// The most recently ready first; a missing time counts as newest.
    ready_since: Reverse<Option<Time>>,
    restarts: Reverse<i32>,
    /// The newest first; a missing time counts as newest.
    created: Reverse<Option<Time>>,
    name: String,
}

/// A time, or one that is missing and later than all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Time {
    At(Timestamp),
    Missing,
}

impl UpdateRank {
    fn of(pod: &Pod) -> Self {
        let time = |time: Option<Timestamp>| time.map_or(Time::Missing, Time::At);
        let is_ready = pods::is_ready(pod);
        let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        Self {
            is_assigned: pods::node_of(pod).is_some(),
            phase: match pods::phase(pod) {
                "Pending" => 0,
                "Unknown" => 1,
                _ => 2,
            },
            is_ready,
            ready_since: Reverse(is_ready.then(|| time(pods::ready_since(pod)))),
            restarts: Reverse(containers.map(|container| container.restart_count).max().unwrap_or(0)),
            created: Reverse(Some(time(pod.metadata.creation_timestamp.as_ref().map(|time| time.0)))),
            name: pod.metadata.name.clone().unwrap_or_default(),
        }
    }
}

/// The sum of the weights that match a pod.
fn weight(priority: &PriorityStrategy, pod: &Pod) -> i64 {
    let matching = priority.weight_priority.iter().filter(|term| {
        let selector = adoption::selector(Some(&term.match_selector));
        selector.is_some_and(|selector| adoption::matches(&selector, pod))
    });
    matching.map(|term| i64::from(term.weight)).sum()
}

/// The position of the first key that a pod has (0 if none), and the number at the end of its value.
fn order(priority: &PriorityStrategy, pod: &Pod) -> (usize, Reverse<u64>) {
    let labels = pod.metadata.labels.as_ref();
    let keys = priority.order_priority.iter().enumerate();
    let mut found = keys
        .filter_map(|(i, term)| Some((i + 1, labels?.get(&term.ordered_key).map(|value| number(value))?)));
    found.next().map_or((0, Reverse(0)), |(i, number)| (i, Reverse(number)))
}

/// The number at the end of a text; 0 if there is none, or it is too large.
fn number(text: &str) -> u64 {
    let digits = text.bytes().rev().take_while(u8::is_ascii_digit).count();
    text[text.len() - digits..].parse().unwrap_or(0)
}

fn has_label(pod: &Pod, term: &ScatterTerm) -> bool {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(&term.key)) == Some(&term.value)
}

/// Spreads the pods that have a label evenly over the whole update, of which some pods may be done: of the first `n` pods
/// of the set that are updated, `n` times their share have the label, rounded down.
fn scatter_by(term: &ScatterTerm, candidates: &mut Vec<Arc<Pod>>, all: &[Arc<Pod>]) {
    let total = all.len().max(candidates.len());
    let matching = all.iter().filter(|pod| has_label(pod, term)).count();
    let waiting = candidates.iter().filter(|pod| has_label(pod, term)).count();
    let (mut taken, done) = (matching.saturating_sub(waiting), total - candidates.len());
    let (with, without): (Vec<_>, Vec<_>) =
        std::mem::take(candidates).into_iter().partition(|pod| has_label(pod, term));
    let (mut with, mut without) = (with.into_iter().peekable(), without.into_iter().peekable());
    for position in done + 1..=total {
        let is_due = taken < position * matching / total || without.peek().is_none();
        let next = if is_due && with.peek().is_some() { with.next() } else { without.next() };
        let Some(pod) = next else { break };
        taken += usize::from(has_label(&pod, term));
        candidates.push(pod);
    }
    candidates.extend(with.chain(without));
}

/// Sorts pods in the order in which they are deleted when there are too many: upstream's, except that pods which are not
/// available come before those which are.
pub fn for_deletion(
    pods: &mut [Arc<Pod>],
    related: &[Arc<Pod>],
    is_available: impl Fn(&Pod) -> bool,
    now: Timestamp,
) {
    pods::rank_for_deletion(pods, related, now);
    pods.sort_by_cached_key(|pod| {
        let rank = UpdateRank::of(pod);
        (rank.is_assigned, rank.phase, is_available(pod))
    });
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::{Value, from_value, json};

    use super::*;

    fn pod(name: &str, labels: &Value) -> Arc<Pod> {
        Arc::new(
            from_value(json!({
                "metadata": { "name": name, "labels": labels },
                "spec": { "containers": [], "nodeName": "n" },
                "status": { "phase": "Running", "conditions": [
                    { "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" },
                ] },
            }))
            .unwrap(),
        )
    }

    fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
        pods.iter().map(|pod| pod.metadata.name.as_deref().unwrap()).collect()
    }

    fn sorted(pods: &[Arc<Pod>], priority: Value, scatter: Value) -> Vec<String> {
        let mut candidates = pods.to_vec();
        for_update(
            &mut candidates,
            pods,
            &from_value(priority).unwrap(),
            &from_value::<Vec<_>>(scatter).unwrap(),
        );
        names(&candidates).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn pods_that_serve_least_are_updated_first() {
        let with = |name: &str, change: fn(&mut Pod)| {
            let mut pod = (*pod(name, &json!({}))).clone();
            change(&mut pod);
            Arc::new(pod)
        };
        let set_ready = |pod: &mut Pod, time: &str| {
            let status = pod.status.as_mut().unwrap();
            let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time.parse().unwrap());
            status.conditions.as_mut().unwrap()[0].last_transition_time = Some(time);
        };
        let pods = [
            with("old", |_| {}),
            with("preparing", |pod| {
                let state = State::PreparingUpdate.name().to_owned();
                pod.metadata.labels = Some([(super::super::keys::STATE.to_owned(), state)].into());
            }),
            with("unready", |pod| {
                pod.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = "False".to_owned();
            }),
            with("pending", |pod| pod.status.as_mut().unwrap().phase = Some("Pending".to_owned())),
            with("unassigned", |pod| pod.spec.as_mut().unwrap().node_name = None),
            {
                let mut young = (*pod("young", &json!({}))).clone();
                set_ready(&mut young, "2026-01-02T00:00:00Z");
                Arc::new(young)
            },
        ];
        assert_eq!(
            sorted(&pods, json!({}), json!([])),
            ["preparing", "unassigned", "pending", "unready", "young", "old"]
        );
    }

    #[test]
    fn heavier_pods_are_updated_first() {
        let pods =
            [pod("a", &json!({ "x": "1" })), pod("b", &json!({ "x": "1", "y": "1" })), pod("c", &json!({}))];
        let term = |weight: i32, key: &str| json!({ "weight": weight, "matchSelector": { "matchLabels": { key: "1" } } });
        let priority = |terms: Value| json!({ "weightPriority": terms });
        assert_eq!(sorted(&pods, priority(json!([term(10, "x"), term(5, "y")])), json!([])), ["b", "a", "c"]);
        assert_eq!(sorted(&pods, priority(json!([term(1, "y")])), json!([])), ["b", "a", "c"]);
        assert_eq!(sorted(&pods, priority(json!([])), json!([])), ["a", "b", "c"]);
    }

    #[test]
    fn pods_with_larger_numbers_are_updated_first() {
        let pods = [
            pod("none", &json!({})),
            pod("first-2", &json!({ "one": "web-2" })),
            pod("first-10", &json!({ "one": "web-10", "two": "99" })),
            pod("second", &json!({ "two": "7" })),
            pod("first-text", &json!({ "one": "web" })),
        ];
        let priority = json!({ "orderPriority": [{ "orderedKey": "one" }, { "orderedKey": "two" }] });
        assert_eq!(
            sorted(&pods, priority, json!([])),
            ["none", "first-10", "first-2", "first-text", "second"]
        );
        assert_eq!(
            [number("a12"), number("12"), number("a"), number("99999999999999999999")],
            [12, 12, 0, 0]
        );
    }

    #[test]
    fn pods_with_a_label_are_spread() {
        let labelled = |i: usize| pod(&format!("x{i}"), &json!({ "zone": "a" }));
        let plain = |i: usize| pod(&format!("p{i}"), &json!({}));
        let mut pods: Vec<Arc<Pod>> = (0..2).map(labelled).collect();
        pods.extend((0..4).map(plain));
        let scatter = json!([{ "key": "zone", "value": "a" }]);
        assert_eq!(sorted(&pods, json!({}), scatter), ["p0", "p1", "x0", "p2", "p3", "x1"]);
    }

    #[test]
    fn unavailable_pods_are_deleted_first() {
        let mut pods = vec![pod("a", &json!({})), pod("b", &json!({})), pod("c", &json!({}))];
        let is_available = |pod: &Pod| pod.metadata.name.as_deref() != Some("b");
        for_deletion(&mut pods, &[], is_available, "2026-01-03T00:00:00Z".parse().unwrap());
        assert_eq!(names(&pods)[0], "b");
    }

    fn any_pod() -> impl Strategy<Value = Arc<Pod>> {
        let time = prop_oneof![Just(None), (1_000_i64..1_004).prop_map(Some)];
        ("[a-c]{1,2}", any::<bool>(), any::<bool>(), time.clone(), time, 0..2_i32).prop_map(
            |(name, assigned, ready, since, created, restarts)| {
                let time = |seconds: Option<i64>| seconds.map(|at| Timestamp::from_second(at).unwrap().to_string());
                let status = json!({ "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": restarts });
                let ready = json!({ "type": "Ready", "status": if ready { "True" } else { "False" }, "lastTransitionTime": time(since) });
                Arc::new(
                    from_value(json!({
                        "metadata": { "name": name, "creationTimestamp": time(created) },
                        "spec": { "containers": [], "nodeName": assigned.then_some("n") },
                        "status": { "phase": "Running", "conditions": [ready], "containerStatuses": [status] },
                    }))
                    .unwrap(),
                )
            },
        )
    }

    proptest! {
        #[test]
        fn the_order_of_updates_is_total(pods in vec(any_pod(), 1..6)) {
            let compare = |a: &Arc<Pod>, b: &Arc<Pod>| UpdateRank::of(a).cmp(&UpdateRank::of(b));
            prop_assert_eq!(plumb_testkit::total_order(&pods, compare), Ok(()));
        }

        /// However many pods are updated at a time, and sorted anew each time, the share of labelled pods among those that
        /// were updated is that of the whole set, and no pod is lost.
        #[test]
        fn labelled_pods_are_spread_over_the_whole_update(
            labelled in vec(any::<bool>(), 1..30), batches in vec(1_usize..4, 30),
        ) {
            let all: Vec<Arc<Pod>> = labelled.iter().enumerate().map(|(i, labelled)| {
                pod(&format!("{i:02}"), &if *labelled { json!({ "zone": "a" }) } else { json!({}) })
            }).collect();
            let term = ScatterTerm { key: "zone".to_owned(), value: "a".to_owned() };
            let matching = labelled.iter().filter(|labelled| **labelled).count();
            let (mut waiting, mut done, mut matched) = (all.clone(), 0, 0);
            for batch in batches {
                for_update(&mut waiting, &all, &PriorityStrategy::default(), std::slice::from_ref(&term));
                prop_assert_eq!(waiting.len(), all.len() - done);
                for pod in waiting.drain(..batch.min(waiting.len())) {
                    done += 1;
                    matched += usize::from(has_label(&pod, &term));
                    prop_assert_eq!(matched, done * matching / all.len());
                }
            }
            prop_assert_eq!(done, all.len());
        }
    }
}
