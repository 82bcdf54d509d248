//! The launch priorities of containers, in whose order an in-place update restarts them.
//!
//! OpenKruise reads them from a variable that its webhook adds to new pods. Here they come from what the user wrote, by the rules of
//! that webhook, or from its variable in pods that OpenKruise has created.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod};

use super::keys;

/// The priorities of the containers of a pod, by name; larger first. A container without one is updated at once.
fn priorities(pod: &Pod) -> BTreeMap<&str, i64> {
    let containers = pod.spec.as_ref().map_or(&[][..], |spec| &spec.containers);
    let of_barrier: BTreeMap<&str, i64> =
        containers.iter().filter_map(|one| Some((one.name.as_str(), barrier(one)?))).collect();
    if !of_barrier.is_empty() {
        return of_barrier;
    }
    let annotations = pod.metadata.annotations.as_ref();
    let names = containers.iter().map(|container| container.name.as_str());
    if annotations.and_then(|all| all.get(keys::LAUNCH_PRIORITY)).is_some_and(|value| value == "Ordered") {
        return names.zip((0..).map(|position: i64| -position)).collect();
    }
    // A value that is no number has no pod created under OpenKruise. Here it counts as none.
    let priorities: Option<Vec<i64>> = containers.iter().map(priority).collect();
    let priorities = priorities.unwrap_or_default();
    let is_equal = priorities.windows(2).all(|pair| pair[0] == pair[1]);
    if is_equal { BTreeMap::new() } else { names.zip(priorities).collect() }
}

/// The priority in the variable of OpenKruise's webhook, which refers to the key `p_10` of a ConfigMap.
fn barrier(container: &Container) -> Option<i64> {
    let variable = container.env.iter().flatten().find(|one| one.name == keys::LAUNCH_BARRIER_ENV)?;
    let key = &variable.value_from.as_ref()?.config_map_key_ref.as_ref()?.key;
    key.strip_prefix("p_")?.parse().ok()
}

/// The priority that the user gives a container; 0 if none. None if it is no number.
fn priority(container: &Container) -> Option<i64> {
    let variable = container.env.iter().flatten().rfind(|one| one.name == keys::LAUNCH_PRIORITY_ENV);
    variable.map_or(Some(0), |one| one.value.as_deref().unwrap_or_default().parse().ok())
}

/// Those of some containers that are not updated with the first of them: they have a lower priority.
pub(super) fn later<'a>(pod: &Pod, containers: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    let priorities = priorities(pod);
    let with_priority: Vec<(&str, i64)> =
        containers.into_iter().filter_map(|name| Some((name, *priorities.get(name)?))).collect();
    let Some(highest) = with_priority.iter().map(|(_, priority)| *priority).max() else {
        return BTreeSet::new();
    };
    let later = with_priority.into_iter().filter(|(_, priority)| *priority < highest);
    later.map(|(name, _)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn containers_of_a_lower_priority_are_updated_later() {
        let pod = |annotations: Value, env: [Value; 3]| -> Pod {
            let container = |(name, env): (&str, Value)| json!({ "name": name, "env": env });
            let containers: Vec<Value> = ["a", "b", "c"].into_iter().zip(env).map(container).collect();
            let pod =
                json!({ "metadata": { "annotations": annotations }, "spec": { "containers": containers } });
            serde_json::from_value(pod).unwrap()
        };
        let own = |value: &str| json!([{ "name": "KRUISE_CONTAINER_PRIORITY", "value": value }]);
        let barrier = |key: &str| {
            let source = json!({ "configMapKeyRef": { "name": "x-barrier", "key": key } });
            json!([{ "name": "KRUISE_CONTAINER_BARRIER", "valueFrom": source }])
        };
        let none = || json!([]);
        let ordered = || json!({ "apps.kruise.io/container-launch-priority": "Ordered" });
        let table = [
            (json!({}), [none(), none(), none()], &["a", "b", "c"][..], &[][..]),
            (json!({}), [none(), own("10"), none()], &["a", "b", "c"], &["a", "c"]),
            (json!({}), [none(), own("10"), none()], &["a", "c"], &[]),
            (json!({}), [own("-1"), own("10"), none()], &["a", "c"], &["a"]),
            (json!({}), [own("3"), own("3"), own("3")], &["a", "b"], &[]),
            (json!({}), [own("3"), own("many"), own("1")], &["a", "b", "c"], &[]),
            (ordered(), [none(), none(), none()], &["a", "b", "c"], &["b", "c"]),
            (ordered(), [none(), none(), none()], &["b", "c"], &["c"]),
            // A pod of OpenKruise: a container without the variable does not wait.
            (json!({}), [barrier("p_0"), barrier("p_5"), none()], &["a", "b", "c"], &["a"]),
            (json!({}), [barrier("x"), none(), none()], &["a", "b", "c"], &[]),
        ];
        for (annotations, env, updated, expected) in table {
            let pod = pod(annotations, env);
            let later: Vec<String> = later(&pod, updated.iter().copied()).into_iter().collect();
            assert_eq!(later, expected, "{pod:?} {updated:?}");
        }
    }
}
