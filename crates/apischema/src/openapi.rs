//! OpenAPI v3 documents, one per group and version, made from the table.
//!
//! kubectl reads from them which fields a kind has and what they mean (`explain`), how its lists are merged (`apply`), and
//! whether PATCH supports `fieldValidation` (`create`, `apply`). The table has names, types and keys;
//! `data/descriptions.tsv` has the descriptions of the kinds that users write most: pods, workloads, quotas, budgets, nodes.
//!
//! OpenAPI 2.0 is made from these documents in the API server, and encoded by [`openapi_v2`](crate::protobuf::openapi_v2).
//!
//! ```
//! use plumb_apischema::{Schema, openapi};
//!
//! let document = openapi::document(Schema::builtin(), "apps", "v1").ok_or("no apps/v1")?;
//! let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
//!
//! assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Deployment");
//! assert!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json").is_some());
//! # Ok::<(), &str>(())
//! ```

mod components;
mod descriptions;
mod operations;
mod paths;

use serde_json::{Map, Value, json};

use crate::schema::Schema;

/// The groups and versions that have a document.
pub fn group_versions(schema: &Schema) -> Vec<(&'static str, &'static str)> {
    let mut found: Vec<_> = schema.resources().iter().map(|row| (row.group, row.version)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The name of a group and version in the index and in the path of its document, such as `api/v1` and `apis/apps/v1`.
pub fn name(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// The index at `/openapi/v3`, from the names and hashes of the documents.
///
/// Clients cache a document until its URL in the index changes.
pub fn index<'n>(documents: impl IntoIterator<Item = (&'n str, &'n str)>) -> Value {
    let paths: Map<String, Value> = documents
        .into_iter()
        .map(|(name, hash)| {
            let address = format!("/openapi/v3/{name}?hash={hash}");
            (name.to_owned(), json!({ "serverRelativeURL": address }))
        })
        .collect();
    json!({ "paths": paths })
}

/// The hash of a document. It depends only on the bytes, so that caches of clients survive restarts and upgrades.
pub fn hash(document: &[u8]) -> String {
    // FNV-1a with 128 bits suffices: the hash distinguishes documents, and protects against nothing.
    const PRIME: u128 = 0x0100_0000_0000_0000_0000_013b;
    const START: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let sum = document.iter().fold(START, |sum, byte| (sum ^ u128::from(*byte)).wrapping_mul(PRIME));
    format!("{sum:032X}")
}

/// The document of a group and version; `None` if it serves no resources.
pub fn document(schema: &Schema, group: &str, version: &str) -> Option<Value> {
    let mut components = components::Components::new(schema, group, version);
    let paths = paths::all(schema, group, version, &mut components);
    if paths.is_empty() {
        return None;
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": "unversioned" },
        "paths": paths,
        "components": { "schemas": components.finish() },
    }))
}
