//! Doing what was decided, and waiting until it can be seen.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use plumb_follow::is_settled;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::action::{Action, Failure, Note, Outcome, Verb};
use super::claim;
use super::kinds::{Kind, Object, Ref, Shelves};
use super::recorder::Recorder;

/// How many requests for one workload are under way at a time.
const AT_ONCE: usize = 64;

/// How long own writes are waited for to be seen.
const SEEN_WITHIN: Duration = Duration::from_secs(30);

/// Who performs, and for whom.
pub(super) struct Performer<'a> {
    pub(super) client: &'a Client,
    pub(super) shelves: &'a Shelves,
    pub(super) recorder: &'a Recorder,
    /// The workload.
    pub(super) owner: Ref,
    pub(super) reference: OwnerReference,
    /// The finalizer by which what it controls is kept.
    pub(super) keeps: Option<&'static str>,
    pub(super) now: Timestamp,
    /// What is said about what came of a write.
    pub(super) said: &'a (dyn Fn(&Outcome<'_>) -> Option<Note> + Sync),
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Performed {
    /// What went wrong first.
    pub(super) failure: Option<Failure>,
    /// Somebody else was faster: what was decided upon is not what is there.
    pub(super) overtaken: bool,
    /// When to decide again, if nothing happens before.
    pub(super) again_at: Option<Timestamp>,
    /// What was written, and is to be seen.
    writes: Vec<Write>,
}

#[derive(Debug)]
enum Write {
    Made(Kind, ObjectMeta),
    Changed(Ref, ObjectMeta),
    Deleted(Ref),
}

/// How one write went.
enum Went {
    Done(Box<Write>),
    /// There is nothing to do any more.
    Settled,
    Overtaken,
    Failed(Failure),
}

impl Performer<'_> {
    /// Does everything that can be done, and answers when all of it can be seen on the shelves.
    pub(super) async fn perform(&self, actions: Vec<Action>) -> Performed {
        let mut performed = Performed::default();
        let mut actions = actions.into_iter().peekable();
        while let Some(action) = actions.next() {
            match action {
                Action::LookAgainAt(when) => {
                    performed.again_at = Some(performed.again_at.map_or(when, |before| before.min(when)));
                }
                _ if performed.failure.is_some() || performed.overtaken => {}
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
                    // Another one of the same name is left alone.
                    patch["metadata"]["uid"] = of.uid.clone().into();
                    let written = of.kind.patch(self.client, &of, &patch).await;
                    performed.note(self.changed(of, written));
                }
                Action::Adopt(of) => performed.note(self.adopt(of).await),
                Action::Release(of) => {
                    let patch = claim::release(&self.reference, &of, self.keeps);
                    let written = of.kind.patch(self.client, &of, &patch).await;
                    performed.note(self.changed(of, written));
                }
            }
        }
        let seen = async {
            for write in &performed.writes {
                self.saw(write).await;
            }
        };
        if tokio::time::timeout(SEEN_WITHIN, seen).await.is_err() {
            tracing::warn!(owner = ?self.owner, "own writes were not seen in time, going on without");
        }
        performed
    }

    /// Makes objects in batches, each twice as large as the one before, until one fails: what fails for one fails for
    /// all, and nobody should be asked a thousand times.
    async fn create(&self, objects: Vec<Object>, performed: &mut Performed) {
        let (mut rest, mut size) = (objects, 1);
        while !rest.is_empty() && performed.failure.is_none() && !performed.overtaken {
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

    fn made(&self, asked: Ref, made: kube::Result<ObjectMeta>) -> Went {
        match made {
            Ok(made) => {
                self.say(Verb::Create, &Ref::of(asked.kind, &made), None);
                Went::Done(Box::new(Write::Made(asked.kind, made)))
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => Went::Overtaken,
            // Its namespace goes.
            Err(error) if is_settled(&error) => Went::Settled,
            Err(error) => self.failed(Verb::Create, &asked, &error),
        }
    }

    fn deleted(&self, of: Ref, done: kube::Result<()>) -> Went {
        match done {
            Ok(()) => {
                self.say(Verb::Delete, &of, None);
                Went::Done(Box::new(Write::Deleted(of)))
            }
            Err(error) if is_gone(&error) => Went::Settled,
            Err(error) => self.failed(Verb::Delete, &of, &error),
        }
    }

    fn changed(&self, of: Ref, written: kube::Result<ObjectMeta>) -> Went {
        match written {
            Ok(written) => Went::Done(Box::new(Write::Changed(of, written))),
            Err(kube::Error::Api(status)) if status.code == 409 => Went::Overtaken,
            Err(error) if is_settled(&error) => Went::Settled,
            Err(error) => self.failed(Verb::Change, &of, &error),
        }
    }

    /// Adopts an object, if the workload is there according to the API itself: the shelf may be behind.
    async fn adopt(&self, of: Ref) -> Went {
        match self.owner.kind.get(self.client, &self.owner).await {
            Ok(now) if now.uid.as_deref() == Some(&self.owner.uid) && now.deletion_timestamp.is_none() => {
                let patch = claim::adoption(&self.reference, &of, self.keeps);
                let written = of.kind.patch(self.client, &of, &patch).await;
                self.changed(of, written)
            }
            Ok(_) => Went::Overtaken,
            Err(error) if is_settled(&error) => Went::Settled,
            Err(error) => self.failed(Verb::Change, &of, &error),
        }
    }

    fn failed(&self, verb: Verb, of: &Ref, error: &kube::Error) -> Went {
        let message = match error {
            kube::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        };
        tracing::debug!(%message, ?verb, ?of, owner = ?self.owner, "a write for a workload failed");
        self.say(verb, of, Some(&message));
        Went::Failed(Failure { verb, message })
    }

    fn say(&self, verb: Verb, object: &Ref, error: Option<&str>) {
        if let Some(note) = (self.said)(&Outcome { verb, object, error }) {
            self.recorder.record(self.owner.clone(), note, self.now);
        }
    }

    async fn saw(&self, write: &Write) {
        match write {
            Write::Made(kind, made) => kind.saw_made(self.shelves, made).await,
            Write::Changed(of, written) => of.kind.saw_written(self.shelves, of, written).await,
            Write::Deleted(of) => of.kind.saw_going(self.shelves, of).await,
        }
    }
}

impl Performed {
    /// Whether there was nothing to write after all.
    pub(super) fn wrote_nothing(&self) -> bool {
        self.writes.is_empty()
    }

    fn note(&mut self, went: Went) {
        match went {
            Went::Done(write) => self.writes.push(*write),
            Went::Settled => {}
            Went::Overtaken => self.overtaken = true,
            Went::Failed(failure) => {
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
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut sent = JoinSet::new();
    for request in requests {
        // It is never closed.
        let place = room.clone().acquire_owned().await;
        sent.spawn(async move {
            let _place = place;
            request.await
        });
    }
    sent.join_all().await
}
