//! The paths of a document, and the operations of each.

use serde_json::{Map, Value, json};

use super::components::Components;
use super::operations::{Action, Operation};
use crate::schema::{Resource, Schema, Scope, Subresource};

pub(super) fn all(
    schema: &Schema,
    group: &str,
    version: &str,
    components: &mut Components<'_>,
) -> Map<String, Value> {
    let base = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let mut paths = Map::new();
    for resource in schema.resources().iter().filter(|row| row.group == group && row.version == version) {
        let namespaced = resource.scope == Scope::Namespaced;
        let home = if namespaced { format!("{base}/namespaces/{{namespace}}") } else { base.clone() };
        let collection = format!("{home}/{}", resource.plural);
        let mut add = |path: String, named: bool, spread: bool, operations: Vec<(Action, Value)>| {
            if !operations.is_empty() {
                let parameters = parameters(named, namespaced && !spread);
                let entry = paths.entry(path).or_insert_with(|| json!({ "parameters": parameters }));
                for (action, operation) in operations {
                    entry[action.method()] = operation;
                }
            }
        };

        let mut at = Operation { resource, subresource: None, everywhere: false };
        add(collection.clone(), false, false, at.all(&COLLECTION, components));
        add(format!("{collection}/{{name}}"), true, false, at.all(&OBJECT, components));
        if namespaced && resource.allows("list") {
            at.everywhere = true;
            let listed = vec![(Action::List, at.describe(Action::List, components))];
            add(format!("{base}/{}", resource.plural), false, true, listed);
            at.everywhere = false;
        }
        for subresource in &resource.subresources {
            at.subresource = Some(subresource);
            let operations = at.all(actions(subresource), components);
            add(format!("{collection}/{{name}}/{}", subresource.name), true, false, operations);
        }
    }
    paths
}

const COLLECTION: [Action; 3] = [Action::List, Action::Create, Action::DeleteCollection];
const OBJECT: [Action; 4] = [Action::Get, Action::Replace, Action::Patch, Action::Delete];
const PART: [Action; 4] = [Action::Get, Action::Create, Action::Replace, Action::Patch];
const CONNECTION: [Action; 2] = [Action::ConnectGet, Action::ConnectPost];

fn actions(subresource: &Subresource) -> &'static [Action] {
    match subresource.name {
        "attach" | "exec" | "portforward" | "proxy" => &CONNECTION,
        _ => &PART,
    }
}

fn parameters(named: bool, namespaced: bool) -> Vec<Value> {
    let in_path =
        |name: &str| json!({ "in": "path", "name": name, "required": true, "schema": { "type": "string" } });
    let mut parameters = Vec::new();
    if named {
        parameters.push(in_path("name"));
    }
    if namespaced {
        parameters.push(in_path("namespace"));
    }
    parameters.push(super::operations::query("pretty", "string"));
    parameters
}

impl Operation<'_> {
    /// The operations for those actions that the resource supports.
    fn all(&self, actions: &[Action], components: &mut Components<'_>) -> Vec<(Action, Value)> {
        let verbs = self.subresource.map_or(&self.resource.verbs, |subresource| &subresource.verbs);
        actions
            .iter()
            .filter(|action| verbs.contains(&action.verb()))
            .map(|action| (*action, self.describe(*action, components)))
            .collect()
    }
}

/// Whether the ids of a resource's operations contain `Namespaced`.
pub(super) fn is_namespaced(resource: &Resource) -> bool {
    resource.scope == Scope::Namespaced
}
