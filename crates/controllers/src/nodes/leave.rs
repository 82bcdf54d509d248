//! When a pod has to leave its node because of the node's taints.

use k8s_openapi::api::core::v1::{Pod, Taint, Toleration};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// When a pod has to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// Not at all.
    Never,
    /// At this time.
    At(Timestamp),
}

/// Whether a pod tolerates a taint.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (effect, key) = (text(&toleration.effect), text(&toleration.key));
    if !effect.is_empty() && effect != taint.effect || !key.is_empty() && key != taint.key {
        return false;
    }
    match toleration.operator.as_deref() {
        Some("Exists") => true,
        None | Some("" | "Equal") => text(&toleration.value) == text(&taint.value),
        Some(_) => false,
    }
}

/// The taints that make pods leave.
pub fn expelling(taints: &[Taint]) -> impl Iterator<Item = &Taint> {
    taints.iter().filter(|taint| taint.effect == "NoExecute")
}

/// When a pod has to leave a node with these taints: at once if it does not tolerate one of them, and otherwise when the
/// first toleration ends that does so for a while only.
pub fn leaves(pod: &Pod, taints: &[Taint], now: Timestamp) -> Leaves {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let mut until = Leaves::Never;
    for taint in expelling(taints) {
        let mut found = tolerations.iter().filter(|toleration| tolerates(toleration, taint)).peekable();
        if found.peek().is_none() {
            return Leaves::At(now);
        }
        let Some(seconds) = found.filter_map(|toleration| toleration.toleration_seconds).min() else {
            continue;
        };
        let since = taint.time_added.as_ref().map_or(now, |time| time.0);
        let end = since.checked_add(SignedDuration::from_secs(seconds.max(0))).unwrap_or(Timestamp::MAX);
        until = match until {
            Leaves::At(first) if first <= end => until,
            _ => Leaves::At(end),
        };
    }
    until
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_pod_stays_for_as_long_as_it_tolerates_all_taints() {
        let now = Timestamp::from_second(100).unwrap();
        let at = |second| Leaves::At(Timestamp::from_second(second).unwrap());
        let taint =
            |key: &str| json!({ "key": key, "effect": "NoExecute", "timeAdded": "1970-01-01T00:00:50Z" });
        let tolerate = |key: &str, seconds: Option<i64>| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds });
        let table: [(Vec<Value>, Vec<Value>, Leaves); 7] = [
            (vec![], vec![], Leaves::Never),
            (vec![json!({ "key": "a", "effect": "NoSchedule" })], vec![], Leaves::Never),
            (vec![taint("a")], vec![], at(100)),
            (vec![taint("a")], vec![tolerate("a", None)], Leaves::Never),
            (vec![taint("a")], vec![tolerate("a", Some(300))], at(350)),
            (vec![taint("a"), taint("b")], vec![tolerate("a", Some(300)), tolerate("b", Some(70))], at(120)),
            (vec![taint("a"), taint("b")], vec![tolerate("a", Some(300))], at(100)),
        ];
        for (taints, tolerations, wanted) in table {
            let pod =
                serde_json::from_value(json!({ "spec": { "containers": [], "tolerations": tolerations } }));
            let taints: Vec<Taint> = serde_json::from_value(json!(taints)).unwrap();
            assert_eq!(leaves(&pod.unwrap(), &taints, now), wanted, "{taints:?} {tolerations:?}");
        }
    }
}
