//! Performs actions, and waits until the informers have observed the writes.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use plumb_controller_runtime::Write;
use plumb_controller_runtime::adoption::{adoption_patch, release_patch};
use plumb_controller_runtime::api_error::is_settled;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::action::{Action, Failure, Note, Verb, WriteOutcome};
use super::kinds::{Informers, Kind, Object, Ref};
use super::recorder::Recorder;

/// The maximum number of concurrent requests for one workload.
const AT_ONCE: usize = 64;

/// How long the controller waits until the informers have observed its writes.
const OBSERVED_WITHIN: Duration = Duration::from_secs(30);

/// Performs the actions of one workload.
pub(super) struct Performer<'a> {
    pub(super) client: &'a Client,
    pub(super) informers: &'a Informers,
    pub(super) recorder: &'a Recorder,
    /// The workload.
    pub(super) owner: Ref,
    pub(super) reference: OwnerReference,
    /// The finalizer of the objects that it controls.
    pub(super) finalizer: Option<&'static str>,
    pub(super) now: Timestamp,
    /// The event to emit about the result of a write.
    pub(super) event_for: &'a (dyn Fn(&WriteOutcome<'_>) -> Option<Note> + Sync),
}

/// The result of the actions.
#[derive(Debug, Default)]
pub(super) struct Performed {
    /// The first failure.
    pub(super) failure: Option<Failure>,
    /// Conflict: the object was modified concurrently.
    pub(super) conflict: bool,
    /// When to reconcile again, if nothing changes before.
    pub(super) requeue_at: Option<Timestamp>,
    /// The written versions, which the informers have to observe.
    writes: Vec<(Kind, Write)>,
}

/// The result of one write.
enum Attempt {
    Done(Kind, Write),
    /// There is nothing left to write.
    Settled,
    Conflict,
    Failed(Failure),
}

impl Performer<'_> {
    /// Performs the actions up to the first that fails, and returns when the informers have observed all writes.
    pub(super) async fn perform(&self, actions: Vec<Action>) -> Performed {
        let mut performed = Performed::default();
        let mut actions = actions.into_iter().peekable();
        while let Some(action) = actions.next() {
            match action {
                Action::RequeueAt(when) => {
                    performed.requeue_at = Some(performed.requeue_at.map_or(when, |before| before.min(when)));
                }
                _ if performed.failure.is_some() || performed.conflict => {}
                Action::Event(note) => self.recorder.record(self.owner.clone(), note, self.now),
                Action::Status(object) => {
                    let written = object.replace_status(self.client).await;
                    performed.note(self.changed(object.reference(), written));
                }
                Action::Create(first) => {
                    let mut all = vec![first];
                    while let Some(Action::Create(object)) =
                        actions.next_if(|next| matches!(next, Action::Create(_)))
                    {
                        all.push(object);
                    }
                    self.create(all, &mut performed).await;
                }
                Action::Delete(first, propagation) => {
                    let mut all = vec![(first, propagation)];
                    while let Some(Action::Delete(of, propagation)) =
                        actions.next_if(|next| matches!(next, Action::Delete(..)))
                    {
                        all.push((of, propagation));
                    }
                    let requests = all.into_iter().map(|(of, propagation)| {
                        let client = self.client.clone();
                        async move {
                            let done = of.kind.delete(&client, &of, propagation).await;
                            (of, done)
                        }
                    });
                    for (of, done) in together(requests.collect()).await {
                        performed.note(self.deleted(of, done));
                    }
                }
                Action::Replace(object) => {
                    let written = object.replace(self.client).await;
                    performed.note(self.changed(object.reference(), written));
                }
                Action::Patch(of, mut patch) => {
                    // Another object with the same name is not deleted.
                    patch["metadata"]["uid"] = of.uid.clone().into();
                    let written = of.kind.patch(self.client, &of, &patch).await;
                    performed.note(self.changed(of, written));
                }
                Action::Adopt(of) => performed.note(self.adopt(of).await),
                Action::Release(of) => {
                    let patch = release_patch(&self.reference, &of.uid, self.finalizer);
                    let written = of.kind.patch(self.client, &of, &patch).await;
                    performed.note(self.changed(of, written));
                }
            }
        }
        let observed = async {
            for (kind, write) in &performed.writes {
                kind.wait_for_write(self.informers, write).await;
            }
        };
        if tokio::time::timeout(OBSERVED_WITHIN, observed).await.is_err() {
            tracing::warn!(owner = ?self.owner, "own writes were not observed in time, continuing without them");
        }
        performed
    }

    /// Creates objects in batches, each twice as large as the one before, until one fails: what fails for one probably fails
    /// for all, and a quota then refuses one request instead of a thousand (upstream's `slowStartBatch`).
    async fn create(&self, objects: Vec<Object>, performed: &mut Performed) {
        let mut rest = objects;
        let mut size = 1;
        while !rest.is_empty() && performed.failure.is_none() && !performed.conflict {
            let later = rest.split_off(size.min(rest.len()));
            let requests = rest.into_iter().map(|object| {
                let client = self.client.clone();
                async move { (object.reference(), object.create(&client).await) }
            });
            for (of, made) in together(requests.collect()).await {
                performed.note(self.made(of, made));
            }
            rest = later;
            size *= 2;
        }
    }

    fn made(&self, asked: Ref, made: kube::Result<ObjectMeta>) -> Attempt {
        match made {
            Ok(made) => {
                self.emit(Verb::Create, &Ref::new(asked.kind, &made), None);
                Attempt::Done(asked.kind, Write::created(&made))
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => Attempt::Conflict,
            // Its namespace is terminating.
            Err(error) if is_settled(&error) => Attempt::Settled,
            Err(error) => self.failed(Verb::Create, &asked, &error),
        }
    }

    fn deleted(&self, of: Ref, done: kube::Result<()>) -> Attempt {
        match done {
            Ok(()) => {
                self.emit(Verb::Delete, &of, None);
                Attempt::Done(of.kind, Write::deleted(of.object_ref(), of.uid))
            }
            Err(error) if is_gone(&error) => Attempt::Settled,
            Err(error) => self.failed(Verb::Delete, &of, &error),
        }
    }

    fn changed(&self, of: Ref, written: kube::Result<ObjectMeta>) -> Attempt {
        match written {
            Ok(written) => Attempt::Done(of.kind, Write::updated(&written)),
            Err(kube::Error::Api(status)) if status.code == 409 => Attempt::Conflict,
            Err(error) if is_settled(&error) => Attempt::Settled,
            Err(error) => self.failed(Verb::Change, &of, &error),
        }
    }

    /// Adopts an object if the workload still exists. The API server is asked, since the store may be behind.
    async fn adopt(&self, of: Ref) -> Attempt {
        match self.owner.kind.get(self.client, &self.owner).await {
            Ok(now) if now.uid.as_deref() == Some(&self.owner.uid) && now.deletion_timestamp.is_none() => {
                let patch = adoption_patch(&self.reference, &of.uid, self.finalizer);
                let written = of.kind.patch(self.client, &of, &patch).await;
                self.changed(of, written)
            }
            Ok(_) => Attempt::Conflict,
            Err(error) if is_settled(&error) => Attempt::Settled,
            Err(error) => self.failed(Verb::Change, &of, &error),
        }
    }

    fn failed(&self, verb: Verb, of: &Ref, error: &kube::Error) -> Attempt {
        let message = match error {
            kube::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        };
        self.emit(verb, of, Some(&message));
        Attempt::Failed(Failure { verb, message })
    }

    fn emit(&self, verb: Verb, object: &Ref, error: Option<&str>) {
        if let Some(note) = (self.event_for)(&WriteOutcome { verb, object, error }) {
            self.recorder.record(self.owner.clone(), note, self.now);
        }
    }
}

impl Performed {
    /// Whether there was nothing to write after all.
    pub(super) fn wrote_nothing(&self) -> bool {
        self.writes.is_empty()
    }

    fn note(&mut self, attempt: Attempt) {
        match attempt {
            Attempt::Done(kind, write) => self.writes.push((kind, write)),
            Attempt::Settled => {}
            Attempt::Conflict => self.conflict = true,
            Attempt::Failed(failure) => {
                self.failure.get_or_insert(failure);
            }
        }
    }
}

/// Whether an object is gone, or another one has its name.
fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found() || status.code == 409)
}

/// Sends requests together, but not too many at a time.
async fn together<T: Send + 'static>(requests: Vec<impl Future<Output = T> + Send + 'static>) -> Vec<T> {
    let limit = Arc::new(Semaphore::new(AT_ONCE));
    let mut sent = JoinSet::new();
    for request in requests {
        // The semaphore is never closed.
        let permit = limit.clone().acquire_owned().await;
        sent.spawn(async move {
            let _permit = permit;
            request.await
        });
    }
    sent.join_all().await
}
