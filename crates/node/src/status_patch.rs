//! Patching the status of a pod.
//!
//! The patch has only the fields that differ, and the resource version that they were computed from. After a conflict
//! the pod is read again, and the status is computed again.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Client;
use kube::api::{Patch, PatchParams};
use plumb_client::Api;
use plumb_controller_runtime::compact;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::Semaphore;

use crate::cri_config::identity;

/// The field manager.
const MANAGER: &str = "kubelet";
/// How many patches are sent concurrently: enough to keep an API server busy. The others wait as bytes, which take a
/// tenth of the memory of a request.
const AT_ONCE: usize = 128;

/// Limits concurrent status patches; nodes of one process share it.
#[derive(Clone, Debug)]
pub struct StatusLimiter(Arc<Semaphore>);

impl Default for StatusLimiter {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

/// The outcome of a status patch.
#[derive(Debug)]
pub(crate) enum PatchOutcome {
    /// It was applied; this is the pod now.
    Applied(Box<Pod>),
    /// Another writer had changed the pod, to this.
    Conflict(Box<Pod>),
    /// The pod does not exist any more.
    NotFound,
    /// Admission rejected it, with this message: a resize that is reconsidered exceeds a quota.
    Forbidden(String),
    /// The request failed.
    Failed(String),
}

/// The merge patch from one status to the other, if they differ.
pub(crate) fn changes(old: Option<&PodStatus>, new: &PodStatus) -> Option<Box<RawValue>> {
    if old == Some(new) {
        return None;
    }
    let (old, new) = (old.and_then(text), text(new)?);
    let (old, new) = (old.as_deref().and_then(parts).unwrap_or_default(), parts(&new)?);
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (*key, RawValue::NULL));
    let put = new.iter().filter(|(key, value)| old.get(*key).is_none_or(|old| old.get() != value.get()));
    let changes: BTreeMap<&str, &RawValue> = put.map(|(key, value)| (*key, *value)).chain(gone).collect();
    if changes.is_empty() { None } else { to_raw_value(&changes).ok() }
}

/// A status in JSON.
fn text(status: &PodStatus) -> Option<String> {
    serde_json::to_string(status).ok()
}

/// The fields of a status as raw JSON: equal fields have equal JSON, so they are not decoded.
fn parts(status: &str) -> Option<BTreeMap<&str, &RawValue>> {
    serde_json::from_str(status).ok()
}

/// The precondition of the patch.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Precondition<'a> {
    uid: &'a str,
    resource_version: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct StatusPatch<'a> {
    metadata: Precondition<'a>,
    status: &'a RawValue,
}

/// Patches the status of a pod.
pub(crate) async fn patch_status(
    client: Client,
    limiter: &StatusLimiter,
    pod: &Pod,
    changes: &RawValue,
) -> PatchOutcome {
    // The semaphore is never closed.
    let _turn = limiter.0.acquire().await;
    let (namespace, name, uid) = identity(pod);
    let api: Api<Pod> = Api::namespaced(client, namespace);
    let metadata = Precondition { uid, resource_version: pod.metadata.resource_version.as_deref() };
    let patch = StatusPatch { metadata, status: changes };
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch_status(name, &params, &Patch::Merge(&patch)).await {
        Ok(pod) => PatchOutcome::Applied(Box::new(compact(pod))),
        Err(kube::Error::Api(status)) if status.is_not_found() => PatchOutcome::NotFound,
        Err(kube::Error::Api(status)) if status.is_forbidden() => PatchOutcome::Forbidden(status.message),
        Err(kube::Error::Api(status)) if status.is_conflict() => match api.get_opt(name).await {
            Ok(Some(now)) if now.metadata.uid.as_deref() == Some(uid) => {
                PatchOutcome::Conflict(Box::new(compact(now)))
            }
            Ok(_) => PatchOutcome::NotFound,
            Err(error) => PatchOutcome::Failed(error.to_string()),
        },
        Err(error) => PatchOutcome::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{PodCondition, PodIP};
    use serde_json::{Value, json};

    use super::*;

    fn status(phase: &str, reason: Option<&str>, ready: &str) -> PodStatus {
        let condition =
            PodCondition { type_: "Ready".into(), status: ready.into(), ..PodCondition::default() };
        PodStatus {
            phase: Some(phase.into()),
            reason: reason.map(Into::into),
            conditions: Some(vec![condition]),
            pod_ips: Some(vec![PodIP { ip: "10.0.0.1".into() }]),
            ..PodStatus::default()
        }
    }

    #[test]
    fn a_patch_has_only_fields_that_differ_and_null_for_removed_ones() {
        let patch = |old: Option<&PodStatus>, new: &PodStatus| -> Option<Value> {
            changes(old, new).map(|changes| serde_json::from_str(changes.get()).unwrap())
        };
        let (waiting, runs) = (status("Pending", Some("Waits"), "False"), status("Running", None, "False"));
        assert_eq!(patch(Some(&runs), &runs), None);
        assert_eq!(patch(Some(&waiting), &runs), Some(json!({ "phase": "Running", "reason": null })));
        let ready = status("Running", None, "True");
        let conditions = serde_json::to_value(&ready.conditions).unwrap();
        assert_eq!(patch(Some(&runs), &ready), Some(json!({ "conditions": conditions })));
        assert_eq!(patch(None, &ready), Some(serde_json::to_value(&ready).unwrap()));
    }
}
