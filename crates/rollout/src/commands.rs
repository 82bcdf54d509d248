//! Commands of users for a rollout: pause, resume, undo. `plumb rollout` calls these.

use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use plumb_client::{Api, Codec};
use serde_json::{Value, json};

use crate::api::RolloutPolicy;
use crate::api::advanced::{AdvancedDaemonSet, AdvancedStatefulSet};
use crate::engine::{Heading, RolloutOutcome, RolloutStatus, Selected, select};
use crate::features::IN_PLACE_WORKLOAD_VERTICAL_SCALING;
use crate::webhook;
use crate::workloads::{
    IN_PLACE_ANNOTATION, STATUS_ANNOTATION, WorkloadKind, WorkloadRecord, recording, template_patch,
};

pub use crate::progress::Progress;

/// The manager of the fields that commands write.
pub(crate) const FIELD_MANAGER: &str = "plumb-cli";
/// How often a workload is read again because another writer wrote it in between.
pub(crate) const ATTEMPTS: usize = 10;

/// A command for a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// No further pods are resized.
    Pause,
    /// Pods are resized again; a canary that waits continues with its next step.
    Resume,
    /// Pods and template get the resources of before the last rollout again.
    Undo,
}

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The workload has no rollout under way.
    #[error("no in-place rollout is under way")]
    NotRolling,
    /// There is no earlier template.
    #[error("there is no in-place rollout to undo")]
    NothingToUndo,
    /// The rollout is being undone already.
    #[error("the rollout goes back already")]
    GoesBack,
    /// The API server did not answer as expected.
    #[error("{operation} {kind} {name}")]
    Request {
        /// The operation.
        operation: &'static str,
        /// Of which kind.
        kind: &'static str,
        /// Of which workload.
        name: String,
        /// The error.
        #[source]
        source: kube::Error,
    },
}

/// The result of a command.
struct Change {
    /// The record of the workload.
    record: WorkloadRecord,
    /// Whether the record is written.
    records: bool,
    /// Whether the template gets its previous resources.
    restores: bool,
}

/// The result of a command for a workload with this record.
fn change(kind: WorkloadKind, command: Command, workload: &ObjectMeta) -> Result<Change, CommandError> {
    // A template that the workload's own controller has rolled out since is not undone in place.
    let record = WorkloadRecord::read(workload).filter(|record| !record.superseded);
    let Some(mut record) = record else {
        return Err(match command {
            Command::Undo => CommandError::NothingToUndo,
            _ => CommandError::NotRolling,
        });
    };
    let mut restores = false;
    match (command, record.is_open()) {
        (Command::Pause | Command::Resume, false) => return Err(CommandError::NotRolling),
        (Command::Pause, true) => record.rollout.paused = true,
        (Command::Resume, true) => {
            record.rollout.paused = false;
            if let Some(hold) = &mut record.hold {
                hold.restored = kind.resumed(hold.restored.take());
            }
            if record.rollout.step_done_at.take().is_some() {
                record.rollout.step += 1;
            }
        }
        (Command::Undo, true) if record.rollout.heading == Heading::Back => {
            return Err(CommandError::GoesBack);
        }
        (Command::Undo, true) => {
            record.rollout.heading = Heading::Back;
            record.rollout.paused = false;
            (record.rollout.step, record.rollout.step_done_at) = (0, None);
            restores = true;
        }
        // An edit like any other, which is held as a rollout of its own.
        (Command::Undo, false) if is_undone_by_edit(&record) => {
            return Ok(Change { record, records: false, restores: true });
        }
        (Command::Undo, false) => return Err(CommandError::NothingToUndo),
    }
    Ok(Change { record, records: true, restores })
}

/// Whether the template of a rollout that has ended can be undone: pods follow it, or were all resized back while it stayed.
fn is_undone_by_edit(record: &WorkloadRecord) -> bool {
    match record.rollout.outcome {
        Some(RolloutOutcome::Complete) => true,
        Some(RolloutOutcome::RolledBack) => record.rollout.heading == Heading::Forward,
        _ => false,
    }
}

/// The patch of a workload that makes a change.
fn patch(
    kind: WorkloadKind,
    metadata: &ObjectMeta,
    template: &PodTemplateSpec,
    change: &Change,
) -> kube::Result<Patch<Value>> {
    if change.restores {
        return template_patch(kind, metadata, template, &change.record, change.records);
    }
    let mut patch = recording(&change.record);
    patch["metadata"]["resourceVersion"] = json!(metadata.resource_version);
    Ok(Patch::Merge(patch))
}

/// Carries out a command.
pub async fn command(
    client: &Client,
    kind: WorkloadKind,
    namespace: &str,
    name: &str,
    command: Command,
) -> Result<(), CommandError> {
    match kind {
        WorkloadKind::Deployment => {
            let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
            write(&api, kind, name, command, |one| one.spec.as_ref().map(|spec| &spec.template)).await
        }
        WorkloadKind::StatefulSet => {
            let api: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
            write(&api, kind, name, command, |one| one.spec.as_ref().map(|spec| &spec.template)).await
        }
        WorkloadKind::DaemonSet => {
            let api: Api<DaemonSet> = Api::namespaced(client.clone(), namespace);
            write(&api, kind, name, command, |one| one.spec.as_ref().map(|spec| &spec.template)).await
        }
        WorkloadKind::AdvancedStatefulSet => {
            let api: Api<AdvancedStatefulSet> = Api::namespaced(client.clone(), namespace);
            write(&api, kind, name, command, |one| one.spec.template.0.as_ref()).await
        }
        WorkloadKind::AdvancedDaemonSet => {
            let api: Api<AdvancedDaemonSet> = Api::namespaced(client.clone(), namespace);
            write(&api, kind, name, command, |one| one.spec.template.0.as_ref()).await
        }
    }
}

async fn write<K>(
    api: &Api<K>,
    kind: WorkloadKind,
    name: &str,
    command: Command,
    template: fn(&K) -> Option<&PodTemplateSpec>,
) -> Result<(), CommandError>
where
    K: Codec + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let failed = |operation| {
        let name = name.to_owned();
        move |source| CommandError::Request { operation, kind: kind.name(), name, source }
    };
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let mut attempts = 0;
    loop {
        attempts += 1;
        let workload = api.get(name).await.map_err(failed("reading"))?;
        let none = PodTemplateSpec::default();
        let change = change(kind, command, workload.meta())?;
        let patch = patch(kind, workload.meta(), template(&workload).unwrap_or(&none), &change);
        match api.patch(name, &params, &patch.map_err(failed("patching"))?).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() && attempts < ATTEMPTS => {}
            Err(error) => return Err(failed("patching")(error)),
        }
    }
}

/// Why a workload had no in-place rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRollout {
    /// No webhook holds workloads.
    #[error("in-place rollouts are off in this cluster; --feature-gates {}=true turns them on", IN_PLACE_WORKLOAD_VERTICAL_SCALING.name)]
    Off,
    /// The annotation disables it.
    #[error("its annotation {IN_PLACE_ANNOTATION} opts out; \"true\" opts in")]
    OptedOut,
    /// It has no annotation and no policy.
    #[error(
        "it does not opt in; kubectl annotate it with {IN_PLACE_ANNOTATION}=true, or select it by a RolloutPolicy"
    )]
    NotOptedIn,
    /// Its own controller has rolled out another template since the last in-place rollout.
    #[error("the last change was rolled out by the {0} controller")]
    Superseded(&'static str),
    /// There was no change to roll out.
    #[error("the cpu and memory in its template have not changed")]
    NoChange,
}

/// Finds out why a workload had no in-place rollout. An object that this user may not read counts as existing.
pub async fn no_rollout(client: &Client, kind: WorkloadKind, metadata: &ObjectMeta) -> NoRollout {
    if WorkloadRecord::read(metadata).is_some_and(|record| record.superseded) {
        return NoRollout::Superseded(kind.name());
    }
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    // Without the gate the configuration is missing, or has no webhooks.
    let is_off = |found: &Option<MutatingWebhookConfiguration>| {
        found.as_ref().is_none_or(|found| found.webhooks.iter().all(Vec::is_empty))
    };
    if webhooks.get_opt(webhook::NAME).await.is_ok_and(|found| is_off(&found)) {
        return NoRollout::Off;
    }
    let annotation = metadata.annotations.as_ref().and_then(|all| all.get(IN_PLACE_ANNOTATION));
    match annotation.map(String::as_str) {
        Some("true") => return NoRollout::NoChange,
        Some(_) => return NoRollout::OptedOut,
        None => {}
    }
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let policies: Api<RolloutPolicy> = Api::namespaced(client.clone(), namespace);
    let Ok(policies) = policies.list(&ListParams::default()).await else { return NoRollout::NotOptedIn };
    let policies: Vec<Arc<RolloutPolicy>> = policies.items.into_iter().map(Arc::new).collect();
    let workload = Selected { group: kind.group(), kind: kind.name(), metadata };
    if select(&policies, &workload).bound.is_some() { NoRollout::NoChange } else { NoRollout::NotOptedIn }
}

/// The reported status of the rollout of a workload; none if there was none, or the workload's own controller has
/// rolled out another template since.
pub fn status(workload: &ObjectMeta) -> Option<RolloutStatus> {
    let text = workload.annotations.as_ref()?.get(STATUS_ANNOTATION)?;
    serde_json::from_str(text).ok()
}
