//! Which updates of a pod are evaluated.

use plumb_apiserver::validation::json::{list, text};
use serde_json::Value;

/// Whether an update of a pod adds a container or changes an image. Validation lets no other field of the spec change that a
/// check reads, and a pod that was created before its namespace had a policy can still be labelled, resized and deleted.
pub(super) fn is_significant(old: &Value, new: &Value) -> bool {
    let (old, new) = (&old["spec"], &new["spec"]);
    let changes_images = |name: &str| {
        let (old, new) = (list(old, name), list(new, name));
        old.len() != new.len() || old.iter().zip(new).any(|(old, new)| image(old) != image(new))
    };
    let changes_ephemeral = || {
        let (old, new) = (list(old, "ephemeralContainers"), list(new, "ephemeralContainers"));
        new.iter().any(|new| {
            let before = old.iter().find(|old| text(old, "name") == text(new, "name"));
            before.is_none_or(|old| image(old) != image(new))
        })
    };
    changes_images("containers") || changes_images("initContainers") || changes_ephemeral()
}

fn image(container: &Value) -> &str {
    text(container, "image")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A pod with init containers, containers and ephemeral containers of these names and images.
    fn pod(lists: [&[(&str, &str)]; 3]) -> Value {
        let [init, containers, ephemeral] = lists.map(|list| {
            let each = list.iter().map(|(name, image)| json!({ "name": name, "image": image }));
            each.collect::<Value>()
        });
        json!({ "spec": {
            "initContainers": init, "containers": containers, "ephemeralContainers": ephemeral,
        } })
    }

    #[test]
    fn updates_of_images_and_new_containers_are_significant() {
        let old = pod([&[("i", "1")], &[("c", "1")], &[("d", "1")]]);
        let mut resized = old.clone();
        resized["metadata"] = json!({ "labels": { "a": "b" } });
        resized["spec"]["containers"][0]["resources"] = json!({ "limits": { "cpu": "1" } });
        let table = [
            (old.clone(), false),
            (resized, false),
            (pod([&[("i", "2")], &[("c", "1")], &[("d", "1")]]), true),
            (pod([&[("i", "1")], &[("c", "2")], &[("d", "1")]]), true),
            (pod([&[("i", "1")], &[("c", "1")], &[("d", "2")]]), true),
            (pod([&[("i", "1")], &[("c", "1")], &[("e", "1"), ("d", "1")]]), true),
            (pod([&[("i", "1")], &[("c", "1")], &[]]), false),
            (pod([&[], &[("c", "1")], &[("d", "1")]]), true),
            (pod([&[("i", "1")], &[("c", "1"), ("f", "1")], &[("d", "1")]]), true),
        ];
        for (new, expected) in table {
            assert_eq!(is_significant(&old, &new), expected, "{new}");
        }
    }
}
