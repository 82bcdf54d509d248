//! The metrics API: `metrics.k8s.io/v1beta1`, as metrics-server serves it.
//!
//! Its objects are not stored. The nodes and pods, and their labels, come from the store; their usage comes from a
//! [`UsageSource`]. So deleted nodes and pods are never listed, and those without a measurement are left out.

use http::{Response, StatusCode};
use jiff::Timestamp;
use plumb_store::{List, Object};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::endpoints::read::Selection;
use crate::endpoints::response::{show_value, show_values};
use crate::error::{ApiError, gone};
use crate::kinds::Row;
use crate::object::moment;
use crate::request::{Call, RequestInfo};
use crate::response_body::Body;
use crate::url::Verb;
use crate::usage::{Amounts, UsageSource};

/// The fields of a node or pod that its metrics repeat or need.
#[derive(Deserialize)]
struct Measured {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    namespace: Option<String>,
    #[serde(default)]
    labels: Map<String, Value>,
}

/// Handles a request of the metrics API.
pub(crate) fn answer(call: &Call) -> Result<Response<Body>, ApiError> {
    let (source, now, row) = (call.server.usage()?, call.cluster().now(), &call.scope.row);
    // `PodMetrics` have the names of their pods, and the resource has the plural of pods.
    let measured = call.cluster().kinds().find("", row.plural()).ok_or_else(ApiError::no_such_path)?;
    if call.info.verb == Verb::List {
        return list(call, source, &measured, now);
    }
    let key = measured.key(call.info.namespace(), call.info.name())?;
    let object = call.cluster().store().get(&key).ok_or_else(|| measured.not_found(call.info.name()))?;
    let metrics = metrics(row, source, &object, now)?.ok_or_else(|| unknown(row, &call.info))?;
    show_value(call, StatusCode::OK, metrics)
}

fn list(
    call: &Call,
    source: &dyn UsageSource,
    measured: &Row,
    now: Timestamp,
) -> Result<Response<Body>, ApiError> {
    let selection = Selection::of(&call.scope, &call.query, call.info.name())?;
    let all = List::all(measured.prefix(call.info.namespace())?);
    let page = call.cluster().store().list_where(&all, |object| selection.selects(object)).map_err(gone)?;
    let mut items = Vec::with_capacity(page.objects.len());
    for object in &page.objects {
        items.extend(metrics(&call.scope.row, source, object, now)?);
    }
    show_values(call, items)
}

/// The metrics of one node or pod; none if there is no measurement.
fn metrics(
    row: &Row,
    source: &dyn UsageSource,
    object: &Object,
    now: Timestamp,
) -> Result<Option<Value>, ApiError> {
    let measured: Measured = serde_json::from_slice(&object.value)
        .map_err(|error| ApiError::internal(format!("a stored object is damaged: {error}")))?;
    let Metadata { name, namespace, labels } = measured.metadata;
    let (span, (field, usage)) = if let Some(namespace) = &namespace {
        // A pod without a node has no usage.
        let node = measured.spec.node_name.as_deref();
        let Some(usage) = node.and_then(|node| source.pod(node, namespace, &name)) else { return Ok(None) };
        let container = |(name, used): &(String, Amounts)| json!({ "name": name, "usage": used.to_json() });
        (usage.span, ("containers", usage.containers.iter().map(container).collect()))
    } else {
        let Some(usage) = source.node(&name) else { return Ok(None) };
        (usage.span, ("usage", usage.used.to_json()))
    };
    let mut metadata = json!({ "name": name, "creationTimestamp": moment(now) });
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    if !labels.is_empty() {
        metadata["labels"] = Value::Object(labels);
    }
    let mut metrics = json!({
        "kind": row.kind(), "apiVersion": row.api_version(), "metadata": metadata,
        "timestamp": moment(span.until), "window": plumb_go::duration::format_std(span.length),
    });
    metrics[field] = usage;
    Ok(Some(metrics))
}

/// The error for missing metrics, as metrics-server words it.
fn unknown(row: &Row, info: &RequestInfo) -> ApiError {
    let name = match info.namespace() {
        Some(namespace) => format!("{namespace}/{}", info.name()),
        None => info.name().to_owned(),
    };
    ApiError::not_found(row.group(), &row.kind().to_ascii_lowercase(), &name)
}
