//! The usage of nodes and pods: `metrics.k8s.io/v1beta1`, as metrics-server serves it.
//!
//! Its objects are not stored. The nodes and pods, and their labels, come from the store; their usage comes from a
//! [`UsageSource`], which the program that embeds the server provides. So deleted nodes and pods are never listed, and those
//! without a measurement are left out.

use std::time::Duration;

use http::{Response, StatusCode};
use jiff::Timestamp;
use plumb_resize::Quantity;
use plumb_store::{List, Object};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::body::Body;
use crate::call::Call;
use crate::error::{ApiError, gone};
use crate::kinds::{METRICS_GROUP, Row};
use crate::object::moment;
use crate::present::{show_value, show_values};
use crate::read::Selection;
use crate::target::Verb;

/// A source of usage. A request asks it for one node or pod after the other, so it must answer from memory.
pub trait UsageSource: Send + Sync {
    /// What a node uses; none if that is not known.
    fn node(&self, name: &str) -> Option<NodeUsage>;

    /// What the containers of a pod on a node use; none if that is not known.
    fn pod(&self, node: &str, namespace: &str, name: &str) -> Option<PodUsage>;
}

/// An amount of each resource that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amounts {
    /// Cores, over the time of the measurement.
    pub cpu: Quantity,
    /// Bytes that cannot be taken away: the working set, at the end of the measurement.
    pub memory: Quantity,
}

/// The time that a measurement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its end.
    pub until: Timestamp,
    /// How long it was.
    pub length: Duration,
}

/// What a node uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeUsage {
    /// When.
    pub span: Span,
    /// How much.
    pub used: Amounts,
}

/// What a pod uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodUsage {
    /// When.
    pub span: Span,
    /// How much, by the name of the container.
    pub containers: Vec<(String, Amounts)>,
}

/// What of a node or pod comes back with its figures.
#[derive(Deserialize)]
struct Measured {
    metadata: Known,
    #[serde(default)]
    spec: Placed,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Placed {
    node_name: Option<String>,
}

#[derive(Deserialize)]
struct Known {
    name: String,
    namespace: Option<String>,
    #[serde(default)]
    labels: Map<String, Value>,
}

/// Answers a request for figures.
pub(crate) fn answer(call: &Call) -> Result<Response<Body>, ApiError> {
    let source = call.server.usage()?;
    // The figures of pods are called as the pods are, and so are the kinds.
    let measured = call.server.kinds().find("", call.row.plural()).ok_or_else(ApiError::no_such_path)?;
    if call.verb == Verb::List {
        return list(call, source, &measured);
    }
    let key = measured.key(call.namespace(), call.name())?;
    let object = call.server.store().get(&key).ok_or_else(|| measured.not_found(call.name()))?;
    let figures = figures(call, source, &object)?.ok_or_else(|| unknown(call))?;
    show_value(call, StatusCode::OK, figures)
}

fn list(call: &Call, source: &dyn UsageSource, measured: &Row) -> Result<Response<Body>, ApiError> {
    let selection = Selection::of(call)?;
    let all = List::all(measured.prefix(call.namespace())?);
    let page = call.server.store().list_where(&all, |object| selection.wants(object)).map_err(gone)?;
    let mut items = Vec::with_capacity(page.objects.len());
    for object in &page.objects {
        items.extend(figures(call, source, object)?);
    }
    show_values(call, items)
}

/// What is known of one node or pod, as an object; none if nothing is.
fn figures(call: &Call, source: &dyn UsageSource, object: &Object) -> Result<Option<Value>, ApiError> {
    let measured: Measured = serde_json::from_slice(&object.value)
        .map_err(|error| ApiError::internal(format!("a stored object is damaged: {error}")))?;
    let Known { name, namespace, labels } = measured.metadata;
    let (span, figures) = if let Some(namespace) = &namespace {
        // A pod without a node has no usage.
        let node = measured.spec.node_name.as_deref();
        let Some(usage) = node.and_then(|node| source.pod(node, namespace, &name)) else { return Ok(None) };
        let container = |(name, used): &(String, Amounts)| json!({ "name": name, "usage": used.to_json() });
        (usage.span, ("containers", usage.containers.iter().map(container).collect()))
    } else {
        let Some(usage) = source.node(&name) else { return Ok(None) };
        (usage.span, ("usage", usage.used.to_json()))
    };
    let mut metadata = json!({ "name": name, "creationTimestamp": moment(call.server.now()) });
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    if !labels.is_empty() {
        metadata["labels"] = Value::Object(labels);
    }
    let mut answer = json!({
        "kind": call.row.kind(), "apiVersion": call.row.api_version(), "metadata": metadata,
        "timestamp": moment(span.until), "window": plumb_go::duration::format_std(span.length),
    });
    answer[figures.0] = figures.1;
    Ok(Some(answer))
}

/// The error for missing metrics, as metrics-server words it.
fn unknown(call: &Call) -> ApiError {
    let name = match call.namespace() {
        Some(namespace) => format!("{namespace}/{}", call.name()),
        None => call.name().to_owned(),
    };
    ApiError::not_found(METRICS_GROUP, &call.row.kind().to_ascii_lowercase(), &name)
}

impl Amounts {
    fn to_json(self) -> Value {
        json!({ "cpu": self.cpu.to_string(), "memory": self.memory.to_string() })
    }
}
