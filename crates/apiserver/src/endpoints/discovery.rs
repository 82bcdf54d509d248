//! Discovery: which groups, versions and resources there are.

use std::collections::BTreeMap;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use crate::aggregation::RemoteGroup;
use crate::codec::answer_value;
use crate::error::ApiError;
use crate::kinds::{Kinds, Row};
use crate::response_body::Body;
use crate::url::Address;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Handles a request for discovery.
pub(crate) fn answer(
    kinds: &Kinds,
    remote: &[RemoteGroup],
    address: &Address,
    headers: &HeaderMap,
) -> Result<Response<Body>, ApiError> {
    let document = match address {
        Address::CoreVersions | Address::Groups if wants_aggregated(headers) => {
            let core = *address == Address::CoreVersions;
            let mut response = answer_value(StatusCode::OK, &aggregated(kinds, remote, core));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(AGGREGATED));
            return Ok(response);
        }
        Address::CoreVersions => json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        }),
        Address::Groups => {
            let own = own_groups(kinds, remote);
            let own = own.iter().map(|(name, versions)| group(name, versions));
            let remote = remote.iter().map(|remote| group(&remote.name, &remote.versions()));
            let groups: Vec<Value> = own.chain(remote).collect();
            json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
        }
        Address::Group(name) => {
            let groups = groups(kinds);
            let served = match remote.iter().find(|remote| remote.name == *name) {
                Some(remote) => remote.versions(),
                None => groups.get(name.as_str()).ok_or_else(ApiError::no_such_path)?.clone(),
            };
            let mut document = json!({ "kind": "APIGroup", "apiVersion": "v1" });
            merge(&mut document, group(name, &served));
            document
        }
        Address::Resources { group, version } => resources(kinds, group, version)?,
        Address::Objects(_) | Address::Other(_) => return Err(ApiError::no_such_path()),
    };
    Ok(answer_value(StatusCode::OK, &document))
}

/// The paths that `/` lists.
pub(crate) fn paths(kinds: &Kinds) -> Vec<String> {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    for (name, versions) in groups(kinds) {
        paths.push(format!("/apis/{name}"));
        paths.extend(versions.iter().map(|version| format!("/apis/{name}/{version}")));
    }
    paths.extend(
        ["/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
            .map(str::to_owned),
    );
    paths
}

fn wants_aggregated(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|range| {
        let parameters: Vec<&str> = range.split(';').map(str::trim).collect();
        ["g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"]
            .iter()
            .all(|wanted| parameters.contains(wanted))
    })
}

/// The named groups with their versions, newest first.
fn groups(kinds: &Kinds) -> BTreeMap<&str, Vec<&str>> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in kinds.iter().filter(|row| !row.group().is_empty()) {
        let versions = groups.entry(row.group()).or_default();
        if !versions.contains(&row.version()) {
            versions.insert(0, row.version());
        }
    }
    for versions in groups.values_mut() {
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
    }
    groups
}

/// The groups that no other API server has taken over.
fn own_groups<'a>(kinds: &'a Kinds, remote: &[RemoteGroup]) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut own = groups(kinds);
    own.retain(|name, _| !remote.iter().any(|remote| remote.name == *name));
    own
}

/// The priority of a version: stable before beta before alpha, newer before older.
fn priority(version: &str) -> (u8, u32, u32) {
    let number = |text: &str| text.parse::<u32>().ok();
    let parse = || {
        let rest = version.strip_prefix('v')?;
        for (rank, word) in [(2, "beta"), (1, "alpha")] {
            if let Some((major, minor)) = rest.split_once(word) {
                return Some((rank, number(major)?, number(minor)?));
            }
        }
        Some((3, number(rest)?, 0))
    };
    parse().unwrap_or_default()
}

fn group(name: &str, versions: &[&str]) -> Value {
    let version = |version: &&str| json!({ "groupVersion": format!("{name}/{version}"), "version": version });
    json!({
        "name": name,
        "versions": versions.iter().map(version).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(version),
    })
}

fn resources(kinds: &Kinds, group: &str, version: &str) -> Result<Value, ApiError> {
    let mut list = Vec::new();
    for row in kinds.iter().filter(|row| row.group() == group && row.version() == version) {
        let resource = &row.resource;
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": row.is_namespaced(),
            "kind": resource.kind, "verbs": resource.verbs,
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        if !resource.categories.is_empty() {
            entry["categories"] = json!(resource.categories);
        }
        list.push(entry);
        for subresource in &resource.subresources {
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, subresource.name), "singularName": "",
                "namespaced": row.is_namespaced(), "kind": subresource.kind, "verbs": subresource.verbs,
            });
            if (&subresource.group, &subresource.version) != (&resource.group, &resource.version) {
                entry["group"] = json!(subresource.group);
                entry["version"] = json!(subresource.version);
            }
            list.push(entry);
        }
    }
    if list.is_empty() {
        return Err(ApiError::no_such_path());
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Ok(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list,
    }))
}

fn aggregated(kinds: &Kinds, remote: &[RemoteGroup], core: bool) -> Value {
    let mut items = Vec::new();
    let names: Vec<(&str, Vec<&str>)> =
        if core { vec![("", vec!["v1"])] } else { own_groups(kinds, remote).into_iter().collect() };
    for (name, versions) in names {
        let versions: Vec<Value> = versions
            .iter()
            .map(|version| {
                let rows = kinds.iter().filter(|row| row.group() == name && row.version() == *version);
                json!({
                    "version": version, "freshness": "Current",
                    "resources": rows.map(aggregated_resource).collect::<Vec<_>>(),
                })
            })
            .collect();
        let metadata = if name.is_empty() { json!({}) } else { json!({ "name": name }) };
        items.push(json!({ "metadata": metadata, "versions": versions }));
    }
    if !core {
        items.extend(remote.iter().map(RemoteGroup::aggregated));
    }
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    })
}

fn aggregated_resource(row: &Row) -> Value {
    let resource = &row.resource;
    let kind =
        |group: &str, version: &str, kind: &str| json!({ "group": group, "version": version, "kind": kind });
    let mut entry = json!({
        "resource": resource.plural, "responseKind": kind(&resource.group, &resource.version, &resource.kind),
        "scope": if row.is_namespaced() { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular, "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|sub| {
            json!({
                "subresource": sub.name, "responseKind": kind(&sub.group, &sub.version, &sub.kind), "verbs": sub.verbs,
            })
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = json!(subresources);
    }
    entry
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}
