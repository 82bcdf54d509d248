//! What is done with one `APIService`: upstream's table, without effects.

use serde_json::{Value, json};

use super::priorities::Priorities;

/// The label of an `APIService` that a controller manages, with its values.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
const ON_START: &str = "onstart";
const CONTINUOUSLY: &str = "true";

/// An `APIService` as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Desired {
    group: String,
    version: String,
    priorities: Priorities,
    automanaged: &'static str,
}

/// What is known about a name since the controller started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct History {
    /// It existed at the start.
    pub(super) at_start: bool,
    /// A pass has succeeded for it.
    pub(super) synced: bool,
}

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    None,
    Create(Value),
    Update(Value),
    Delete { uid: String },
}

impl Desired {
    /// That of a group version that this server always has.
    pub(super) fn on_start(group: &str, version: &str, priorities: Priorities) -> Self {
        Self { group: group.to_owned(), version: version.to_owned(), priorities, automanaged: ON_START }
    }

    /// That of a group version that exists as long as its definitions.
    pub(super) fn continuously(group: &str, version: &str, priorities: Priorities) -> Self {
        Self { automanaged: CONTINUOUSLY, ..Self::on_start(group, version, priorities) }
    }

    /// `VERSION.GROUP`; that of the group without a name ends with the dot.
    pub(super) fn name(&self) -> String {
        format!("{}.{}", self.version, self.group)
    }

    fn spec(&self) -> Value {
        json!({
            "group": self.group, "version": self.version,
            "groupPriorityMinimum": self.priorities.group, "versionPriority": self.priorities.version,
        })
    }

    fn object(&self) -> Value {
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": { "name": self.name(), "labels": { AUTOMANAGED: self.automanaged } },
            "spec": self.spec(),
        })
    }

    /// Whether an object has this spec.
    fn is_spec_of(&self, object: &Value) -> bool {
        let spec = &object["spec"];
        let text = |field: &str| spec[field].as_str().unwrap_or_default();
        text("group") == self.group
            && text("version") == self.version
            && spec["groupPriorityMinimum"] == self.priorities.group
            && spec["versionPriority"] == self.priorities.version
            && !spec["service"].is_object()
            && text("caBundle").is_empty()
            && spec["insecureSkipTLSVerify"] != true
    }
}

fn automanaged(object: &Value) -> &str {
    object["metadata"]["labels"][AUTOMANAGED].as_str().unwrap_or_default()
}

/// What is done with the `APIService` of a name.
///
/// | current | desired: none | on start | continuously |
/// |---|---|---|---|
/// | none | nothing | create once | create |
/// | not managed | nothing | nothing | nothing |
/// | on start, made after the start | nothing | nothing | nothing |
/// | on start, from before the start | delete once | update once | update once |
/// | continuously | delete | update once | update |
pub(super) fn decide(current: Option<&Value>, desired: Option<&Desired>, history: History) -> Action {
    let is_done = desired.is_some_and(|desired| desired.automanaged == ON_START) && history.synced;
    let (current, desired) = match (current, desired) {
        (None, None) => return Action::None,
        _ if is_done => return Action::None,
        (None, Some(desired)) => return Action::Create(desired.object()),
        (Some(current), desired) => (current, desired),
    };
    match automanaged(current) {
        CONTINUOUSLY => {}
        ON_START if history.at_start && !history.synced => {}
        _ => return Action::None,
    }
    let Some(desired) = desired else {
        let uid = current["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        return Action::Delete { uid };
    };
    if desired.is_spec_of(current) {
        return Action::None;
    }
    let mut updated = current.clone();
    updated["spec"] = desired.spec();
    Action::Update(updated)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIORITIES: Priorities = Priorities { group: 1_000, version: 100 };

    /// A stored object with a label, and the desired spec or another one.
    fn stored(label: &str, is_desired: bool) -> Value {
        let mut object = Desired::on_start("g.io", "v1", PRIORITIES).object();
        object["metadata"]["uid"] = json!("u");
        object["metadata"]["labels"] =
            if label.is_empty() { json!({}) } else { json!({ AUTOMANAGED: label }) };
        if !is_desired {
            object["spec"]["service"] = json!({ "namespace": "n", "name": "s" });
        }
        object
    }

    fn name(action: &Action) -> &'static str {
        match action {
            Action::None => "-",
            Action::Create(_) => "create",
            Action::Update(_) => "update",
            Action::Delete { .. } => "delete",
        }
    }

    #[test]
    fn api_services_are_managed_as_by_kube_aggregator() {
        let fresh = History { at_start: true, synced: false };
        let synced = History { at_start: true, synced: true };
        let later = History { at_start: false, synced: false };
        let on_start = Desired::on_start("g.io", "v1", PRIORITIES);
        let continuously = Desired::continuously("g.io", "v1", PRIORITIES);
        let columns = [None, Some(&on_start), Some(&continuously)];
        let table = [
            (None, later, ["-", "create", "create"]),
            (None, synced, ["-", "-", "create"]),
            (Some(stored("", false)), fresh, ["-", "-", "-"]),
            (Some(stored("onstart", false)), later, ["-", "-", "-"]),
            (Some(stored("onstart", false)), fresh, ["delete", "update", "update"]),
            (Some(stored("onstart", false)), synced, ["-", "-", "-"]),
            (Some(stored("onstart", true)), fresh, ["delete", "-", "-"]),
            (Some(stored("true", false)), fresh, ["delete", "update", "update"]),
            (Some(stored("true", false)), synced, ["delete", "-", "update"]),
            (Some(stored("true", true)), synced, ["delete", "-", "-"]),
        ];
        for (current, history, expected) in table {
            let actions = columns.map(|desired| name(&decide(current.as_ref(), desired, history)));
            assert_eq!(actions, expected, "{current:?} {history:?}");
        }
    }

    #[test]
    fn an_update_replaces_the_whole_spec_and_keeps_the_metadata() {
        let current = stored("true", false);
        let desired = Desired::continuously("g.io", "v1", PRIORITIES);
        let history = History { at_start: false, synced: false };
        let Action::Update(updated) = decide(Some(&current), Some(&desired), history) else {
            panic!("no update")
        };
        assert_eq!(updated["metadata"], current["metadata"]);
        let spec =
            json!({ "group": "g.io", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100 });
        assert_eq!(updated["spec"], spec);
    }
}
