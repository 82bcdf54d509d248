//! The index decides as a scan of all roles and bindings does, after any writes in any order.

use std::collections::BTreeMap;

use bytes::Bytes;
use plumb_store::{Attributes, Key, Object};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::authz::{About, Objects};

/// A write or deletion of one of a few roles or bindings.
#[derive(Clone, Debug)]
struct Step {
    key: String,
    value: Option<Value>,
}

fn step() -> impl Strategy<Value = Step> {
    let name = prop::sample::select(vec!["x", "y"]);
    let namespace = prop::sample::select(vec!["a", "b"]);
    let verb = prop::sample::select(vec!["get", "list", "*"]);
    let role = (any::<bool>(), namespace.clone(), name.clone(), verb, any::<bool>()).prop_map(
        |(cluster, namespace, name, verb, there)| {
            let key =
                if cluster { format!("clusterroles/{name}") } else { format!("roles/{namespace}/{name}") };
            let rule = json!({ "apiGroups": [""], "resources": ["pods"], "verbs": [verb] });
            (key, there.then(|| json!({ "rules": [rule] })))
        },
    );
    let subject = prop::sample::select(vec![
        json!({ "kind": "User", "name": "u" }),
        json!({ "kind": "User", "name": "system:serviceaccount:a:s" }),
        json!({ "kind": "Group", "name": "g" }),
        json!({ "kind": "ServiceAccount", "name": "s", "namespace": "a" }),
        json!({ "kind": "ServiceAccount", "name": "s" }),
        json!({ "kind": "Robot", "name": "u" }),
    ]);
    let subjects = prop::collection::vec(subject, 0..3);
    let binding = (any::<bool>(), any::<bool>(), namespace, name.clone(), name, subjects, any::<bool>())
        .prop_map(|(cluster, to_cluster, namespace, name, role, subjects, there)| {
            let local = || format!("rolebindings/{namespace}/{name}");
            let key = if cluster { format!("clusterrolebindings/{name}") } else { local() };
            let kind = if cluster || to_cluster { "ClusterRole" } else { "Role" };
            (key, there.then(|| json!({ "roleRef": { "kind": kind, "name": role }, "subjects": subjects })))
        });
    prop_oneof![role, binding].prop_map(|(key, value)| Step { key: format!("{RBAC_GROUP}/{key}"), value })
}

fn object(key: &str, value: &Value) -> Object {
    Object {
        key: Key::new(key).unwrap(),
        value: Bytes::from(value.to_string()),
        attributes: Attributes::none(),
        create_revision: 1,
        mod_revision: 1,
        version: 1,
    }
}

/// The decision by a scan.
fn slowly(all: &BTreeMap<String, Value>, ask: &Ask<'_>, namespace: &str) -> bool {
    all.iter().any(|(key, binding)| {
        let parts: Vec<&str> = key.split('/').skip(1).collect();
        let home = match parts.as_slice() {
            ["clusterrolebindings", _] => "",
            ["rolebindings", home, _] if *home == namespace => home,
            _ => return false,
        };
        let applies = binding["subjects"].as_array().unwrap().iter().any(|subject| {
            let name = subject["name"].as_str().unwrap();
            match subject["kind"].as_str().unwrap() {
                "User" => ask.user.name() == name,
                "Group" => ask.user.is_in(name),
                "ServiceAccount" => {
                    let home = subject["namespace"].as_str().unwrap_or(home);
                    !home.is_empty() && ask.user.name() == format!("system:serviceaccount:{home}:{name}")
                }
                _ => false,
            }
        });
        let role = &binding["roleRef"];
        let role = match role["kind"].as_str().unwrap() {
            "Role" => format!("{RBAC_GROUP}/roles/{home}/{}", role["name"].as_str().unwrap()),
            _ => format!("{RBAC_GROUP}/clusterroles/{}", role["name"].as_str().unwrap()),
        };
        applies && all.get(&role).is_some_and(|role| Rule::all_of(role).iter().any(|rule| rule.allows(ask)))
    })
}

proptest! {
    #[test]
    fn the_index_decides_as_a_pass_over_everything_would(steps in prop::collection::vec(step(), 1..60)) {
        let mut index = Rbac::default();
        let mut all = BTreeMap::new();
        let none: [&str; 0] = [];
        let users = [
            User::exactly("u", "", none),
            User::exactly("other", "", ["g"]),
            User::exactly("system:serviceaccount:a:s", "", none),
            User::exactly("system:serviceaccount:b:s", "", none),
        ];
        for Step { key, value } in steps {
            match value {
                Some(value) => {
                    index.put(&object(&key, &value));
                    all.insert(key, value);
                }
                None => if let Some(value) = all.remove(&key) {
                    index.remove(&object(&key, &value));
                },
            }
            for (user, namespace) in users.iter().flat_map(|user| ["", "a", "b"].map(|at| (user, at))) {
                for verb in ["get", "list"] {
                    let objects = Objects { resource: "pods", namespace, ..Objects::default() };
                    let ask = Ask { user, verb, about: About::Objects(objects) };
                    prop_assert_eq!(index.decide(&ask).is_ok(), slowly(&all, &ask, namespace));
                }
            }
        }
        for (key, value) in &all {
            index.remove(&object(key, value));
        }
        // Nothing is left behind.
        prop_assert!(index.by_namespace.is_empty() && index.roles.is_empty() && index.cluster_roles.is_empty());
        prop_assert!(index.cluster_wide.users.is_empty() && index.cluster_wide.groups.is_empty());
    }
}
