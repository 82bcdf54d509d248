//! The OpenAPI v2 documents of other API servers in the one of this server, with upstream's rules: a server describes the
//! paths of its group version only, and a definition that this server has with another content is renamed (`…_v2`).

use std::collections::{BTreeMap, BTreeSet};

use plumb_apischema::openapi;
use serde_json::{Map, Value};

const DEFINITIONS: &str = "#/definitions/";
const PARAMETERS: &str = "#/parameters/";
const KINDS: &str = "x-kubernetes-group-version-kind";

/// The part of the document of another API server that is about one group version.
#[derive(Debug)]
pub(crate) struct AggregatedSpec {
    hash: String,
    /// `/apis/GROUP/VERSION/`
    prefix: String,
    paths: Map<String, Value>,
    /// Those that the paths refer to, directly or not.
    definitions: Map<String, Value>,
}

impl AggregatedSpec {
    /// The part of a document that is about the group version with this path. None if it is not an OpenAPI v2 document.
    pub(crate) fn new(bytes: &[u8], path: &str) -> Option<Self> {
        let mut document: Value = serde_json::from_slice(bytes).ok()?;
        if document["swagger"] != "2.0" {
            return None;
        }
        let prefix = format!("{path}/");
        let mut paths = entries(document["paths"].take());
        paths.retain(|path, _| path.starts_with(&prefix));
        let parameters = entries(document["parameters"].take());
        for value in paths.values_mut() {
            inline_parameters(value, &parameters);
        }
        let mut definitions = entries(document["definitions"].take());
        let used = used(&paths, &definitions);
        definitions.retain(|name, _| used.contains(name));
        Some(Self { hash: openapi::hash(bytes), prefix, paths, definitions })
    }

    /// The hash of the whole document.
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }

    /// Adds the paths and definitions to those of this server.
    pub(super) fn merge_into(&self, paths: &mut Map<String, Value>, definitions: &mut Map<String, Value>) {
        let renamed = self.renamed(definitions);
        for (name, definition) in &self.definitions {
            let name = renamed.get(name).unwrap_or(name);
            match definitions.get_mut(name) {
                Some(existing) => add_kinds(existing, definition),
                None => {
                    definitions.insert(name.clone(), with_renamed(definition, &renamed));
                }
            }
        }
        // The group version may be one that this server serves as long as no other one does.
        paths.retain(|path, _| !path.starts_with(&self.prefix));
        for (path, item) in &self.paths {
            paths.insert(path.clone(), with_renamed(item, &renamed));
        }
    }

    /// The other names of definitions whose name has another content.
    fn renamed(&self, definitions: &Map<String, Value>) -> BTreeMap<String, String> {
        let conflicts = |name: &str, definition: &Value| {
            definitions.get(name).is_some_and(|existing| !is_same(existing, definition))
        };
        let mut renamed = BTreeMap::new();
        for (name, definition) in &self.definitions {
            if !conflicts(name, definition) {
                continue;
            }
            let other = (2_u32..).map(|number| format!("{name}_v{number}"));
            let mut free =
                other.filter(|other| !conflicts(other, definition) && !self.definitions.contains_key(other));
            // There are fewer definitions than numbers.
            if let Some(free) = free.next() {
                renamed.insert(name.clone(), free);
            }
        }
        renamed
    }
}

/// The objects of a map, by name.
fn entries(value: Value) -> Map<String, Value> {
    let Value::Object(mut map) = value else { return Map::new() };
    map.retain(|_, value| value.is_object());
    map
}

/// Replaces references to parameters of the document, which this server's document does not have, by these parameters.
fn inline_parameters(value: &mut Value, parameters: &Map<String, Value>) {
    let name = value["$ref"].as_str().and_then(|reference| reference.strip_prefix(PARAMETERS));
    if let Some(parameter) = name.and_then(|name| parameters.get(name)) {
        *value = parameter.clone();
        return;
    }
    children_mut(value).for_each(|child| inline_parameters(child, parameters));
}

/// The names of the definitions that are used by paths, directly or not.
fn used(paths: &Map<String, Value>, definitions: &Map<String, Value>) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let mut next: Vec<&Value> = paths.values().collect();
    while let Some(value) = next.pop() {
        if let Some(name) = definition_of(value)
            && let Some(definition) = definitions.get(name)
            && used.insert(name.to_owned())
        {
            next.push(definition);
        }
        next.extend(children(value));
    }
    used
}

/// A value whose references have the other names.
fn with_renamed(value: &Value, renamed: &BTreeMap<String, String>) -> Value {
    let mut value = value.clone();
    if !renamed.is_empty() {
        rename(&mut value, renamed);
    }
    value
}

fn rename(value: &mut Value, renamed: &BTreeMap<String, String>) {
    if let Some(name) = definition_of(value).and_then(|name| renamed.get(name)) {
        value["$ref"] = format!("{DEFINITIONS}{name}").into();
    }
    children_mut(value).for_each(|child| rename(child, renamed));
}

/// The name of the definition that a value refers to.
fn definition_of(value: &Value) -> Option<&str> {
    value.get("$ref")?.as_str()?.strip_prefix(DEFINITIONS)
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Object(map) => Box::new(map.values()),
        Value::Array(list) => Box::new(list.iter()),
        _ => Box::new(std::iter::empty()),
    }
}

fn children_mut(value: &mut Value) -> Box<dyn Iterator<Item = &mut Value> + '_> {
    match value {
        Value::Object(map) => Box::new(map.values_mut()),
        Value::Array(list) => Box::new(list.iter_mut()),
        _ => Box::new(std::iter::empty()),
    }
}

/// Whether definitions are equal but for the kinds that they are of: types such as `DeleteOptions` name all groups of their
/// server.
fn is_same(a: &Value, b: &Value) -> bool {
    let rest = |value: &Value| {
        let mut rest = value.clone();
        if let Some(rest) = rest.as_object_mut() {
            rest.remove(KINDS);
        }
        rest
    };
    rest(a) == rest(b)
}

/// Adds the kinds of an equal definition.
fn add_kinds(existing: &mut Value, other: &Value) {
    let Some(others) = other[KINDS].as_array() else { return };
    let mut kinds = existing[KINDS].as_array().cloned().unwrap_or_default();
    for kind in others {
        if !kinds.contains(kind) {
            kinds.push(kind.clone());
        }
    }
    existing[KINDS] = kinds.into();
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reference(name: &str) -> Value {
        json!({ "$ref": format!("{DEFINITIONS}{name}") })
    }

    /// A path whose response is a definition.
    fn path(name: &str) -> Value {
        json!({ "get": { "responses": { "200": { "description": "OK", "schema": reference(name) } } } })
    }

    fn spec(paths: &Value, definitions: &Value) -> AggregatedSpec {
        let document = json!({
            "swagger": "2.0", "paths": paths, "definitions": definitions,
            "parameters": { "pretty": { "name": "pretty", "in": "query", "type": "string" } },
        });
        AggregatedSpec::new(document.to_string().as_bytes(), "/apis/g.io/v1").unwrap()
    }

    /// What a merge with definitions of this server makes of them.
    fn merged(spec: &AggregatedSpec, definitions: &Value) -> (Map<String, Value>, Value) {
        let (mut paths, mut definitions) = (Map::new(), entries(definitions.clone()));
        spec.merge_into(&mut paths, &mut definitions);
        (paths, definitions.into())
    }

    #[test]
    fn only_the_paths_of_the_group_version_and_their_definitions_are_added() {
        let paths = json!({
            "/apis/g.io/v1/things": path("Thing"), "/apis/g.io/v10/things": path("Other"),
            "/apis/apps/v1/deployments": path("Other"), "/api/v1/pods": path("Other"),
        });
        let definitions = json!({
            "Thing": { "properties": { "meta": reference("Meta") } }, "Meta": { "type": "object" },
            "Other": { "type": "object" },
        });
        let (paths, definitions) = merged(&spec(&paths, &definitions), &json!({}));
        assert_eq!(paths.keys().collect::<Vec<_>>(), ["/apis/g.io/v1/things"]);
        assert_eq!(entries(definitions).keys().collect::<BTreeSet<_>>().len(), 2);
    }

    #[test]
    fn a_definition_with_another_content_is_renamed_with_its_references() {
        let own = json!({ "Meta": { "type": "object" }, "Meta_v2": { "type": "string" } });
        let paths = json!({ "/apis/g.io/v1/things": path("Thing"), "/apis/g.io/v1/meta": path("Meta") });
        let theirs = json!({
            "Thing": { "properties": { "meta": reference("Meta") } },
            "Meta": { "type": "object", "description": "newer" },
        });
        let (paths, definitions) = merged(&spec(&paths, &theirs), &own);
        assert_eq!(definitions["Meta"], own["Meta"]);
        assert_eq!(definitions["Meta_v3"], theirs["Meta"]);
        assert_eq!(definitions["Thing"]["properties"]["meta"], reference("Meta_v3"));
        assert_eq!(paths["/apis/g.io/v1/meta"], path("Meta_v3"));
        // A second server with the same definition shares it.
        let paths = json!({ "/apis/g.io/v1/meta": path("Meta") });
        let (paths, again) = merged(&spec(&paths, &theirs), &definitions);
        assert_eq!((&paths["/apis/g.io/v1/meta"], again), (&path("Meta_v3"), definitions));
    }

    #[test]
    fn an_equal_definition_is_shared_and_is_of_the_kinds_of_both() {
        let kind = |group: &str| json!({ "group": group, "version": "v1", "kind": "DeleteOptions" });
        let options = |groups: &[&str]| {
            let kinds: Vec<Value> = groups.iter().map(|group| kind(group)).collect();
            json!({ "DeleteOptions": { "type": "object", KINDS: kinds } })
        };
        let paths = json!({ "/apis/g.io/v1/things": path("DeleteOptions") });
        let definitions = merged(&spec(&paths, &options(&["", "g.io"])), &options(&["", "apps"])).1;
        assert_eq!(definitions, options(&["", "apps", "g.io"]));
    }

    #[test]
    fn parameters_of_the_document_become_those_of_its_operations() {
        let paths = json!({
            "/apis/g.io/v1/things": { "parameters": [{ "$ref": "#/parameters/pretty" }] },
        });
        let (paths, _) = merged(&spec(&paths, &json!({})), &json!({}));
        assert_eq!(paths["/apis/g.io/v1/things"]["parameters"][0]["name"], "pretty");
    }

    #[test]
    fn something_else_than_a_document_is_ignored() {
        for bytes in ["", "[]", "{}", r#"{"swagger":"3.0"}"#] {
            assert!(AggregatedSpec::new(bytes.as_bytes(), "/apis/g.io/v1").is_none(), "{bytes}");
        }
        let odd = r#"{"swagger":"2.0","paths":{"/apis/g.io/v1/a":5},"definitions":[]}"#;
        assert!(AggregatedSpec::new(odd.as_bytes(), "/apis/g.io/v1").unwrap().paths.is_empty());
    }
}
