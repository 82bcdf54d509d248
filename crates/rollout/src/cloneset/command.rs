//! Commands of users for the rollout of a `CloneSet`.

use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::Client;
use kube::api::{ListParams, Patch, PatchParams};
use plumb_client::Api;
use plumb_controller_runtime::{controller_of, revision};
use serde_json::{Value, json};

use super::ROLLOUT_ANNOTATION;
use super::revisions::is_same;
use crate::api::cloneset::CloneSet;
use crate::commands::{ATTEMPTS, Command, CommandError, FIELD_MANAGER};
use crate::engine::RolloutRecord;

/// Carries out a command for a `CloneSet`: a pause is that of its update strategy, an undo writes the template of before.
pub async fn cloneset_command(
    client: &Client,
    namespace: &str,
    name: &str,
    command: Command,
) -> Result<(), CommandError> {
    let failed = |operation| {
        let name = name.to_owned();
        move |source| CommandError::Request { operation, kind: "CloneSet", name, source }
    };
    let api: Api<CloneSet> = Api::namespaced(client.clone(), namespace);
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let mut attempts = 0;
    loop {
        attempts += 1;
        let set = api.get(name).await.map_err(failed("reading"))?;
        let operations = match command {
            Command::Pause => pause(&set)?,
            Command::Resume => resume(&set)?,
            Command::Undo => {
                let revisions: Api<ControllerRevision> = Api::namespaced(client.clone(), namespace);
                let listed = revisions.list(&ListParams::default()).await.map_err(failed("reading"))?;
                undo(&set, &listed.items)?
            }
        };
        let version = &set.metadata.resource_version;
        let mut patch =
            vec![json!({ "op": "replace", "path": "/metadata/resourceVersion", "value": version })];
        patch.extend(operations);
        let patch = serde_json::from_value(Value::Array(patch)).map_err(kube::Error::SerdeError);
        let patch: Patch<Value> = Patch::Json(patch.map_err(failed("patching"))?);
        match api.patch(name, &params, &patch).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() && attempts < ATTEMPTS => {}
            Err(error) => return Err(failed("patching")(error)),
        }
    }
}

/// Whether pods of a set may still have to follow its template, or it is paused. After the undo of a canary both revisions are
/// the same while its pods still have to be resized back.
fn is_rolling(set: &CloneSet) -> bool {
    let status = set.status.clone().unwrap_or_default();
    status.current_revision != status.update_revision
        || status.observed_generation != set.metadata.generation
        || status.updated_replicas < status.replicas
        || set.settings().paused
}

/// The operations that set `paused` in the form that the strategy of a set has.
fn set_paused(set: &CloneSet, paused: bool) -> Vec<Value> {
    let strategy = json!(set.spec.update_strategy);
    let is_nested = strategy["rollingUpdate"].is_object();
    let (path, value) = match (strategy.is_object(), is_nested) {
        (false, _) => ("/spec/updateStrategy", json!({ "paused": paused })),
        (true, false) => ("/spec/updateStrategy/paused", json!(paused)),
        (true, true) => ("/spec/updateStrategy/rollingUpdate/paused", json!(paused)),
    };
    vec![json!({ "op": "add", "path": path, "value": value })]
}

fn pause(set: &CloneSet) -> Result<Vec<Value>, CommandError> {
    if is_rolling(set) { Ok(set_paused(set, true)) } else { Err(CommandError::NotRolling) }
}

fn resume(set: &CloneSet) -> Result<Vec<Value>, CommandError> {
    if !is_rolling(set) {
        return Err(CommandError::NotRolling);
    }
    let mut operations = if set.settings().paused { set_paused(set, false) } else { Vec::new() };
    if let Some(mut record) = record(set) {
        record.paused = false;
        if record.step_done_at.take().is_some() {
            record.step += 1;
        }
        let path = format!("/metadata/annotations/{}", ROLLOUT_ANNOTATION.replace('/', "~1"));
        // A record is plain data: it can be written.
        let text = serde_json::to_string(&record).unwrap_or_default();
        operations.push(json!({ "op": "replace", "path": path, "value": text }));
    }
    Ok(operations)
}

/// The record of the rollout of the latest template.
fn record(set: &CloneSet) -> Option<RolloutRecord> {
    let text = set.metadata.annotations.as_ref()?.get(ROLLOUT_ANNOTATION)?;
    let update = set.status.as_ref()?.update_revision.as_deref()?;
    let record: RolloutRecord = serde_json::from_str(text).ok()?;
    is_same(&record.revision, update).then_some(record)
}

/// The operations that give a set the template that all pods had before: of the current revision while pods follow the latest
/// one, else of the revision before it.
fn undo(set: &CloneSet, revisions: &[ControllerRevision]) -> Result<Vec<Value>, CommandError> {
    let status = set.status.clone().unwrap_or_default();
    let own = revisions.iter().filter(|one| {
        controller_of(&one.metadata).is_some_and(|owner| Some(&owner.uid) == set.metadata.uid.as_ref())
    });
    let named = |name: Option<&String>| {
        let name = name.cloned().unwrap_or_default();
        own.clone().find(|one| is_same(revision::name(one), &name))
    };
    let update = named(status.update_revision.as_ref()).ok_or(CommandError::NothingToUndo)?;
    let target = if status.current_revision == status.update_revision {
        own.clone().filter(|one| one.revision < update.revision).max_by_key(|one| one.revision)
    } else {
        named(status.current_revision.as_ref())
    };
    let template = target.and_then(revision::template).ok_or(CommandError::NothingToUndo)?;
    let value = plumb_client::encode_template(&template);
    Ok(vec![json!({ "op": "replace", "path": "/spec/template", "value": value })])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_resumed_while_it_is_paused_or_pods_follow_its_template() {
        // Whether it is paused, its current revision, how many of its pods are updated; what a resume does.
        let unpause = json!({ "op": "add", "path": "/spec/updateStrategy/paused", "value": false });
        let table = [
            (false, "web-2", 3, None),
            (false, "web-1", 1, Some(vec![])),
            (false, "web-2", 2, Some(vec![])),
            (true, "web-2", 3, Some(vec![unpause.clone()])),
            (true, "web-2", 2, Some(vec![unpause])),
        ];
        for (paused, current, updated, expected) in table {
            let set: CloneSet = serde_json::from_value(json!({
                "apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet",
                "metadata": { "name": "web", "namespace": "default", "generation": 3 },
                "spec": {
                    "replicas": 3, "selector": { "matchLabels": { "app": "web" } }, "template": {},
                    "updateStrategy": { "paused": paused },
                },
                "status": {
                    "observedGeneration": 3, "replicas": 3, "updatedReplicas": updated,
                    "currentRevision": current, "updateRevision": "web-2",
                },
            }))
            .unwrap();
            assert_eq!(resume(&set).ok(), expected, "{paused} {current} {updated}");
            assert_eq!(pause(&set).is_ok(), expected.is_some());
        }
    }
}
