//! The plugin `PersistentVolumeClaimResize`.

use plumb_resize::list::{ResourceList, WireList};
use serde_json::Value;

use plumb_apiserver::admission::{Attributes, Operation, Plugin};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::stored;

/// Rejects the expansion of a claim whose storage class does not allow volume expansion.
pub(crate) struct PersistentVolumeClaimResize;

impl Plugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Update && attributes.is("", "persistentvolumeclaims")
    }

    fn validate(&self, attributes: &Attributes<'_>, new: &Value) -> Result<(), ApiError> {
        let old = attributes.old;
        let (Some(before), Some(after)) = (storage(old), storage(new)) else { return Ok(()) };
        if after <= before {
            return Ok(());
        }
        if old["status"]["phase"] != "Bound" {
            return Err(attributes.forbidden("Only bound persistent volume claims can be expanded"));
        }
        let class = new["spec"]["storageClassName"].as_str().unwrap_or_default();
        let class =
            stored::one(attributes.cluster.store(), ("storage.k8s.io", "storageclasses"), None, class)?;
        if class.is_some_and(|class| class["allowVolumeExpansion"] == true) {
            return Ok(());
        }
        Err(attributes.forbidden(
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
             support resize",
        ))
    }
}

fn storage(claim: &Value) -> Option<plumb_resize::Quantity> {
    let requests: WireList =
        serde_json::from_value(claim.pointer("/spec/resources/requests")?.clone()).ok()?;
    ResourceList::read(Some(&requests)).ok()?.get("storage")
}
