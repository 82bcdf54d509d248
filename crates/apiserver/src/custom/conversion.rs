//! Conversion webhooks: what takes objects from one version of a definition to another.
//!
//! ```text
//!   stored bytes of another version ─┐                              ┌─▶ bytes in the version of the request
//!                                    ├─▶ ConversionReview ──────────┤
//!   object to be stored ─────────────┘   (2 MiB of a page each)     └─▶ object in the storage version
//! ```
//!
//! Kind, name, namespace and uid of a converted object have to be those of the original, and its metadata is the
//! original's but for labels and annotations. No lock is held while a webhook is called, and an object is durable before
//! its webhook sees it. A definition with the strategy `None` has no converter, and its objects never come here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use plumb_crd::Version;
use plumb_store::{Object, Store};
use plumb_validation::field::aggregate_message;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::error::{ApiError, store_failed};
use crate::kinds::{Converter, Row, encode_at, head, signed_numbers, whole_numbers};
use crate::object::{decode, meta};
use crate::validation::label_errors;
use crate::webhook::{Backend, Connections};

/// How long a call may take, as upstream.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How many bytes of stored objects one review is made of. A webhook may answer with four times as many, and the review
/// of a page of any size takes no more memory than that of a few objects.
pub(crate) const REVIEW_BYTES: usize = 2 << 20;

/// The conversion webhook of a definition.
#[derive(Debug)]
pub(super) struct WebhookConverter {
    store: Store,
    connections: Arc<Connections>,
    /// The version of the review; none if the webhook reads none that is known here.
    review: Option<&'static str>,
    backend: Result<Arc<Backend>, String>,
    /// The storage version.
    storage: Version,
}

impl WebhookConverter {
    /// The webhook of a definition, if it has one.
    pub(super) fn of(
        definition: &Value,
        store: &Store,
        connections: &Arc<Connections>,
    ) -> Option<Arc<dyn Converter>> {
        let conversion = &definition["spec"]["conversion"];
        if conversion["strategy"] != "Webhook" {
            return None;
        }
        let webhook = &conversion["webhook"];
        let known = |version: &Value| match version.as_str() {
            Some("v1") => Some("v1"),
            Some("v1beta1") => Some("v1beta1"),
            _ => None,
        };
        let versions = plumb_crd::definition::versions(definition);
        let storage = versions.iter().find(|version| version["storage"] == true)?;
        Some(Arc::new(Self {
            store: store.clone(),
            connections: Arc::clone(connections),
            review: webhook["conversionReviewVersions"].as_array().into_iter().flatten().find_map(known),
            backend: connections.backend(&webhook["clientConfig"]),
            storage: Version::compile(definition, storage),
        }))
    }

    /// Objects in a version, by one call.
    async fn call(&self, objects: Vec<Value>, wanted: &str) -> Result<Vec<Value>, ApiError> {
        // Upstream names the kind of the first.
        let named = objects.first().map(kind_of).unwrap_or_default();
        let failed = |why: String| ApiError::unexplained(format!("conversion webhook for {named} {why}"));
        let review =
            self.review.ok_or_else(|| ApiError::unexplained("no supported conversion review versions"))?;
        // An object may be known here before it is durable.
        self.store.sync().await.map_err(|error| store_failed(&error))?;
        let uid = Uuid::new_v4().to_string();
        let request = json!({
            "kind": "ConversionReview", "apiVersion": format!("apiextensions.k8s.io/{review}"),
            "request": { "uid": uid, "desiredAPIVersion": wanted, "objects": objects },
        });
        let answer = self.connections.post(&self.backend, &self.store, TIMEOUT, request.to_string()).await;
        let answer = answer.and_then(|answer| converted(&answer, review, &uid));
        let converted = answer.map_err(|why| failed(format!("failed: {why}")))?;
        if converted.len() != objects.len() {
            let why = format!("returned {} objects, expected {}", converted.len(), objects.len());
            return Err(failed(why));
        }
        let alone = objects.len() == 1;
        let accept = |(index, (original, converted)): (usize, (&Value, Value))| {
            accept(original, converted, wanted).map_err(|invalid| failed(invalid.shown(index, alone)))
        };
        objects.iter().zip(converted).enumerate().map(accept).collect()
    }
}

impl Converter for WebhookConverter {
    fn convert<'a>(
        &'a self,
        objects: Vec<Value>,
        wanted: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Value>, ApiError>> {
        Box::pin(self.call(objects, wanted))
    }

    fn storage_version(&self) -> &Version {
        &self.storage
    }
}

/// What is wrong with a converted object.
enum Invalid {
    /// Its version or its kind.
    Kind(String),
    /// It is another object.
    Identity(String),
    /// Its labels or annotations.
    Metadata(String),
}

impl Invalid {
    /// As upstream says it of one object, or of one among several.
    fn shown(&self, index: usize, alone: bool) -> String {
        match self {
            Self::Kind(why) if alone => format!("returned invalid object at index 0: {why}"),
            Self::Identity(why) if alone => format!("returned invalid object: {why}"),
            Self::Metadata(why) if alone => format!("returned invalid metadata: {why}"),
            Self::Kind(why) | Self::Identity(why) => {
                format!("returned invalid converted object at index {index}: {why}")
            }
            Self::Metadata(why) => format!("returned invalid metadata in object at index {index}: {why}"),
        }
    }
}

fn kind_of(object: &Value) -> String {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    format!("{}, Kind={}", text("apiVersion"), text("kind"))
}

/// The objects of a response.
fn converted(answer: &Value, review: &str, uid: &str) -> Result<Vec<Value>, String> {
    let response = &answer["response"];
    // Reviews of the older version are not checked, as upstream.
    if review == "v1" {
        let wanted = "apiextensions.k8s.io/v1, Kind=ConversionReview";
        let given = kind_of(answer);
        if given != wanted {
            return Err(format!("expected webhook response of {wanted}, got {given}"));
        }
    }
    if !response.is_object() {
        return Err("no response provided".to_owned());
    }
    let given = response["uid"].as_str().unwrap_or_default();
    if review == "v1" && given != uid {
        return Err(format!("expected response.uid={uid:?}, got {given:?}"));
    }
    let result = |field: &str| response["result"][field].as_str().unwrap_or_default();
    if result("status") != "Success" {
        return Err(match result("message") {
            "" => format!("response.result.status was '{}', not 'Success'", result("status")),
            message => message.to_owned(),
        });
    }
    Ok(response["convertedObjects"].as_array().cloned().unwrap_or_default())
}

/// A converted object, with the metadata of the original.
fn accept(original: &Value, mut converted: Value, wanted: &str) -> Result<Value, Invalid> {
    let text = |object: &Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let version = text(&converted, "apiVersion");
    if version != wanted {
        let why = format!("invalid groupVersion (expected {wanted}, received {version})");
        return Err(Invalid::Kind(why));
    }
    let (expected, kind) = (text(original, "kind"), text(&converted, "kind"));
    if kind != expected {
        return Err(Invalid::Kind(format!("invalid kind (expected {expected}, received {kind})")));
    }
    for (field, shown) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (expected, given) = (meta(original, field), meta(&converted, field));
        if expected != given {
            return Err(Invalid::Identity(format!("must have the same {shown}: {expected} != {given}")));
        }
    }
    converted["metadata"] =
        metadata(&original["metadata"], &converted["metadata"]).map_err(Invalid::Metadata)?;
    Ok(converted)
}

/// The metadata of an original with the labels and annotations of the converted object.
fn metadata(original: &Value, given: &Value) -> Result<Value, String> {
    if given.is_null() {
        return Err("missing metadata in converted object".to_owned());
    }
    if !given.is_object() {
        return Err(format!("invalid metadata of type {} in converted object", go_type(given)));
    }
    let mut metadata = original.clone();
    for field in ["labels", "annotations"] {
        let Some(pairs) = given.get(field).filter(|pairs| !pairs.is_null()) else {
            metadata.as_object_mut().map(|all| all.remove(field));
            continue;
        };
        let Some(texts) = pairs.as_object() else {
            let why = format!("invalid metadata.{field} of type {} in converted object", go_type(pairs));
            return Err(why);
        };
        if let Some((key, value)) = texts.iter().find(|(_, value)| !value.is_string()) {
            let of = go_type(value);
            return Err(format!("metadata.{field}[{key}] must be a string, but is {of} in converted object"));
        }
        if metadata[field] != *pairs {
            let errors = label_errors(field, pairs);
            if !errors.is_empty() {
                return Err(aggregate_message(&errors));
            }
        }
        metadata[field] = pairs.clone();
    }
    Ok(metadata)
}

/// What Go calls the type of decoded JSON.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// The converter of a row, if its definition has one.
fn converter(row: &Row) -> Option<&dyn Converter> {
    row.custom().and_then(|custom| custom.converter.as_deref())
}

/// Stored objects in the version of a row: those that were stored in another are converted, one review after the other.
async fn convert_all(
    converter: &dyn Converter,
    row: &Row,
    mut stored: Vec<Bytes>,
) -> Result<Vec<Bytes>, ApiError> {
    let own = head(row);
    let others = stored.iter().enumerate().filter(|(_, bytes)| !bytes.starts_with(own.as_bytes()));
    let others: Vec<(usize, Bytes)> = others.map(|(place, bytes)| (place, bytes.clone())).collect();
    for review in reviews(&others, |(_, bytes)| bytes.len()) {
        for (place, converted) in convert_some(converter, row, review).await? {
            stored[place] = converted;
        }
    }
    Ok(stored)
}

/// Splits objects into reviews, in their order. An object that is larger than a review goes alone.
fn reviews<T>(mut objects: &[T], size: impl Fn(&T) -> usize) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let mut total = 0_usize;
        let fits = objects.iter().take_while(|object| {
            total = total.saturating_add(size(object));
            total <= REVIEW_BYTES
        });
        let (review, left) = objects.split_at(fits.count().max(1).min(objects.len()));
        objects = left;
        (!review.is_empty()).then_some(review)
    })
}

/// Stored objects in the version of a row, by one review. Each comes with its place in the list.
async fn convert_some(
    converter: &dyn Converter,
    row: &Row,
    stored: &[(usize, Bytes)],
) -> Result<Vec<(usize, Bytes)>, ApiError> {
    let wanted = row.api_version();
    let (mut places, mut objects) = (Vec::new(), Vec::new());
    for (place, bytes) in stored {
        let object = decode(bytes)?;
        if object["apiVersion"] != *wanted {
            places.push(*place);
            objects.push(object);
        }
    }
    if objects.is_empty() {
        return Ok(Vec::new());
    }
    let converted = converter.convert(objects, &wanted).await?;
    let encoded = |(place, mut object): (usize, Value)| {
        signed_numbers(&mut object);
        if let Some(custom) = row.custom() {
            custom.version.prune(&mut object);
        }
        let revision = meta(&object, "resourceVersion").parse().unwrap_or_default();
        Ok((place, encode_at(row, &object, revision)?))
    };
    places.into_iter().zip(converted).map(encoded).collect()
}

/// A stored object in the version of a row.
pub(crate) async fn in_version(row: &Row, stored: &Bytes) -> Result<Bytes, ApiError> {
    let Some(converter) = converter(row) else { return Ok(stored.clone()) };
    let converted = Box::pin(convert_all(converter, row, vec![stored.clone()])).await?;
    converted.into_iter().next().ok_or_else(|| ApiError::internal("a conversion without an object"))
}

/// Stored objects in the version of a row.
pub(crate) async fn all_in_version(
    row: &Row,
    objects: Vec<Arc<Object>>,
) -> Result<Vec<Arc<Object>>, ApiError> {
    let Some(converter) = converter(row) else { return Ok(objects) };
    let stored = objects.iter().map(|object| object.value.clone()).collect();
    let converted = Box::pin(convert_all(converter, row, stored)).await?;
    let replaced = |(object, value): (Arc<Object>, Bytes)| {
        if object.value == value { object } else { Arc::new(Object { value, ..(*object).clone() }) }
    };
    Ok(objects.into_iter().zip(converted).map(replaced).collect())
}

/// An object of a request in the storage version; none if that is the version of the row. The flag is set if a webhook is
/// called, since such a write has fewer attempts.
pub(crate) async fn in_storage_version(
    row: &Row,
    object: &Value,
    called_webhooks: &AtomicBool,
) -> Result<Option<Value>, ApiError> {
    let Some(converter) = converter(row) else { return Ok(None) };
    let stored = row.custom().map_or("", |custom| &custom.stored);
    if row.api_version() == stored {
        return Ok(None);
    }
    called_webhooks.store(true, Ordering::Relaxed);
    let converted = converter.convert(vec![object.clone()], stored).await?;
    let converted = converted.into_iter().next();
    let mut converted = converted.ok_or_else(|| ApiError::internal("a conversion without an object"))?;
    signed_numbers(&mut converted);
    converter.storage_version().prune(&mut converted);
    Ok(Some(converted))
}

/// Whether an object is stored as it would be stored now. It is not if the storage version or its schema has changed
/// since: then an update without changes writes it, which is how objects are migrated to another storage version.
pub(crate) async fn is_stored_as(
    row: &Row,
    stored: &Object,
    object: &Value,
    called_webhooks: &AtomicBool,
) -> Result<bool, ApiError> {
    let Some(custom) = row.custom() else { return Ok(true) };
    let mut current = match in_storage_version(row, object, called_webhooks).await? {
        Some(converted) => converted,
        None => object.clone(),
    };
    current["apiVersion"] = json!(custom.stored);
    whole_numbers(&mut current);
    Ok(decode(&stored.value)? == current)
}

/// Objects of one version of a definition in another, which its conversion webhook converts.
pub(crate) async fn between_versions(
    from: &Row,
    to: &Row,
    objects: Vec<Value>,
) -> Result<Vec<Value>, ApiError> {
    let converter = converter(from).ok_or_else(|| ApiError::internal("a conversion without a webhook"))?;
    let mut converted = converter.convert(objects, &to.api_version()).await?;
    converted.iter_mut().for_each(signed_numbers);
    Ok(converted)
}

/// Whether objects of a row may have to be converted.
pub(crate) fn has_converter(row: &Row) -> bool {
    converter(row).is_some()
}

/// The object of the response to a dry run: as upstream, the object as it would have been stored and read.
pub(crate) async fn dry_run(
    row: &Row,
    object: Value,
    called_webhooks: &AtomicBool,
) -> Result<Value, ApiError> {
    let Some(stored) = in_storage_version(row, &object, called_webhooks).await? else { return Ok(object) };
    let Some(converter) = converter(row) else { return Ok(object) };
    let converted = converter.convert(vec![stored], &row.api_version()).await?;
    let mut converted = converted.into_iter().next().unwrap_or(object);
    if let Some(custom) = row.custom() {
        signed_numbers(&mut converted);
        custom.version.complete(&mut converted);
    }
    Ok(converted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn reviews_are_bounded_and_together_are_all_objects_in_order(
            sizes in prop::collection::vec(0..3 * REVIEW_BYTES / 2, 0..40),
        ) {
            let split: Vec<&[usize]> = reviews(&sizes, |size| *size).collect();
            prop_assert_eq!(&split.concat(), &sizes);
            for (index, review) in split.iter().enumerate() {
                let total: usize = review.iter().sum();
                prop_assert!(!review.is_empty());
                prop_assert!(total <= REVIEW_BYTES || review.len() == 1);
                // The next object would not have fit.
                if let Some(next) = split.get(index + 1).and_then(|next| next.first()) {
                    prop_assert!(total + next > REVIEW_BYTES);
                }
            }
        }
    }
}
