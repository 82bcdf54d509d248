//! The writes of a workload: its record, its hold, its `ReplicaSets`.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PostParams, Preconditions};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use plumb_client::Api;
use plumb_controller_runtime::{ObjectRef, Store, Watchable, Write};
use serde_json::{Value, json};

use super::informers::Informers;
use super::kind::WorkloadKind;
use super::object::Workload;
use super::record::WorkloadRecord;
use super::replica_sets::Step;
use super::{RECORD_ANNOTATION, STATUS_ANNOTATION};
use crate::engine::{FIELD_MANAGER, patch_params};
use crate::request::RequestError;

/// Patches a workload, if it is still the version that was decided upon, and waits until its store has the result.
pub(super) async fn patch_workload(
    client: &Client,
    informers: &Informers,
    workload: &Workload,
    operation: &'static str,
    mut patch: Value,
) -> Result<(), RequestError> {
    patch["metadata"]["resourceVersion"] = json!(workload.metadata().resource_version);
    let sent = send(client, informers, workload, PatchTarget::Object, &Patch::Merge(patch)).await;
    sent.map_err(failed(operation, workload))
}

/// Records a rollout and restores the resources in the template of a workload in one write, if it is still the version that
/// was decided upon. Waits until its store has the result.
pub(super) async fn restore_template(
    client: &Client,
    informers: &Informers,
    workload: &Workload,
    operation: &'static str,
    template: &PodTemplateSpec,
    record: &WorkloadRecord,
) -> Result<(), RequestError> {
    let sent = async {
        let patch = template_patch(workload.kind(), workload.metadata(), template, record, true)?;
        send(client, informers, workload, PatchTarget::Object, &patch).await
    };
    sent.await.map_err(failed(operation, workload))
}

fn failed(operation: &'static str, workload: &Workload) -> impl FnOnce(kube::Error) -> RequestError {
    RequestError::of(operation, workload.kind().name(), workload.object_ref())
}

/// The patch that restores the previous resources in the template of a workload, if that is still this version, and records
/// the rollout if `records`.
pub(crate) fn template_patch(
    kind: WorkloadKind,
    metadata: &ObjectMeta,
    template: &PodTemplateSpec,
    record: &WorkloadRecord,
    records: bool,
) -> kube::Result<Patch<Value>> {
    let (version, resources) = (&metadata.resource_version, &record.previous_template);
    if kind.is_custom() {
        let mut operations =
            vec![json!({ "op": "replace", "path": "/metadata/resourceVersion", "value": version })];
        if records {
            // It has the record that this one replaces.
            let path = format!("/metadata/annotations/{}", RECORD_ANNOTATION.replace('/', "~1"));
            operations.push(json!({ "op": "replace", "path": path, "value": record.to_text() }));
        }
        operations.extend(resources.operations(template, "/spec/template/spec"));
        let patch = serde_json::from_value(Value::Array(operations)).map_err(kube::Error::SerdeError)?;
        return Ok(Patch::Json(patch));
    }
    let mut patch = if records { recording(record) } else { json!({}) };
    patch["metadata"]["resourceVersion"] = json!(version);
    patch["spec"] = json!({ "template": { "spec": resources.patch(template) } });
    Ok(Patch::Strategic(patch))
}

/// Patches the status of a workload, and waits until its store has the result.
pub(super) async fn patch_status(
    client: &Client,
    informers: &Informers,
    workload: &Workload,
    patch: Value,
) -> kube::Result<()> {
    send(client, informers, workload, PatchTarget::Status, &Patch::Strategic(patch)).await
}

/// The part of a workload that is patched.
#[derive(Clone, Copy)]
enum PatchTarget {
    Object,
    Status,
}

async fn send(
    client: &Client,
    informers: &Informers,
    workload: &Workload,
    target: PatchTarget,
    patch: &Patch<Value>,
) -> kube::Result<()> {
    let object = workload.object_ref();
    match workload.kind() {
        WorkloadKind::Deployment => send_one(client, &informers.deployments, &object, target, patch).await,
        WorkloadKind::StatefulSet => send_one(client, &informers.stateful_sets, &object, target, patch).await,
        WorkloadKind::DaemonSet => send_one(client, &informers.daemon_sets, &object, target, patch).await,
        WorkloadKind::AdvancedStatefulSet => {
            send_one(client, &informers.advanced.stateful_sets, &object, target, patch).await
        }
        WorkloadKind::AdvancedDaemonSet => {
            send_one(client, &informers.advanced.daemon_sets, &object, target, patch).await
        }
    }
}

async fn send_one<K>(
    client: &Client,
    store: &Store<K>,
    object: &ObjectRef,
    target: PatchTarget,
    patch: &Patch<Value>,
) -> kube::Result<()>
where
    K: Watchable + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace);
    let written = match target {
        PatchTarget::Object => api.patch(&object.name, &patch_params(), patch).await?,
        PatchTarget::Status => api.patch_status(&object.name, &patch_params(), patch).await?,
    };
    store.wait_for_write(&Write::updated(written.meta())).await;
    Ok(())
}

/// The patch that records a rollout.
pub(crate) fn recording(record: &WorkloadRecord) -> Value {
    json!({ "metadata": { "annotations": { RECORD_ANNOTATION: record.to_text() } } })
}

/// The patch that reports a rollout.
pub(super) fn reporting(status: &str) -> Value {
    json!({ "metadata": { "annotations": { STATUS_ANNOTATION: status } } })
}

/// The patch that removes the status.
pub(super) fn unreporting() -> Value {
    json!({ "metadata": { "annotations": { STATUS_ANNOTATION: null } } })
}

/// Performs a step on a ReplicaSet, and waits until the store has the result.
pub(super) async fn perform_step(
    client: &Client,
    store: &Store<ReplicaSet>,
    namespace: &str,
    step: &Step,
) -> Result<(), RequestError> {
    let api: Api<ReplicaSet> = Api::namespaced(client.clone(), namespace);
    let failed = |operation, name: &str| {
        RequestError::of(operation, "ReplicaSet", ObjectRef::namespaced(namespace, name))
    };
    match step {
        Step::CreateHistory(set) => {
            let name = set.metadata.name.clone().unwrap_or_default();
            let post = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
            match api.create(&post, set).await {
                Ok(created) => store.wait_for_write(&Write::created(&created.metadata)).await,
                // Of a controller before this one.
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(error) => return Err(failed("creating", &name)(error)),
            }
        }
        Step::Delete { name, uid } => {
            let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: None };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
            match api.delete(name, &params).await {
                Ok(()) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(failed("deleting", name)(error)),
            }
            store.wait_for_write(&Write::deleted(ObjectRef::namespaced(namespace, name), uid.clone())).await;
        }
        Step::Patch { name, patch } => {
            let written = api.patch(name, &patch_params(), &Patch::Strategic(patch)).await;
            let written = written.map_err(failed("patching", name))?;
            store.wait_for_write(&Write::updated(&written.metadata)).await;
        }
    }
    Ok(())
}
