use plumb_resize::rules::Rules;
use plumb_rollout::engine::{Change, can_update, compare, compare_desired};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::objects::{pod, resized, template_of};

/// Requests and limits of a container, with a limit that is at least the request.
fn resources() -> impl Strategy<Value = Value> {
    let one = || proptest::option::of((1_i64..20, proptest::option::of(0_i64..20)));
    (one(), one()).prop_map(|(cpu, memory)| {
        let (mut requests, mut limits) = (Map::new(), Map::new());
        for (name, unit, value) in [("cpu", "0m", cpu), ("memory", "Mi", memory)] {
            let Some((request, over)) = value else { continue };
            requests.insert(name.to_owned(), json!(format!("{request}{unit}")));
            if let Some(over) = over {
                limits.insert(name.to_owned(), json!(format!("{}{unit}", request + over)));
            }
        }
        json!({ "requests": requests, "limits": limits })
    })
}

proptest! {
    /// A resize makes a pod follow its template, and its undo makes it what it was, unless something was added.
    #[test]
    fn a_resize_ends_the_difference_and_its_undo_restores_it(
        old in proptest::collection::vec(resources(), 2),
        new in proptest::collection::vec(resources(), 2),
    ) {
        let rules = Rules::v1_36();
        let template = |resources: &[Value]| template_of(json!([
            { "name": "a", "resources": resources[0] }, { "name": "b", "resources": resources[1] },
        ]));
        let (old, new) = (template(&old), template(&new));
        let before = pod(&old);
        match compare(&new, &before, &rules) {
            Change::None => prop_assert!(!can_update(&old, &new, &rules).is_vertical()),
            Change::Other(reasons) => prop_assert!(!reasons.is_empty()),
            Change::Vertical(change) => {
                let after = resized(&before, &change.patch());
                prop_assert_eq!(compare(&new, &after, &rules), Change::None);
                if change.added().is_empty() {
                    let Change::Vertical(undo) = compare_desired(&change.previous(), &after, &rules) else {
                        return Err(TestCaseError::fail("no way back"));
                    };
                    let undone = resized(&after, &undo.patch());
                    prop_assert_eq!(compare(&old, &undone, &rules), Change::None);
                    prop_assert_eq!(undone.spec, before.spec);
                }
            }
        }
    }

    /// What two templates say of each other agrees with what they say of pods: where no injected container changes it.
    #[test]
    fn templates_and_pods_agree(old in resources(), new in resources()) {
        let rules = Rules::v1_36();
        let template = |resources: &Value| template_of(json!([{ "name": "a", "resources": resources }]));
        let (old, new) = (template(&old), template(&new));
        let change = can_update(&old, &new, &rules);
        if change.is_vertical() {
            prop_assert!(matches!(compare(&new, &pod(&old), &rules), Change::Vertical(_)));
        }
        if change.is_none() {
            prop_assert_eq!(compare(&new, &pod(&old), &rules), Change::None);
        }
    }
}
