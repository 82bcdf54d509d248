//! The documents from which clients learn what objects look like.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bytes::Bytes;
use http::{Response, StatusCode};
use plumb_apischema::{Schema, openapi};

use crate::body::Body;
use crate::error::ApiError;
use crate::exchange::{answer, answer_value};
use crate::kinds::Kinds;

/// The documents, made when the first client asks: they are large, and many clusters live without them.
#[derive(Debug, Default)]
pub(crate) struct Documents(OnceLock<BTreeMap<String, Document>>);

#[derive(Debug)]
struct Document {
    hash: String,
    bytes: Bytes,
}

impl Documents {
    /// Answers a request below `/openapi/v3`; the path is what follows.
    pub(crate) fn answer(&self, kinds: &Kinds, path: &str) -> Result<Response<Body>, ApiError> {
        let documents = self.0.get_or_init(|| make(kinds));
        match path.trim_matches('/') {
            "" => {
                let index = documents.iter().map(|(name, document)| (name.as_str(), document.hash.as_str()));
                Ok(answer_value(StatusCode::OK, &openapi::index(index)))
            }
            name => {
                let document = documents.get(name).ok_or_else(ApiError::no_such_path)?;
                Ok(answer(StatusCode::OK, document.bytes.clone()))
            }
        }
    }
}

fn make(kinds: &Kinds) -> BTreeMap<String, Document> {
    let served: std::collections::BTreeSet<(&str, &str)> =
        kinds.iter().map(|row| (row.group(), row.version())).collect();
    served
        .into_iter()
        .filter_map(|(group, version)| {
            let bytes = Bytes::from(openapi::document(Schema::builtin(), group, version)?.to_string());
            Some((openapi::name(group, version), Document { hash: openapi::hash(&bytes), bytes }))
        })
        .collect()
}
