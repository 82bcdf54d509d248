//! Telling the API how a pod stands.
//!
//! Only what differs is sent, and only if the pod is still what it was when that was decided: the patch carries its
//! resource version. Whoever else wrote in between is read first, and everything is decided again.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use plumb_controller::compact;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::Semaphore;

use crate::specify::identity;

/// Who writes, in a pod's managed fields.
const MANAGER: &str = "kubelet";
/// How many reports are on their way at once: enough to keep an API server busy. The others wait as the bytes they are,
/// which is a tenth of what a request takes.
const AT_ONCE: usize = 128;

/// The way to the API for reports, which nodes of one process share.
#[derive(Clone, Debug)]
pub struct Reports(Arc<Semaphore>);

impl Default for Reports {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

/// What became of what was told.
#[derive(Debug)]
pub(crate) enum Told {
    /// It was taken; this is the pod now.
    Taken(Box<Pod>),
    /// The pod had been changed by somebody else, to this.
    Changed(Box<Pod>),
    /// There is no such pod any more.
    Gone,
    /// It did not get there.
    Failed(String),
}

/// What has to be sent to make one status of the other, if anything.
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

/// A status in JSON. Plain data with string keys always has a form in it.
fn text(status: &PodStatus) -> Option<String> {
    serde_json::to_string(status).ok()
}

/// The fields of a status, each as it is written: equal fields are written alike, so nobody need read them.
fn parts(status: &str) -> Option<BTreeMap<&str, &RawValue>> {
    serde_json::from_str(status).ok()
}

/// A pod as it must still be for its report to be taken.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Precondition<'a> {
    uid: &'a str,
    resource_version: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    metadata: Precondition<'a>,
    status: &'a RawValue,
}

/// Sends changes of a pod's status.
pub(crate) async fn tell(client: Client, reports: &Reports, pod: &Pod, changes: &RawValue) -> Told {
    // It is never closed.
    let _turn = reports.0.acquire().await;
    let (namespace, name, uid) = identity(pod);
    let api: Api<Pod> = Api::namespaced(client, namespace);
    let metadata = Precondition { uid, resource_version: pod.metadata.resource_version.as_deref() };
    let patch = Report { metadata, status: changes };
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch_status(name, &params, &Patch::Merge(&patch)).await {
        Ok(pod) => Told::Taken(Box::new(compact(pod))),
        Err(kube::Error::Api(status)) if status.is_not_found() => Told::Gone,
        Err(kube::Error::Api(status)) if status.is_conflict() => match api.get_opt(name).await {
            Ok(Some(now)) if now.metadata.uid.as_deref() == Some(uid) => {
                Told::Changed(Box::new(compact(now)))
            }
            Ok(_) => Told::Gone,
            Err(error) => Told::Failed(error.to_string()),
        },
        Err(error) => Told::Failed(error.to_string()),
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
    fn only_what_differs_is_told_and_what_is_gone_is_null() {
        let told = |old: Option<&PodStatus>, new: &PodStatus| -> Option<Value> {
            changes(old, new).map(|changes| serde_json::from_str(changes.get()).unwrap())
        };
        let (waiting, runs) = (status("Pending", Some("Waits"), "False"), status("Running", None, "False"));
        assert_eq!(told(Some(&runs), &runs), None);
        assert_eq!(told(Some(&waiting), &runs), Some(json!({ "phase": "Running", "reason": null })));
        let ready = status("Running", None, "True");
        let conditions = serde_json::to_value(&ready.conditions).unwrap();
        assert_eq!(told(Some(&runs), &ready), Some(json!({ "conditions": conditions })));
        assert_eq!(told(None, &ready), Some(serde_json::to_value(&ready).unwrap()));
    }
}
