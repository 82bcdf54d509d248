//! Telling the API how a pod stands.
//!
//! Only what differs is sent, and only if the pod is still what it was when that was decided: the patch carries its
//! resource version. Whoever else wrote in between is read first, and everything is decided again.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use plumb_follow::slim;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
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
    // Plain data with string keys always has a JSON form.
    let object = |status: &PodStatus| match serde_json::to_value(status) {
        Ok(Value::Object(object)) => object,
        _ => Map::new(),
    };
    let old = old.map(object).unwrap_or_default();
    let new = object(new);
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let put = new.iter().filter(|(key, value)| old.get(*key) != Some(value));
    let changes: Map<String, Value> =
        put.map(|(key, value)| (key.clone(), value.clone())).chain(gone).collect();
    if changes.is_empty() { None } else { to_raw_value(&changes).ok() }
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
        Ok(pod) => Told::Taken(Box::new(slim(pod))),
        Err(kube::Error::Api(status)) if status.is_not_found() => Told::Gone,
        Err(kube::Error::Api(status)) if status.is_conflict() => match api.get_opt(name).await {
            Ok(Some(now)) if now.metadata.uid.as_deref() == Some(uid) => Told::Changed(Box::new(slim(now))),
            Ok(_) => Told::Gone,
            Err(error) => Told::Failed(error.to_string()),
        },
        Err(error) => Told::Failed(error.to_string()),
    }
}
