//! The OpenAPI documents: `/openapi/v2` and `/openapi/v3`.

mod custom;
mod v2;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use parking_lot::Mutex;
use plumb_apischema::{Schema as Kubernetes, openapi, protobuf};
use serde_json::{Value, json};

use crate::codec::{answer, answer_value};
use crate::error::ApiError;
use crate::kinds::{Kinds, Since};
use crate::response_body::Body;
pub(crate) use v2::AggregatedSpec;

/// The documents, built at the first request, as they are large and many clusters do not need them. Those of custom
/// kinds are rebuilt when a definition changes.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    builtin: OnceLock<BTreeMap<String, Document>>,
    custom: Mutex<BTreeMap<String, (Vec<Schema>, Document)>>,
    swagger: Mutex<Option<Swagger>>,
}

/// The OpenAPI v2 document.
#[derive(Debug)]
struct Swagger {
    /// The hashes of the documents of custom kinds and of other API servers that it contains.
    made_of: Vec<String>,
    json: Bytes,
    /// The same in protobuf, encoded at the first request for it.
    protobuf: OnceLock<Bytes>,
}

impl Swagger {
    fn protobuf(&self) -> Bytes {
        let encode = || {
            // The server encoded the document itself, so it decodes.
            let document = serde_json::from_slice::<Value>(&self.json).unwrap_or_default();
            Bytes::from(protobuf::openapi_v2(&document))
        };
        self.protobuf.get_or_init(encode).clone()
    }
}

/// The inputs of a custom kind's document: the resource, and its schema, which is a new one after a change.
type Schema = (String, Arc<Since>);

#[derive(Clone, Debug)]
struct Document {
    hash: String,
    bytes: Bytes,
}

impl Document {
    fn of(value: &Value) -> Self {
        let bytes = Bytes::from(value.to_string());
        Self { hash: openapi::hash(&bytes), bytes }
    }
}

impl Documents {
    /// Serves a request below `/openapi/v3`; `path` is the rest of the URL path.
    /// The index also names what aggregated API servers serve themselves, by their paths.
    pub(crate) fn answer(
        &self,
        kinds: &Kinds,
        remote: impl Iterator<Item = String>,
        path: &str,
    ) -> Result<Response<Body>, ApiError> {
        let builtin = self.builtin.get_or_init(|| make(kinds));
        let custom = self.custom(kinds);
        match path.trim_matches('/') {
            "" => {
                let all = builtin.iter().chain(&custom);
                let index = all.map(|(name, document)| (name.as_str(), document.hash.as_str()));
                let mut index = openapi::index(index);
                for path in remote {
                    let address = json!({ "serverRelativeURL": format!("/openapi/v3{path}") });
                    index["paths"][path.trim_start_matches('/')] = address;
                }
                Ok(answer_value(StatusCode::OK, &index))
            }
            name => {
                let document = builtin.get(name).or_else(|| custom.get(name));
                let document = document.ok_or_else(ApiError::no_such_path)?;
                Ok(answer(StatusCode::OK, document.bytes.clone()))
            }
        }
    }

    /// Serves `/openapi/v2`: all kinds in one document, those of other API servers too, as JSON or protobuf.
    pub(crate) fn swagger(
        &self,
        kinds: &Kinds,
        aggregated: &[Arc<AggregatedSpec>],
        headers: &HeaderMap,
    ) -> Result<Response<Body>, ApiError> {
        let format = v2::Format::of(headers)?;
        let builtin = self.builtin.get_or_init(|| make(kinds));
        let custom = self.custom(kinds);
        let custom_hashes = custom.values().map(|document| document.hash.as_str());
        let made_of = custom_hashes.chain(aggregated.iter().map(|spec| spec.hash()));
        let made_of: Vec<String> = made_of.map(str::to_owned).collect();
        let mut known = self.swagger.lock();
        known.take_if(|swagger| swagger.made_of != made_of);
        let swagger = known.get_or_insert_with(|| {
            let all = builtin.values().chain(custom.values()).map(|document| &*document.bytes);
            let json = Bytes::from(v2::document(all, aggregated).to_string());
            Swagger { made_of, json, protobuf: OnceLock::new() }
        });
        Ok(match format {
            v2::Format::Json => answer(StatusCode::OK, swagger.json.clone()),
            v2::Format::Protobuf => {
                let mut response = answer(StatusCode::OK, swagger.protobuf());
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(v2::PROTOBUF));
                response
            }
        })
    }

    /// The documents of the custom kinds with their current definitions.
    fn custom(&self, kinds: &Kinds) -> BTreeMap<String, Document> {
        let mut known = self.custom.lock();
        let mut next = BTreeMap::new();
        for (name, rows) in custom::documents(kinds) {
            let made_of: Vec<Schema> =
                rows.iter().map(|(row, custom)| (row.plural().to_owned(), custom.since.clone())).collect();
            let is_same = |before: &[Schema]| {
                before.len() == made_of.len()
                    && before.iter().zip(&made_of).all(|(a, b)| a.0 == b.0 && Arc::ptr_eq(&a.1, &b.1))
            };
            let document = match known.remove(&name) {
                Some((before, document)) if is_same(&before) => document,
                _ => Document::of(&custom::document(&rows)),
            };
            next.insert(name, (made_of, document));
        }
        *known = next;
        known.iter().map(|(name, (_, document))| (name.clone(), document.clone())).collect()
    }
}

fn make(kinds: &Kinds) -> BTreeMap<String, Document> {
    let served: std::collections::BTreeSet<(&str, &str)> =
        kinds.iter().filter(|row| row.custom().is_none()).map(|row| (row.group(), row.version())).collect();
    served
        .into_iter()
        .filter_map(|(group, version)| {
            let mut document = openapi::document(Kubernetes::builtin(), group, version)?;
            if let Some(paths) = document.get_mut("paths").and_then(Value::as_object_mut) {
                paths.retain(|path, _| leads_somewhere(kinds, group, version, path));
            }
            Some((openapi::name(group, version), Document::of(&document)))
        })
        .collect()
}

/// Whether the subresource in a path of a document is served: its feature may be disabled.
fn leads_somewhere(kinds: &Kinds, group: &str, version: &str, path: &str) -> bool {
    let Some((before, below)) = path.split_once("/{name}/") else { return true };
    let below = below.split('/').next().unwrap_or_default();
    let plural = before.rsplit('/').next().unwrap_or_default();
    let row = kinds.iter().find(|row| (row.group(), row.version(), row.plural()) == (group, version, plural));
    row.is_none_or(|row| row.has(below))
}
