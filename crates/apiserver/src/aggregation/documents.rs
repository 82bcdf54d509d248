//! What the API servers of the cluster serve, as they last said, for discovery and OpenAPI.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderValue;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::RemoteService;
use crate::openapi::AggregatedSpec;

/// A group that API servers in the cluster serve.
#[derive(Clone, Debug)]
pub(crate) struct RemoteGroup {
    pub(crate) name: String,
    /// The versions, the preferred one first.
    pub(crate) versions: Vec<RemoteVersion>,
}

/// A version of such a group.
#[derive(Clone, Debug)]
pub(crate) struct RemoteVersion {
    pub(crate) version: String,
    /// The resources, as aggregated discovery has them.
    pub(crate) resources: Vec<Value>,
    /// Whether the API server was there when it was last asked.
    pub(crate) is_current: bool,
}

impl RemoteGroup {
    /// The versions by name.
    pub(crate) fn versions(&self) -> Vec<&str> {
        self.versions.iter().map(|version| &*version.version).collect()
    }

    /// The group as aggregated discovery has it.
    pub(crate) fn aggregated(&self) -> Value {
        let version = |version: &RemoteVersion| {
            let freshness = if version.is_current { "Current" } else { "Stale" };
            json!({ "version": version.version, "freshness": freshness, "resources": version.resources })
        };
        let versions: Vec<Value> = self.versions.iter().map(version).collect();
        json!({ "metadata": { "name": self.name }, "versions": versions })
    }
}

/// The documents of each `APIService`, by its name.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    /// Its `APIResourceList`.
    resources: Mutex<BTreeMap<String, Value>>,
    specs: Mutex<BTreeMap<String, Spec>>,
}

/// An OpenAPI v2 document.
#[derive(Debug)]
struct Spec {
    etag: Option<HeaderValue>,
    content: Arc<AggregatedSpec>,
}

impl Documents {
    /// Remembers what an API server serves.
    pub(crate) fn insert(&self, name: &str, resources: Value) {
        self.resources.lock().insert(name.to_owned(), resources);
    }

    /// Remembers the OpenAPI v2 document of an API server.
    pub(crate) fn insert_spec(&self, name: &str, etag: Option<HeaderValue>, spec: AggregatedSpec) {
        self.specs.lock().insert(name.to_owned(), Spec { etag, content: Arc::new(spec) });
    }

    /// The OpenAPI v2 document of an API server.
    pub(super) fn spec(&self, name: &str) -> Option<Arc<AggregatedSpec>> {
        self.specs.lock().get(name).map(|spec| spec.content.clone())
    }

    /// The `ETag` of that document.
    pub(crate) fn etag(&self, name: &str) -> Option<HeaderValue> {
        self.specs.lock().get(name).and_then(|spec| spec.etag.clone())
    }

    /// Forgets the documents of API servers that are gone.
    pub(super) fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.resources.lock().retain(|name, _| is_there(name));
        self.specs.lock().retain(|name, _| is_there(name));
    }

    /// The groups of `APIService`s, by name; the versions in the order of their priority.
    pub(super) fn groups(&self, services: &[RemoteService]) -> Vec<RemoteGroup> {
        let documents = self.resources.lock();
        let mut groups: BTreeMap<&str, Vec<&RemoteService>> = BTreeMap::new();
        for service in services {
            groups.entry(&service.group).or_default().push(service);
        }
        let group = |(name, mut services): (&str, Vec<&RemoteService>)| {
            services.sort_by_key(|service| std::cmp::Reverse(service.spec["versionPriority"].as_i64()));
            let versions = services.into_iter().map(|service| RemoteVersion {
                version: service.version.clone(),
                resources: documents.get(&service.name).map(aggregated_resources).unwrap_or_default(),
                is_current: service.is_available(),
            });
            RemoteGroup { name: name.to_owned(), versions: versions.collect() }
        };
        groups.into_iter().map(group).collect()
    }
}

/// The resources of an `APIResourceList` as aggregated discovery has them.
fn aggregated_resources(list: &Value) -> Vec<Value> {
    let (group, version) =
        list["groupVersion"].as_str().unwrap_or_default().split_once('/').unwrap_or_default();
    let all: Vec<&Value> = list["resources"].as_array().into_iter().flatten().collect();
    let kind = |resource: &Value| {
        let own = |field: &str, default: &str| {
            resource[field].as_str().filter(|text| !text.is_empty()).unwrap_or(default).to_owned()
        };
        json!({ "group": own("group", group), "version": own("version", version), "kind": resource["kind"] })
    };
    let name = |resource: &Value| resource["name"].as_str().unwrap_or_default().to_owned();
    let resources = all.iter().filter(|resource| !name(resource).contains('/'));
    let entry = |resource: &&Value| {
        let mut entry = json!({
            "resource": resource["name"], "responseKind": kind(resource),
            "scope": if resource["namespaced"] == true { "Namespaced" } else { "Cluster" },
            "singularResource": resource["singularName"], "verbs": resource["verbs"],
        });
        for field in ["shortNames", "categories"] {
            if !resource[field].is_null() {
                entry[field] = resource[field].clone();
            }
        }
        let prefix = format!("{}/", name(resource));
        let own =
            all.iter().filter_map(|other| Some((name(other).strip_prefix(&prefix)?.to_owned(), *other)));
        let own: Vec<Value> = own
            .map(|(name, other)| {
                json!({ "subresource": name, "responseKind": kind(other), "verbs": other["verbs"] })
            })
            .collect();
        if !own.is_empty() {
            entry["subresources"] = json!(own);
        }
        entry
    };
    resources.map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_described_as_in_aggregated_discovery() {
        let list = json!({
            "kind": "APIResourceList", "groupVersion": "wardle.example.com/v1alpha1",
            "resources": [
                { "name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder", "verbs": ["get"], "shortNames": ["fl"] },
                { "name": "flunders/status", "singularName": "", "namespaced": true, "kind": "Flunder", "verbs": ["update"] },
            ],
        });
        let kind = json!({ "group": "wardle.example.com", "version": "v1alpha1", "kind": "Flunder" });
        let wanted = json!({
            "resource": "flunders", "responseKind": kind, "scope": "Namespaced", "singularResource": "flunder",
            "verbs": ["get"], "shortNames": ["fl"],
            "subresources": [{ "subresource": "status", "responseKind": kind, "verbs": ["update"] }],
        });
        assert_eq!(aggregated_resources(&list), [wanted]);
        assert_eq!(aggregated_resources(&Value::Null), Vec::<Value>::new());
    }
}
