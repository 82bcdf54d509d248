//! Performs actions, and waits until the informers have observed them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PostParams, Preconditions};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource, ResourceExt as _};
use plumb_client::{Api, Codec};
use plumb_controller_runtime::api_error::{is_conflict, is_settled};
use plumb_controller_runtime::{ObjectRef, Write};
use plumb_supervise::Exponential;
use serde_json::{Value, json};

use super::action::{Action, Note, Purpose};
use super::decide::{Failures, PodFailure};
use super::run::Informers;
use crate::api::cloneset::{CloneSet, CloneSetStatus};
use crate::engine::{Direction, Plan, PodRecord, PodWrite, Refusal, patch_params, update};
use crate::request::RequestError;

/// How many requests for one set are under way at a time.
const AT_ONCE: usize = 64;
/// How long own writes are awaited.
const OBSERVED_WITHIN: Duration = Duration::from_secs(30);
/// When a pod is tried again that a write failed for.
const BACKOFF: Exponential = Exponential::new(Duration::from_secs(10), Duration::from_mins(5));

/// Performs the actions of one set.
pub(super) struct Performer<'a> {
    pub(super) client: &'a Client,
    pub(super) informers: &'a Informers,
    pub(super) set: &'a CloneSet,
    pub(super) now: Timestamp,
    pub(super) emit: &'a (dyn Fn(Note) + Send + Sync),
}

/// The result of the actions.
#[derive(Debug, Default)]
pub(super) struct Performed {
    /// Errors that are unrelated to the requests, such as an API server that does not respond.
    pub(super) errors: Vec<PerformError>,
    /// Another writer was faster: the decision was for an older version.
    pub(super) conflict: bool,
}

/// An action that failed for no reason of its own.
#[derive(Debug, thiserror::Error)]
pub(super) enum PerformError {
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The message of an update that takes several requests.
    #[error("updating pod {pod} in place: {message}")]
    Update { pod: String, message: String },
}

/// The result of the writes for a pod.
enum PodOutcome {
    Updated,
    /// Why it could not be updated.
    Failed(String),
}

/// A write that the informers have to observe.
enum Observed {
    Pod(Write),
    Revision(Write),
    Claim(Write),
    Set(Write),
}

/// The result of one action.
#[derive(Default)]
struct Attempt {
    writes: Vec<Observed>,
    conflict: bool,
    error: Option<PerformError>,
    /// Why pods or claims could not be created or deleted.
    scale_failure: Option<String>,
    /// The results of the writes for pods, by uid.
    pod: Option<(String, PodOutcome)>,
    note: Option<Note>,
}

impl Performer<'_> {
    /// Performs all actions. One that fails does not stop the others, except for creations, which fail alike.
    pub(super) async fn perform(
        &self,
        actions: Vec<Action>,
        status: Option<CloneSetStatus>,
        failures: &mut Failures,
    ) -> Performed {
        let mut performed = Performed::default();
        let mut writes = Vec::new();
        let (creations, others): (Vec<Action>, Vec<Action>) =
            actions.into_iter().partition(|action| matches!(action, Action::CreatePod { .. }));
        let mut take = |attempt: Attempt, failures: &mut Failures| {
            let failed = attempt.scale_failure.is_some() || attempt.error.is_some() || attempt.conflict;
            writes.extend(attempt.writes);
            performed.conflict |= attempt.conflict;
            performed.errors.extend(attempt.error);
            if let Some(message) = attempt.scale_failure {
                failures.scale = Some(message);
            }
            if let Some((uid, outcome)) = attempt.pod {
                note(failures, uid, outcome, self.now);
            }
            if let Some(note) = attempt.note {
                (self.emit)(note);
            }
            !failed
        };
        let mut succeeded = true;
        // In batches of 1, 2, 4, …: what fails for one fails for all.
        let (mut rest, mut size) = (creations, 1);
        while !rest.is_empty() && succeeded {
            let later = rest.split_off(size.min(rest.len()));
            let mut batch = stream::iter(rest).map(|action| self.one(action)).buffer_unordered(AT_ONCE);
            while let Some(attempt) = batch.next().await {
                succeeded &= take(attempt, failures);
            }
            (rest, size) = (later, size * 2);
        }
        let mut attempts = stream::iter(others).map(|action| self.one(action)).buffer_unordered(AT_ONCE);
        while let Some(attempt) = attempts.next().await {
            let is_scale = attempt.scale_failure.is_some();
            succeeded &= take(attempt, failures) || !is_scale;
        }
        if let Some(status) = status {
            let attempt = self.status(status).await;
            take(attempt, failures);
        }
        // Also where there is nothing to create or delete any more, because the set was scaled back.
        if succeeded {
            failures.scale = None;
        }
        self.observe(writes).await;
        performed
    }

    async fn observe(&self, writes: Vec<Observed>) {
        let observed = async {
            for write in &writes {
                match write {
                    Observed::Pod(write) => self.informers.pods.wait_for_write(write).await,
                    Observed::Revision(write) => self.informers.revisions.wait_for_write(write).await,
                    Observed::Claim(write) => self.informers.claims.wait_for_write(write).await,
                    Observed::Set(write) => self.informers.sets.wait_for_write(write).await,
                }
            }
        };
        if tokio::time::timeout(OBSERVED_WITHIN, observed).await.is_err() {
            let set = self.set.name_any();
            tracing::warn!(set, "own writes were not observed in time, going on without");
        }
    }

    fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), self.set.metadata.namespace.as_deref().unwrap_or_default())
    }

    async fn one(&self, action: Action) -> Attempt {
        match action {
            Action::CreateRevision(revision) => {
                let created = self.api().create(&PostParams::default(), &*revision).await;
                let failed = failed("creating", "ControllerRevision", &*revision);
                written(created, failed, |metadata| Observed::Revision(Write::created(metadata)))
            }
            Action::UpdateRevision(revision) => {
                let name = revision.name_any();
                let replaced = self.api().replace(&name, &PostParams::default(), &*revision).await;
                let failed = failed("replacing", "ControllerRevision", &*revision);
                written(replaced, failed, |metadata| Observed::Revision(Write::updated(metadata)))
            }
            Action::DeleteRevision(revision) => {
                let deleted = self.delete(&*revision).await;
                deleted_or(deleted, failed("deleting", "ControllerRevision", &*revision), Observed::Revision)
            }
            Action::DeleteClaim(claim) => {
                let deleted = self.delete(&*claim).await;
                deleted_or(deleted, failed("deleting", "PersistentVolumeClaim", &*claim), Observed::Claim)
            }
            Action::CreatePod { pod, claims } => self.create(*pod, claims).await,
            Action::DeletePod { pod, claims } => self.delete_pod(&pod, &claims).await,
            Action::PatchPod { pod, patch, purpose } => self.patch_pod(&pod, patch, purpose).await,
            Action::PatchPodStatus { pod, patch } => {
                let patched = self.patch_status(&pod, &patch).await;
                pod_attempt(&pod, patched, "setting conditions of")
            }
            Action::UpdatePod { pod, unready, plan } => self.update_pod(&pod, unready, &plan).await,
            Action::PatchSet(patch) => {
                let api: Api<CloneSet> = self.api();
                let patched = api.patch(&self.set.name_any(), &patch_params(), &Patch::Merge(&patch)).await;
                written(patched, failed("patching", "CloneSet", self.set), |metadata| {
                    Observed::Set(Write::updated(metadata))
                })
            }
        }
    }

    async fn status(&self, status: CloneSetStatus) -> Attempt {
        let mut set = self.set.clone();
        set.status = Some(status);
        let api: Api<CloneSet> = self.api();
        let replaced = api.replace_status(&set.name_any(), &PostParams::default(), &set).await;
        let failed = failed("replacing the status of", "CloneSet", &set);
        written(replaced, failed, |metadata| Observed::Set(Write::updated(metadata)))
    }

    async fn delete<K>(&self, object: &K) -> kube::Result<Option<Write>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Codec,
    {
        let uid = object.meta().uid.clone();
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: uid.clone(), resource_version: None }),
            ..DeleteParams::default()
        };
        match self.api::<K>().delete(&object.name_any(), &params).await {
            Ok(()) => Ok(Some(Write::deleted(ObjectRef::of(object), uid.unwrap_or_default()))),
            Err(error) if is_settled(&error) || is_conflict(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn create(&self, pod: Pod, claims: Vec<PersistentVolumeClaim>) -> Attempt {
        let mut attempt = Attempt::default();
        for claim in claims {
            match self.api::<PersistentVolumeClaim>().create(&PostParams::default(), &claim).await {
                Ok(made) => attempt.writes.push(Observed::Claim(Write::created(&made.metadata))),
                Err(error) if is_settled(&error) => {}
                Err(error) => {
                    let message = format!("failed to create claim {}: {}", claim.name_any(), text(&error));
                    attempt.fail_scale("FailedCreate", message);
                    return attempt;
                }
            }
        }
        match self.api::<Pod>().create(&PostParams::default(), &pod).await {
            Ok(made) => {
                attempt.writes.push(Observed::Pod(Write::created(&made.metadata)));
                attempt.note = Some(normal("SuccessfulCreate", format!("created pod {}", made.name_any())));
            }
            // Another pod has the name: the next decision makes another one.
            Err(kube::Error::Api(status)) if status.is_already_exists() => attempt.conflict = true,
            Err(error) if is_settled(&error) => {}
            Err(error) => {
                let message = format!("failed to create pod {}: {}", pod.name_any(), text(&error));
                attempt.fail_scale("FailedCreate", message);
            }
        }
        attempt
    }

    async fn delete_pod(&self, pod: &Arc<Pod>, claims: &[Arc<PersistentVolumeClaim>]) -> Attempt {
        let mut attempt = Attempt::default();
        match self.delete(&**pod).await {
            Ok(write) => {
                attempt.writes.extend(write.map(Observed::Pod));
                attempt.note = Some(normal("SuccessfulDelete", format!("deleted pod {}", pod.name_any())));
            }
            Err(error) => {
                let message = format!("failed to delete pod {}: {}", pod.name_any(), text(&error));
                attempt.fail_scale("FailedDelete", message);
                return attempt;
            }
        }
        for claim in claims {
            match self.delete(&**claim).await {
                Ok(write) => attempt.writes.extend(write.map(Observed::Claim)),
                Err(error) => {
                    let message = format!("failed to delete claim {}: {}", claim.name_any(), text(&error));
                    attempt.fail_scale("FailedDelete", message);
                }
            }
        }
        attempt
    }

    async fn patch_pod(&self, pod: &Arc<Pod>, mut patch: Value, purpose: Purpose) -> Attempt {
        patch["metadata"]["uid"] = json!(pod.metadata.uid);
        let patched =
            self.api::<Pod>().patch(&pod.name_any(), &patch_params(), &Patch::Strategic(&patch)).await;
        let operation = match purpose {
            Purpose::Lifecycle => "setting the lifecycle state of",
            Purpose::Recreate => "marking for deletion",
        };
        let mut attempt = pod_attempt(pod, patched, operation);
        if purpose == Purpose::Recreate {
            attempt.note = match &attempt.pod {
                Some((_, PodOutcome::Failed(message))) => {
                    Some(warning("FailedUpdatePodReCreate", message.clone()))
                }
                Some((_, PodOutcome::Updated)) => {
                    let message = format!("pod {} is deleted for an update", pod.name_any());
                    Some(normal("SuccessfulUpdatePodReCreate", message))
                }
                None => None,
            };
        }
        attempt
    }

    async fn patch_status(&self, pod: &Pod, patch: &Value) -> kube::Result<Pod> {
        self.api::<Pod>().patch_status(&pod.name_any(), &patch_params(), &Patch::Strategic(patch)).await
    }

    async fn update_pod(&self, pod: &Arc<Pod>, unready: Option<Value>, plan: &Plan) -> Attempt {
        if let Some(patch) = unready {
            let patched = self.patch_status(pod, &patch).await;
            if patched.is_err() {
                return pod_attempt(pod, patched, "making unready");
            }
        }
        let result = update(&self.api(), pod, plan, self.now).await;
        let mut attempt = Attempt::default();
        if let Some(written) = &result.pod {
            attempt.writes.push(Observed::Pod(Write::updated(&written.metadata)));
        }
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let name = pod.name_any();
        let resizes = plan.writes.iter().any(|write| matches!(write, PodWrite::Resize(_)));
        match result.error {
            None => {
                attempt.pod = Some((uid, PodOutcome::Updated));
                let PodRecord { revision, direction, finished_at, .. } = &plan.record;
                if finished_at.is_some() && *direction == Direction::Forward {
                    let message = format!("updated pod {name} in place to revision {revision}");
                    attempt.note = Some(normal("SuccessfulUpdatePodInPlace", message));
                }
            }
            Some(Refusal::Gone) => {}
            Some(Refusal::Transient(message)) => {
                attempt.error = Some(PerformError::Update { pod: name, message });
            }
            Some(Refusal::Refused(reason, message)) => {
                let text = format!("{name}: {reason}: {message}");
                // A resize that was refused is recorded on the pod, with the time of the next attempt.
                let recorded = resizes && result.pod.is_some();
                let message = format!("failed to update pod in place: {text}");
                attempt.pod =
                    Some((uid, if recorded { PodOutcome::Updated } else { PodOutcome::Failed(text) }));
                attempt.note = Some(warning("FailedUpdatePodInPlace", message));
            }
        }
        attempt
    }
}

/// The result of a patch of a pod.
fn pod_attempt(pod: &Pod, patched: kube::Result<Pod>, operation: &'static str) -> Attempt {
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let mut attempt = Attempt::default();
    match patched {
        Ok(patched) => {
            attempt.writes.push(Observed::Pod(Write::updated(&patched.metadata)));
            attempt.pod = Some((uid, PodOutcome::Updated));
        }
        Err(error) if is_conflict(&error) => attempt.conflict = true,
        Err(error) if is_settled(&error) => {}
        Err(error) => match Refusal::of(&error) {
            Refusal::Refused(_, message) => {
                let message = format!("{operation} pod {}: {message}", pod.name_any());
                attempt.pod = Some((uid, PodOutcome::Failed(message)));
            }
            _ => attempt.error = Some(failed(operation, "pod", pod)(error).into()),
        },
    }
    attempt
}

impl Attempt {
    fn fail_scale(&mut self, reason: &'static str, message: String) {
        self.note = Some(warning(reason, message.clone()));
        self.scale_failure = Some(message);
    }
}

/// Records the result of the writes for a pod.
fn note(failures: &mut Failures, uid: String, outcome: PodOutcome, now: Timestamp) {
    let PodOutcome::Failed(message) = outcome else {
        failures.pods.remove(&uid);
        return;
    };
    let count = failures.pods.get(&uid).map_or(0, |before| before.count).saturating_add(1);
    let retry_at = now.checked_add(BACKOFF.after(count)).unwrap_or(now);
    failures.pods.insert(uid, PodFailure { message, count, retry_at });
}

fn normal(reason: &'static str, message: String) -> Note {
    Note { warning: false, reason, message }
}

fn warning(reason: &'static str, message: String) -> Note {
    Note { warning: true, reason, message }
}

fn text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Makes an error of the API server that of a request.
fn failed<K: Resource>(
    operation: &'static str,
    kind: &'static str,
    object: &K,
) -> impl FnOnce(kube::Error) -> RequestError + use<K> {
    RequestError::of(operation, kind, ObjectRef::of(object))
}

fn written<K: Resource>(
    result: kube::Result<K>,
    failed: impl FnOnce(kube::Error) -> RequestError,
    observed: impl Fn(&ObjectMeta) -> Observed,
) -> Attempt {
    match result {
        Ok(object) => Attempt { writes: vec![observed(object.meta())], ..Attempt::default() },
        Err(error) if is_conflict(&error) => Attempt { conflict: true, ..Attempt::default() },
        // A revision of the name exists: it is among those that are known next time.
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            Attempt { conflict: true, ..Attempt::default() }
        }
        Err(error) if is_settled(&error) => Attempt::default(),
        Err(error) => Attempt { error: Some(failed(error).into()), ..Attempt::default() },
    }
}

fn deleted_or(
    deleted: kube::Result<Option<Write>>,
    failed: impl FnOnce(kube::Error) -> RequestError,
    observed: impl Fn(Write) -> Observed,
) -> Attempt {
    match deleted {
        Ok(write) => Attempt { writes: write.map(observed).into_iter().collect(), ..Attempt::default() },
        Err(error) => Attempt { error: Some(failed(error).into()), ..Attempt::default() },
    }
}
