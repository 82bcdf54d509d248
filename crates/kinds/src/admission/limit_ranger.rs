//! The plugin `LimitRanger`: default requests and limits, and validation against limit ranges.

use k8s_openapi::api::core::v1::{LimitRange, LimitRangeSpec, PersistentVolumeClaim};
use plumb_resize::limit_range::{claim_violations, violations};
use plumb_validation::field::aggregate_texts;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use crate::registry::pod::typed;
use plumb_apiserver::admission::{Attributes, Operation, Plugin};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::object::{is_deleting, metadata};
use plumb_apiserver::stored;

/// Validates new and resized pods, and claims, against the limit ranges of their namespace.
pub(crate) struct LimitRanger;

impl Plugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        let resize = attributes.subresource == Some("resize")
            || (attributes.subresource.is_none() && attributes.cluster.rules().resize_by_pod_update);
        match attributes.operation {
            Operation::Create => attributes.is("", "pods") || attributes.is("", "persistentvolumeclaims"),
            Operation::Update => {
                (resize && attributes.is_below("", "pods")) || attributes.is("", "persistentvolumeclaims")
            }
            Operation::Delete | Operation::Connect => false,
        }
    }

    fn mutate(&self, attributes: &Attributes<'_>, new: &mut Value) -> Result<(), ApiError> {
        if !attributes.is_below("", "pods") || !concerns(attributes, new) {
            return Ok(());
        }
        for range in ranges(attributes)? {
            fill_in(new, &range);
        }
        Ok(())
    }

    fn validate(&self, attributes: &Attributes<'_>, new: &Value) -> Result<(), ApiError> {
        if !concerns(attributes, new) {
            return Ok(());
        }
        for range in ranges(attributes)? {
            let against = if attributes.is_below("", "pods") {
                violations(&typed(new)?.spec.unwrap_or_default(), &range)
            } else {
                let claim = PersistentVolumeClaim::deserialize(new)
                    .map_err(|error| ApiError::bad_request(format!("not a claim: {error}")))?;
                let resources = claim.spec.and_then(|spec| spec.resources);
                claim_violations(resources.and_then(|resources| resources.requests).as_ref(), &range)
            };
            let against = against.map_err(|error| ApiError::bad_request(error.to_string()))?;
            if !against.is_empty() {
                return Err(attributes.forbidden(&aggregate_texts(&against)));
            }
        }
        Ok(())
    }
}

/// Whether a write changes resources. Other updates of a pod, and updates of a terminating object, are not validated.
fn concerns(attributes: &Attributes<'_>, new: &Value) -> bool {
    let old = attributes.old;
    if old.is_null() {
        return true;
    }
    !is_deleting(old)
        && (attributes.subresource.is_some()
            || !attributes.is("", "pods")
            || resources(old).ne(resources(new)))
}

/// The resources of each container of a pod, and those of the pod.
fn resources(pod: &Value) -> impl Iterator<Item = Option<&Value>> {
    let lists = ["containers", "initContainers"].map(|list| pod["spec"][list].as_array());
    let each = lists.into_iter().flatten().flatten().map(|container| container.get("resources"));
    each.chain([pod["spec"].get("resources")])
}

fn ranges(attributes: &Attributes<'_>) -> Result<Vec<LimitRangeSpec>, ApiError> {
    let found: Vec<LimitRange> =
        stored::all(attributes.cluster.store(), ("", "limitranges"), attributes.namespace)?;
    Ok(found.into_iter().filter_map(|range| range.spec).collect())
}

/// Sets the default requests and limits of a limit range on containers without them, and records that in an annotation.
fn fill_in(pod: &mut Value, range: &LimitRangeSpec) {
    let (mut requests, mut limits) = (Map::new(), Map::new());
    for item in range.limits.iter().filter(|item| item.type_ == "Container") {
        let take = |from: &Option<std::collections::BTreeMap<_, _>>, to: &mut Map<String, Value>| {
            to.extend(
                from.iter().flatten().map(|(name, quantity): (&String, &_)| (name.clone(), json!(quantity))),
            );
        };
        take(&item.default_request, &mut requests);
        take(&item.default, &mut limits);
    }
    let mut notes = Vec::new();
    for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let name = container["name"].as_str().unwrap_or_default().to_owned();
            let limited = merge(container, "limits", &limits);
            for (given, kind) in [(merge(container, "requests", &requests), "request"), (limited, "limit")] {
                if !given.is_empty() {
                    notes.push(format!("{} {kind} for {what} {name}", given.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty() {
        let note = format!("LimitRanger plugin set: {}", notes.join("; "));
        let annotations = metadata(pod).entry("annotations").or_insert_with(|| json!({}));
        annotations["kubernetes.io/limit-ranger"] = json!(note);
    }
}

/// Sets missing requests or limits of a container. Returns the names of those that it set.
fn merge(container: &mut Value, list: &str, given: &Map<String, Value>) -> Vec<String> {
    let missing = |name: &&String| container["resources"][list].get(name.as_str()).is_none();
    let names: Vec<String> = given.keys().filter(missing).cloned().collect();
    for name in &names {
        container["resources"][list][name] = given[name].clone();
    }
    names
}
