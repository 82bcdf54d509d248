//! Events about the node itself, which `kubectl describe node` prints.

use k8s_openapi::api::core::v1::NodeStatus;

/// The reasons of the events about changed conditions, by the type of the condition: while it holds, and while not.
const REASONS: [(&str, [&str; 2]); 4] = [
    ("MemoryPressure", ["NodeHasInsufficientMemory", "NodeHasSufficientMemory"]),
    ("DiskPressure", ["NodeHasDiskPressure", "NodeHasNoDiskPressure"]),
    ("PIDPressure", ["NodeHasInsufficientPID", "NodeHasSufficientPID"]),
    ("Ready", ["NodeReady", "NodeNotReady"]),
];

/// The reasons of the events about the conditions that differ between two statuses, with the kubelet's words.
pub(super) fn transitions(before: Option<&NodeStatus>, now: &NodeStatus) -> Vec<&'static str> {
    let holds = |status: &NodeStatus, kind: &str| {
        let mut all = status.conditions.iter().flatten();
        all.find(|condition| condition.type_ == kind).map(|condition| condition.status == "True")
    };
    let changed = REASONS.iter().filter_map(|(kind, [yes, no])| {
        let now = holds(now, kind)?;
        let before = before.and_then(|before| holds(before, kind));
        (before != Some(now)).then_some(if now { *yes } else { *no })
    });
    changed.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(conditions: &[(&str, &str)]) -> NodeStatus {
        let conditions: Vec<_> =
            conditions.iter().map(|(kind, status)| json!({ "type": kind, "status": status })).collect();
        serde_json::from_value(json!({ "conditions": conditions })).unwrap()
    }

    #[test]
    fn a_changed_condition_is_an_event_and_an_unchanged_one_is_none() {
        let well = [
            ("MemoryPressure", "False"),
            ("DiskPressure", "False"),
            ("PIDPressure", "False"),
            ("Ready", "True"),
        ];
        let all = ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeReady"];
        assert_eq!(transitions(None, &status(&well)), all);
        assert_eq!(transitions(Some(&status(&well)), &status(&well)), [""; 0]);
        let ill = [("MemoryPressure", "True"), ("DiskPressure", "False"), ("Ready", "False")];
        assert_eq!(
            transitions(Some(&status(&well)), &status(&ill)),
            ["NodeHasInsufficientMemory", "NodeNotReady"]
        );
        assert_eq!(
            transitions(Some(&status(&[("Ready", "Unknown")])), &status(&[("Ready", "True")])),
            ["NodeReady"]
        );
    }
}
