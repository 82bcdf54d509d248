//! Kinds that were defined later: how their objects are read, stored and shown.
//!
//! ```text
//!   definition written ──▶ reconcile: names accepted, rows made ──▶ kinds (the next request sees them)
//!                                                                     │
//!   object ──▶ decode ▸ prune ▸ default ▸ judge ──▶ stored in the storage version
//!   stored bytes ──▶ copied, if they are of the version that is asked for and were written under its schema;
//!                    else read, completed and written anew
//! ```

mod controller;
mod conversion;
mod definitions;
pub(crate) mod naming;
mod openapi;
mod reconcile;
mod scale;
mod show;
mod since;
mod table;

pub(crate) use controller::{reconcile_now, run};
pub(crate) use conversion::{
    Converter, REVIEW_BYTES, all_in_version, between_versions, has_converter, in_storage_version, in_version,
    is_stored_as, tried,
};
pub(crate) use definitions::{
    Definitions, accept_names, prepare_create, prepare_update, release, serve_current, writable,
};
pub(crate) use openapi::{document, documents};
pub(crate) use scale::{scale_of, set_replicas};
pub(crate) use show::{Presenter, presented, presented_value};
pub(crate) use since::{Since, StaleWrite};
pub(crate) use table::table;

use plumb_apischema::Schema;
use plumb_apischema::apply::Types;
use plumb_apischema::json::{DecodeError, Decoded, StrictError};
use plumb_crd::Version;
use plumb_validation::field::Path;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio::sync::watch;

use crate::readable::Readable as _;

/// The finalizer that keeps a definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// What was defined of a kind in one version.
#[derive(Clone, Debug)]
pub struct Custom {
    /// The uid of the definition.
    pub(crate) definition: Arc<str>,
    /// The version, ready for objects.
    pub(crate) version: Arc<Version>,
    /// What server-side apply has to know of its objects, by `group/version`, in every version of the
    /// definition; but for this one they take fields that they do not know.
    pub(crate) types: Arc<[(String, Arc<Types>)]>,
    /// Where the number of copies stands, by `group/version`, in every version that has it.
    pub(crate) replicas: Arc<[(String, Vec<String>)]>,
    /// `example.com/v1`: what objects are stored as.
    pub(crate) stored: String,
    /// The conversion webhook of the definition, if it has one.
    pub(crate) converter: Option<Arc<Converter>>,
    /// Which objects were written under this schema.
    pub(crate) since: Arc<Since>,
    /// Whether all versions have the same schema, so that it does not matter which one an object was written in.
    pub(crate) alike: bool,
    /// Whether the definition is on its way out.
    pub(crate) terminating: bool,
    /// Closed when the definition has changed or is gone.
    pub(crate) life: watch::Receiver<()>,
}

impl Custom {
    /// Reads an object: metadata as all metadata is read, the rest as the schema has it.
    pub(crate) fn decode(&self, mut value: Value) -> Result<Decoded, DecodeError> {
        signed_numbers(&mut value);
        let Value::Object(mut object) = value else {
            return Err(DecodeError::Type("json: cannot unmarshal into an object".to_owned()));
        };
        let mut strict = Vec::new();
        if let Some(metadata) = object.remove("metadata") {
            let decoded = decode_metadata(metadata).map_err(|error| match error {
                DecodeError::Type(why) => DecodeError::Type(by_itself(&why)),
                other => other,
            })?;
            strict = decoded.strict;
            object.insert("metadata".to_owned(), decoded.value["metadata"].clone());
        }
        let mut value = Value::Object(object);
        if let Some(error) = self.version.unreadable(&value) {
            return Err(DecodeError::Type(error.to_string()));
        }
        self.version.each_inside(&mut value, &mut |inner, path| {
            let Some(metadata) = inner.get_mut("metadata") else { return Ok(()) };
            let path = path.child("metadata");
            strict.extend(read_inside(metadata, &path)?);
            Ok(())
        })?;
        let dropped = self.version.prune(&mut value);
        strict.extend(dropped.into_iter().map(StrictError::Unknown));
        Ok(Decoded { value, strict })
    }

    /// Waits for the definition to change or to go.
    pub(crate) async fn ended(life: &mut Option<watch::Receiver<()>>) {
        match life {
            Some(life) => while life.changed().await.is_ok() {},
            None => std::future::pending().await,
        }
    }
}

/// What is wrong with metadata, which is read by itself.
fn by_itself(why: &str) -> String {
    why.replacen(".metadata.", ".", 1).replacen(
        "Go struct field PartialObjectMetadata.metadata of type",
        "Go value of type",
        1,
    )
}

/// Reads the metadata of an object inside an object as all metadata is read, and answers with what had to be dropped.
fn read_inside(metadata: &mut Value, path: &Path<'_>) -> Result<Vec<StrictError>, DecodeError> {
    let refused = |why: String| DecodeError::Type(format!("{path}: Invalid value: {metadata}: {why}"));
    let decoded = decode_metadata(metadata.clone()).map_err(|error| match error {
        DecodeError::Type(why) => refused(by_itself(&why)),
        other => other,
    })?;
    let inside = |error: &StrictError| match error {
        StrictError::Unknown(field) => {
            let field = field.strip_prefix("metadata").unwrap_or(field);
            StrictError::Unknown(format!("{path}{field}"))
        }
        other => other.clone(),
    };
    let dropped = decoded.strict.iter().map(inside).collect();
    *metadata = decoded.value.get("metadata").cloned().unwrap_or_else(|| json!({}));
    Ok(dropped)
}

fn decode_metadata(metadata: Value) -> Result<Decoded, DecodeError> {
    let Some(kind) = Schema::builtin().kind("meta.k8s.io", "v1", "PartialObjectMetadata") else {
        return Ok(Decoded { value: json!({ "metadata": metadata }), strict: Vec::new() });
    };
    let mut decoded =
        kind.decode_value(Value::Object(Map::from_iter([("metadata".to_owned(), metadata)])))?;
    plumb_apischema::json::settle(Schema::builtin(), kind, &mut decoded.value);
    Ok(decoded)
}

/// Numbers without a fraction are stored as whole ones, however they were written.
pub(crate) fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            // Go writes numbers below this one without an exponent.
            let whole = number.as_f64().filter(|own| own.fract() == 0.0 && own.abs() < 1e21);
            let Some(text) = whole.map(|own| own.to_string()) else { return };
            if let Ok(whole) = text.parse::<i64>() {
                *value = json!(whole);
            } else if let Ok(whole) = text.parse::<u64>() {
                *value = json!(whole);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// Reads whole numbers above the largest signed one as upstream does: as floating-point numbers.
pub(crate) fn signed_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_u64() && !number.is_i64() => {
            if let Some(float) = number.as_f64() {
                *value = json!(float);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(signed_numbers),
        Value::Object(map) => map.values_mut().for_each(signed_numbers),
        _ => {}
    }
}
