//! When a pod is evicted because of the taints of its node.

use k8s_openapi::api::core::v1::{Pod, Taint, Toleration};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::workload::pods;

/// When a pod is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// Not at all.
    Never,
    /// At this time.
    At(Timestamp),
}

/// Whether a pod tolerates a taint.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let effect = text(&toleration.effect);
    let key = text(&toleration.key);
    if !effect.is_empty() && effect != taint.effect || !key.is_empty() && key != taint.key {
        return false;
    }
    match toleration.operator.as_deref() {
        Some("Exists") => true,
        None | Some("" | "Equal") => text(&toleration.value) == text(&taint.value),
        Some(_) => false,
    }
}

/// The taints that evict pods.
pub fn no_execute(taints: &[Taint]) -> impl Iterator<Item = &Taint> {
    taints.iter().filter(|taint| taint.effect == "NoExecute")
}

/// When taints without `timeAdded` were first observed on a node.
#[derive(Clone, Debug, Default)]
pub struct FirstObserved(Vec<(Taint, Timestamp)>);

impl FirstObserved {
    /// Records the taints that a node has now, and drops those that it no longer has.
    pub fn note(&mut self, taints: &[Taint], now: Timestamp) {
        let untimed = no_execute(taints).filter(|taint| taint.time_added.is_none());
        self.0 = untimed.map(|taint| (taint.clone(), self.observed_at(taint).unwrap_or(now))).collect();
    }

    fn observed_at(&self, taint: &Taint) -> Option<Timestamp> {
        self.0.iter().find(|(observed, _)| observed == taint).map(|(_, when)| *when)
    }
}

/// When a pod was bound to its node.
fn bound_at(pod: &Pod) -> Option<Timestamp> {
    let scheduled = pods::condition(pod, "PodScheduled").filter(|scheduled| scheduled.status == "True");
    let started = || pod.status.as_ref()?.start_time.as_ref();
    scheduled
        .and_then(|scheduled| scheduled.last_transition_time.as_ref())
        .or_else(started)
        .map(|time| time.0)
}

/// When a pod is evicted from a node with these taints: at once if it does not tolerate one of them, and otherwise when the
/// first of its `tolerationSeconds` is over. They begin with the taint, or with the binding of the pod if that was later.
pub fn evicted(pod: &Pod, taints: &[Taint], first_observed: &FirstObserved, now: Timestamp) -> Evicted {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let mut until = Evicted::Never;
    for taint in no_execute(taints) {
        // As in upstream's `GetMatchingTolerations`, the first matching toleration of a taint counts.
        let Some(toleration) = tolerations.iter().find(|toleration| tolerates(toleration, taint)) else {
            return Evicted::At(now);
        };
        let Some(seconds) = toleration.toleration_seconds else { continue };
        let added = taint.time_added.as_ref().map(|time| time.0);
        let since = added.or_else(|| first_observed.observed_at(taint)).unwrap_or(now);
        let since = bound_at(pod).map_or(since, |bound| bound.max(since));
        let end = since.checked_add(SignedDuration::from_secs(seconds.max(0))).unwrap_or(Timestamp::MAX);
        until = match until {
            Evicted::At(first) if first <= end => until,
            _ => Evicted::At(end),
        };
    }
    until
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_pod_is_evicted_when_it_no_longer_tolerates_all_taints() {
        let now = Timestamp::from_second(100).unwrap();
        let at = |second| Evicted::At(Timestamp::from_second(second).unwrap());
        let taint =
            |key: &str| json!({ "key": key, "effect": "NoExecute", "timeAdded": "1970-01-01T00:00:50Z" });
        let tolerate = |key: &str, seconds: Option<i64>| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds });
        let table: [(Vec<Value>, Vec<Value>, Evicted); 9] = [
            (vec![], vec![], Evicted::Never),
            (vec![json!({ "key": "a", "effect": "NoSchedule" })], vec![], Evicted::Never),
            (vec![taint("a")], vec![], at(100)),
            (vec![taint("a")], vec![tolerate("a", None)], Evicted::Never),
            (vec![taint("a")], vec![tolerate("a", Some(300))], at(350)),
            (vec![taint("a"), taint("b")], vec![tolerate("a", Some(300)), tolerate("b", Some(70))], at(120)),
            (vec![taint("a"), taint("b")], vec![tolerate("a", Some(300))], at(100)),
            // As upstream: of several tolerations of one taint the first counts.
            (vec![taint("a")], vec![tolerate("a", Some(300)), tolerate("a", Some(30))], at(350)),
            (vec![taint("a")], vec![tolerate("a", None), tolerate("a", Some(30))], Evicted::Never),
        ];
        for (taints, tolerations, wanted) in table {
            let pod =
                serde_json::from_value(json!({ "spec": { "containers": [], "tolerations": tolerations } }));
            let taints: Vec<Taint> = serde_json::from_value(json!(taints)).unwrap();
            let first_observed = FirstObserved::default();
            assert_eq!(
                evicted(&pod.unwrap(), &taints, &first_observed, now),
                wanted,
                "{taints:?} {tolerations:?}"
            );
        }
    }

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn tolerant(status: Value) -> Pod {
        let toleration = json!({ "key": "a", "operator": "Exists", "tolerationSeconds": 30 });
        let pod = json!({ "spec": { "containers": [], "tolerations": [toleration] }, "status": status });
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_taint_without_a_time_is_tolerated_from_when_it_was_first_observed() {
        let taint = |value: &str| Taint {
            key: "a".into(),
            value: Some(value.into()),
            effect: "NoExecute".into(),
            time_added: None,
        };
        let pod = tolerant(json!({}));
        let mut first_observed = FirstObserved::default();
        for now in [100, 110, 130] {
            first_observed.note(&[taint("x")], second(now));
            let left = evicted(&pod, &[taint("x")], &first_observed, second(now));
            assert_eq!(left, Evicted::At(second(130)), "at {now}");
        }
        // A taint that was removed and added again is a new one, and so is one of another value.
        first_observed.note(&[], second(140));
        first_observed.note(&[taint("x")], second(150));
        assert_eq!(evicted(&pod, &[taint("x")], &first_observed, second(151)), Evicted::At(second(180)));
        first_observed.note(&[taint("y")], second(160));
        assert_eq!(evicted(&pod, &[taint("y")], &first_observed, second(161)), Evicted::At(second(190)));
    }

    #[test]
    fn a_pod_that_is_bound_to_a_tainted_node_stays_for_its_toleration_seconds() {
        let taint: Taint = serde_json::from_value(
            json!({ "key": "a", "effect": "NoExecute", "timeAdded": "1970-01-01T00:00:50Z" }),
        )
        .unwrap();
        let scheduled = json!({ "conditions": [{ "type": "PodScheduled", "status": "True", "lastTransitionTime": "1970-01-01T00:10:00Z" }] });
        let left = |status: Value| {
            evicted(&tolerant(status), std::slice::from_ref(&taint), &FirstObserved::default(), second(610))
        };
        assert_eq!(left(scheduled), Evicted::At(second(630)));
        assert_eq!(left(json!({ "startTime": "1970-01-01T00:10:05Z" })), Evicted::At(second(635)));
        assert_eq!(left(json!({ "startTime": "1970-01-01T00:00:05Z" })), Evicted::At(second(80)));
    }
}
