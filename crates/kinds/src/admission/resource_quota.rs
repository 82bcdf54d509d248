//! The plugin `ResourceQuota`.
//!
//! `plumb-resize` computes the usage of objects. This plugin adds the usage of a write to the status of every quota
//! that matches it, in one transaction with the write. So concurrent writes cannot exceed a quota, and a failed write
//! is not charged. The resource quota controller lowers the usage after deletions and scale-downs.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, Service};
use plumb_resize::quota::{Counted, Item, Refusal, admit};
use plumb_store::{Precondition, Write};
use serde::Deserialize as _;
use serde_json::{Value, json};

use plumb_apiserver::admission::{Attributes, Operation, Plugin};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::kinds::attributes as index;
use plumb_apiserver::kinds::{Row, encode};
use plumb_apiserver::object::decode;
use plumb_apiserver::stored;

/// The plugin `ResourceQuota`.
pub(crate) struct ResourceQuotaPlugin;

impl Plugin for ResourceQuotaPlugin {
    fn name(&self) -> &'static str {
        "ResourceQuota"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        handles(attributes)
    }

    fn charge(&self, attributes: &Attributes<'_>, new: &Value) -> Result<Vec<Write>, ApiError> {
        charge(attributes, new)
    }
}

/// An object that quotas may count, in the types of `plumb-resize`.
enum Thing {
    Pod(Box<Pod>),
    Claim(Box<PersistentVolumeClaim>),
    Service(Box<Service>),
    Other,
}

impl Thing {
    fn read(row: &Row, object: &Value) -> Result<Self, ApiError> {
        let bad = |error: serde_json::Error| ApiError::bad_request(error.to_string());
        Ok(match (row.group(), row.plural()) {
            ("", "pods") => Self::Pod(Box::new(Pod::deserialize(object).map_err(bad)?)),
            ("", "persistentvolumeclaims") => {
                Self::Claim(Box::new(PersistentVolumeClaim::deserialize(object).map_err(bad)?))
            }
            ("", "services") => Self::Service(Box::new(Service::deserialize(object).map_err(bad)?)),
            _ => Self::Other,
        })
    }

    fn counted<'a>(&'a self, attributes: &Attributes<'a>) -> Counted<'a> {
        Counted {
            group: attributes.row.group(),
            plural: attributes.row.plural(),
            item: match self {
                Self::Pod(pod) => Item::Pod(pod),
                Self::Claim(claim) => Item::Claim(claim),
                Self::Service(service) => Item::Service(service),
                Self::Other => Item::Other,
            },
            now: attributes.cluster.now(),
            rules: attributes.cluster.rules(),
        }
    }
}

/// Whether a write can change the usage of an object.
fn handles(attributes: &Attributes<'_>) -> bool {
    if !attributes.row.is_namespaced() || attributes.row.plural() == "events" {
        return false;
    }
    match (attributes.operation, attributes.subresource) {
        (Operation::Create, None) => true,
        (Operation::Update, None) => {
            attributes.row.group().is_empty()
                && matches!(attributes.row.plural(), "pods" | "services" | "persistentvolumeclaims")
        }
        (Operation::Update, Some("resize")) => attributes.is_below("", "pods"),
        (Operation::Update, Some("status")) => {
            attributes.is_below("", "persistentvolumeclaims")
                || (attributes.is_below("", "pods") && is_infeasible(attributes.old))
        }
        _ => false,
    }
}

/// Whether the status of a pod has an infeasible resize. Of the many status updates of node agents, only those that
/// replace such a status can change the usage of a pod.
fn is_infeasible(pod: &Value) -> bool {
    let status = &pod["status"];
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    status["resize"] == "Infeasible"
        || conditions.any(|one| one["type"] == "PodResizePending" && one["reason"] == "Infeasible")
}

/// The status updates of the quotas that match a write, or the error of the first quota that it would exceed.
fn charge(attributes: &Attributes<'_>, new: &Value) -> Result<Vec<Write>, ApiError> {
    let quotas = stored::raw(attributes.cluster.store(), ("", "resourcequotas"), attributes.namespace)?;
    if quotas.is_empty() {
        return Ok(Vec::new());
    }
    let new = Thing::read(attributes.row, new)?;
    let new = new.counted(attributes);
    let old = match attributes.old {
        Value::Null => None,
        old => Some(Thing::read(attributes.row, old)?),
    };
    let old = old.as_ref().map(|old| old.counted(attributes));
    let is_status = attributes.subresource == Some("status");
    let is_reconsidered = old.as_ref().is_some_and(|old| new.is_reconsidered(old));
    let is_pod_status = is_status && attributes.is_below("", "pods");
    if old.as_ref().is_some_and(|old| !new.is_recounted(old)) || (is_pod_status && !is_reconsidered) {
        return Ok(Vec::new());
    }
    let Some(row) = attributes.cluster.kinds().find("", "resourcequotas") else { return Ok(Vec::new()) };
    let mut writes = Vec::new();
    for key in quotas.into_iter().map(|quota| quota.key.clone()) {
        // Charges of concurrent writes count, durable or not.
        let Some(current) = attributes.cluster.store().get_uncommitted(&key) else { continue };
        let quota: ResourceQuota = stored::typed(&current.value)?;
        let used = admit(&quota, &new, old.as_ref(), is_status && !is_reconsidered);
        let Some(used) = used.map_err(|refusal| refuse(attributes, &refusal))? else { continue };
        let mut object = decode(&current.value)?;
        object["status"]["used"] = json!(used.to_wire());
        let write = Write::put(key, encode(&row, &object)?)
            .attributes(index(&row, &object))
            .precondition(Precondition::Revision(current.mod_revision));
        writes.push(write);
    }
    Ok(writes)
}

fn refuse(attributes: &Attributes<'_>, refusal: &Refusal) -> ApiError {
    match refusal {
        Refusal::Unreadable(error) => ApiError::bad_request(error.to_string()),
        refusal => attributes.forbidden(&refusal.to_string()),
    }
}
