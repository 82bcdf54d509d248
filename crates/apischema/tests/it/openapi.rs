//! The documents that kubectl reads.

use plumb_apischema::{Schema, openapi};
use serde_json::{Map, Value, json};

fn document(group: &str, version: &str) -> Value {
    openapi::document(Schema::builtin(), group, version).unwrap()
}

#[test]
fn every_served_version_has_a_document_and_a_line_in_the_index() {
    let schema = Schema::builtin();
    let documents: Vec<(String, String)> = openapi::group_versions(schema)
        .into_iter()
        .map(|(group, version)| {
            let text = document(group, version).to_string();
            (openapi::name(group, version), openapi::hash(text.as_bytes()))
        })
        .collect();
    let index = openapi::index(documents.iter().map(|(name, hash)| (name.as_str(), hash.as_str())));
    let address = index["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap();
    assert!(address.starts_with("/openapi/v3/api/v1?hash="), "{address}");
    assert_eq!(index["paths"].as_object().unwrap().len(), documents.len());
    assert!(index["paths"].get("apis/apps/v1").is_some());
    assert!(openapi::document(schema, "example.com", "v1").is_none());
}

#[test]
fn the_hash_of_a_document_changes_with_it_and_only_with_it() {
    let apps = document("apps", "v1").to_string();
    let core = document("", "v1").to_string();
    assert_eq!(openapi::hash(apps.as_bytes()), openapi::hash(document("apps", "v1").to_string().as_bytes()));
    assert_ne!(openapi::hash(apps.as_bytes()), openapi::hash(core.as_bytes()));
}

#[test]
fn every_patch_has_the_extensions_that_kubectl_reads() {
    let schema = Schema::builtin();
    for resource in schema.resources().iter().filter(|resource| resource.allows("patch")) {
        let found = document(resource.group, resource.version);
        let wanted = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
        let paths = found["paths"].as_object().unwrap();
        // kubectl takes whichever PATCH of the kind it meets first.
        let patches: Vec<&Value> = (paths.values().filter_map(|path| path.get("patch")))
            .filter(|patch| patch["x-kubernetes-group-version-kind"] == wanted)
            .collect();
        assert!(!patches.is_empty(), "{}", resource.plural);
        for patch in patches {
            let parameters = patch["parameters"].as_array().unwrap();
            let validation = json!({"in": "query", "name": "fieldValidation", "schema": {"type": "string"}});
            assert!(parameters.contains(&validation), "{}", resource.plural);
            assert!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json").is_some());
        }
        let schemas = found["components"]["schemas"].as_object().unwrap();
        let of_kind = |schema: &&Value| {
            schema["x-kubernetes-group-version-kind"].as_array().is_some_and(|kinds| kinds.contains(&wanted))
        };
        assert_eq!(schemas.values().filter(of_kind).count(), 1, "{}", resource.plural);
    }
}

#[test]
fn every_reference_resolves_to_a_schema() {
    for (group, version) in openapi::group_versions(Schema::builtin()) {
        let found = document(group, version);
        let schemas = found["components"]["schemas"].as_object().unwrap();
        assert!(schemas.values().all(Value::is_object));
        let text = found.to_string();
        for reference in text.split("\"$ref\":\"#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "{group}/{version}: {name}");
        }
    }
}

#[test]
fn no_two_operations_of_a_document_share_a_name() {
    for (group, version) in openapi::group_versions(Schema::builtin()) {
        let found = document(group, version);
        let mut names: Vec<&str> = (found["paths"].as_object().unwrap().values())
            .flat_map(|path| path.as_object().unwrap().values())
            .filter_map(|operation| operation.get("operationId")?.as_str())
            .collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "{group}/{version}");
    }
}

#[test]
fn lists_and_maps_say_how_they_are_merged() {
    let core = document("", "v1");
    let schemas = &core["components"]["schemas"];
    assert_eq!(
        schemas["io.k8s.api.core.v1.Container"]["properties"]["ports"],
        json!({
            "description": "Ports that the container listens on. Apart from hostPort they are for information.",
            "type": "array",
            "items": {"allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.ContainerPort"}]},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["containerPort", "protocol"],
            "x-kubernetes-patch-merge-key": "containerPort",
            "x-kubernetes-patch-strategy": "merge",
        })
    );
    assert_eq!(
        schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["volumes"]["x-kubernetes-patch-strategy"],
        "merge,retainKeys"
    );
    assert_eq!(schemas["io.k8s.api.core.v1.LocalObjectReference"]["x-kubernetes-map-type"], "atomic");
    assert_eq!(schemas["io.k8s.api.core.v1.PodSpec"]["required"], json!(["containers"]));
}

/// Upstream keeps its documents in `api/openapi-spec/v3`; `PLUMB_K8S_OPENAPI` names a copy at v1.36.
#[test]
fn schemas_and_paths_are_those_of_upstreams_documents() {
    let Ok(folder) = std::env::var("PLUMB_K8S_OPENAPI") else {
        plumb_testkit::skip(plumb_testkit::DATA, "PLUMB_K8S_OPENAPI is not set");
        return;
    };
    let mut wrong = 0;
    for (group, version) in openapi::group_versions(Schema::builtin()) {
        let name = openapi::name(group, version).replace('/', "__");
        let Ok(text) = std::fs::read(format!("{folder}/{name}_openapi.json")) else {
            continue;
        };
        let theirs: Value = serde_json::from_slice(&text).unwrap();
        let ours = document(group, version);
        let mut differ = |what: &str, ours: &Value, theirs: &Value| {
            if ours != theirs {
                wrong += 1;
                println!("{name} {what}: {}", super::difference(ours, theirs, ""));
            }
        };
        let ours_schemas = ours["components"]["schemas"].as_object().unwrap();
        for (schema, described) in theirs["components"]["schemas"].as_object().unwrap() {
            if ["APIGroup", "APIResource"].iter().any(|word| schema.contains(word)) {
                continue;
            }
            match ours_schemas.get(schema) {
                Some(found) => differ(schema, &facts(found), &facts(described)),
                // The event of a watch is spoken of only by paths that are not served.
                None if schema.ends_with("WatchEvent") || schema.ends_with("RawExtension") => {}
                None => differ(schema, &Value::Null, described),
            }
        }
        for (path, described) in theirs["paths"].as_object().unwrap() {
            if path.contains("/watch/") || path.ends_with('/') || path.contains("/proxy") {
                continue;
            }
            differ(path, &operations(&ours["paths"][path]), &operations(described));
        }
    }
    assert_eq!(wrong, 0);
}

/// What is left of a schema without prose, defaults, and what the table does not know.
fn facts(schema: &Value) -> Value {
    match schema {
        Value::Object(object) => {
            let left_out =
                ["description", "default", "enum", "x-kubernetes-unions", "x-kubernetes-group-version-kind"];
            let kept = object.iter().filter(|(name, _)| !left_out.contains(&name.as_str()));
            let mut kept: Map<String, Value> =
                kept.map(|(name, inner)| (name.clone(), facts(inner))).collect();
            // Upstream wraps some references that stand alone and not others; it means the same.
            if let (1, Some(Value::Array(one))) = (kept.len(), kept.get("allOf"))
                && let [reference] = one.as_slice()
            {
                return reference.clone();
            }
            if let Some(Value::Array(required)) = kept.get_mut("required") {
                required.sort_by_key(ToString::to_string);
            }
            // Fields may be called as the words left out are.
            if let Some(Value::Object(properties)) = object.get("properties") {
                let all = properties.iter().map(|(name, inner)| (name.clone(), facts(inner)));
                kept.insert("properties".to_owned(), Value::Object(all.collect()));
            }
            Value::Object(kept)
        }
        Value::Array(list) => Value::Array(list.iter().map(facts).collect()),
        other => other.clone(),
    }
}

/// The operations of a path: name, action, kind, and the content types of a patch.
fn operations(path: &Value) -> Value {
    let mut found = Map::new();
    for (method, operation) in path.as_object().into_iter().flatten() {
        if method == "parameters" {
            continue;
        }
        let queries: Vec<&str> = (operation["parameters"].as_array().into_iter().flatten())
            .filter_map(|parameter| parameter["name"].as_str())
            .collect();
        // Of the others, upstream's differ with what a server can do.
        let queries = if method == "patch" { queries } else { Vec::new() };
        let described = json!({
            "operationId": operation["operationId"],
            "action": operation["x-kubernetes-action"],
            "kind": operation["x-kubernetes-group-version-kind"],
            "queries": queries,
        });
        found.insert(method.clone(), described);
    }
    Value::Object(found)
}

/// The fields without a description of a type and of all that it consists of, as `PodSpec.containers`.
fn undescribed(document: &Value, name: &str) -> std::collections::BTreeSet<String> {
    let schemas = &document["components"]["schemas"];
    let mut seen = std::collections::BTreeSet::from([name.to_owned()]);
    let mut waiting = vec![name.to_owned()];
    let mut missing = std::collections::BTreeSet::new();
    while let Some(name) = waiting.pop() {
        let short = name.rsplit('.').next().unwrap();
        for (field, property) in schemas[&name]["properties"].as_object().into_iter().flatten() {
            if property["description"].as_str().is_none_or(str::is_empty) {
                missing.insert(format!("{short}.{field}"));
            }
            let text = property.to_string();
            for referred in text.split("#/components/schemas/").skip(1) {
                let referred = referred.split('"').next().unwrap().to_owned();
                if seen.insert(referred.clone()) {
                    waiting.push(referred);
                }
            }
        }
    }
    missing
}

#[test]
fn every_field_of_pods_workloads_and_quotas_is_described() {
    // Volumes of single vendors, which no node here mounts, need no words.
    const VENDORS: [&str; 19] = [
        "AWSElasticBlockStore",
        "AzureDisk",
        "AzureFile",
        "CephFS",
        "Cinder",
        "FC",
        "FlexVolume",
        "Flocker",
        "GCEPersistentDisk",
        "GitRepo",
        "Glusterfs",
        "ISCSI",
        "PhotonPersistentDisk",
        "Portworx",
        "Quobyte",
        "RBD",
        "ScaleIO",
        "StorageOS",
        "VsphereVirtualDisk",
    ];
    let kinds = [
        ("", "v1", "api.core.v1", "Pod LimitRange ResourceQuota ConfigMap Secret ServiceAccount Namespace"),
        ("apps", "v1", "api.apps.v1", "Deployment StatefulSet DaemonSet ReplicaSet"),
        ("batch", "v1", "api.batch.v1", "Job CronJob"),
        ("policy", "v1", "api.policy.v1", "PodDisruptionBudget"),
        ("scheduling.k8s.io", "v1", "api.scheduling.v1", "PriorityClass"),
    ];
    for (group, version, package, names) in kinds {
        let document = document(group, version);
        for name in names.split(' ') {
            let of = format!("io.k8s.{package}.{name}");
            assert!(document["components"]["schemas"][&of]["description"].is_string(), "{name}");
            let mut missing = undescribed(&document, &of);
            missing.retain(|field| !VENDORS.iter().any(|vendor| field.starts_with(vendor)));
            assert!(missing.is_empty(), "{name}: {missing:?}");
        }
    }
}
