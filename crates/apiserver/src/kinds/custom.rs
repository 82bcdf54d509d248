//! The schema of a custom kind, which a `CustomResourceDefinition` defines.

mod finalizers;
mod since;
mod strategy;

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use plumb_apischema::Schema;
use plumb_apischema::apply::Types;
use plumb_apischema::json::{DecodeError, Decoded, StrictError};
use plumb_crd::Version;
use plumb_validation::field::Path;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

pub(crate) use since::{Since, StaleWrite};

use super::Readable as _;
use crate::error::ApiError;

/// One version of a custom resource definition.
#[derive(Clone, Debug)]
pub struct Custom {
    /// The uid of the definition.
    pub(crate) definition: Arc<str>,
    /// The compiled version: schema, pruning, defaults.
    pub(crate) version: Arc<Version>,
    /// The types for server-side apply, by `group/version`, of every version of the definition. All but this one preserve
    /// unknown fields.
    pub(crate) types: Arc<[(String, Arc<Types>)]>,
    /// The path of the replicas, by `group/version`, of every version with a scale subresource.
    pub(crate) replicas: Arc<[(String, Vec<String>)]>,
    /// The storage version: `example.com/v1`.
    pub(crate) stored: String,
    /// The conversion webhook of the definition, if it has one.
    pub(crate) converter: Option<Arc<dyn Converter>>,
    /// Which objects were written under this schema.
    pub(crate) since: Arc<Since>,
    /// Whether all versions have the same schema, so that it does not matter which one an object was written in.
    pub(crate) alike: bool,
    /// Whether the definition is terminating.
    pub(crate) terminating: bool,
    /// Closed when the definition is changed or deleted.
    pub(crate) life: watch::Receiver<()>,
}

/// The conversion of the objects of a definition from one version to another.
pub(crate) trait Converter: fmt::Debug + Send + Sync {
    /// Objects in a version, in the order in which they are given.
    fn convert<'a>(
        &'a self,
        objects: Vec<Value>,
        wanted: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Value>, ApiError>>;

    /// The storage version.
    fn storage_version(&self) -> &Version;
}

impl Custom {
    /// Decodes an object: metadata as of every kind, the rest by the schema.
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
        if let Some(error) = self.version.decode_error(&value) {
            return Err(DecodeError::Type(error.to_string()));
        }
        self.version.for_each_embedded(&mut value, &mut |inner, path| {
            let Some(metadata) = inner.get_mut("metadata") else { return Ok(()) };
            let path = path.child("metadata");
            strict.extend(read_inside(metadata, &path)?);
            Ok(())
        })?;
        let dropped = self.version.prune(&mut value);
        strict.extend(dropped.into_iter().map(StrictError::Unknown));
        Ok(Decoded { value, strict })
    }

    /// Waits until the definition is changed or deleted.
    pub(crate) async fn ended(life: &mut Option<watch::Receiver<()>>) {
        match life {
            Some(life) => while life.changed().await.is_ok() {},
            None => std::future::pending().await,
        }
    }
}

/// The error of metadata, which is decoded separately.
fn by_itself(why: &str) -> String {
    why.replacen(".metadata.", ".", 1).replacen(
        "Go struct field PartialObjectMetadata.metadata of type",
        "Go value of type",
        1,
    )
}

/// Decodes the metadata of an embedded resource, and returns the fields that were dropped.
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

/// Stores numbers without a fraction as integers, however they are written.
pub(crate) fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            // Go encodes smaller numbers without an exponent.
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

/// Decodes integers above the largest signed one as floating-point numbers, as upstream does.
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
