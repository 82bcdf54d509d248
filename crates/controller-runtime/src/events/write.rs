//! Writing events: several at a time, one at a time of each, with retries.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::{Patch, PatchParams, PostParams};
use plumb_client::Api;
use plumb_supervise::{Backoff, Exponential, system_random};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::correlate::Action;
use super::object::{object, patch};
use super::{Emitted, RecorderConfig};
use crate::metrics::{EventMetrics, EventOutcome};

/// How many requests are under way at most.
const CONCURRENT: usize = 16;
/// How often it is tried to write an event, how long to wait in between, and how long for an answer.
const TRIES: u32 = 12;
const DELAYS: Exponential = Exponential::new(Duration::from_millis(100), Duration::from_secs(10));
const TIMEOUT: Duration = Duration::from_secs(30);

/// An event to write.
#[derive(Debug)]
struct Write {
    event: Event,
    exists: bool,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Created,
    Patched,
    Failed,
    NamespaceTerminates,
}

/// A write that is over: the name of the event and the uid of the object that it is about.
#[derive(Debug)]
struct Done {
    name: String,
    uid: Option<String>,
    written: Written,
}

/// Writes events. Two writes of one event never overtake each other.
pub(super) struct Writer {
    config: RecorderConfig,
    metrics: Arc<EventMetrics>,
    active: JoinSet<Done>,
    /// The next write after each one in flight, by the name of the event: only the last one, which includes the
    /// others.
    next: HashMap<String, Option<Write>>,
}

impl Writer {
    pub(super) fn new(config: RecorderConfig, metrics: Arc<EventMetrics>) -> Self {
        Self { config, metrics, active: JoinSet::new(), next: HashMap::new() }
    }

    pub(super) fn has_capacity(&self) -> bool {
        self.active.len() < CONCURRENT
    }

    pub(super) fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// Performs the decision about an event.
    pub(super) fn write(&mut self, emitted: Emitted, action: Action) {
        let (observed, exists) = match action {
            Action::Create(observed) => (observed, false),
            Action::Patch(observed) => (observed, true),
            Action::Filter => return self.metrics.observe(EventOutcome::Filtered),
        };
        let name = observed.name.clone();
        let write = Write { event: object(&self.config, emitted, observed), exists };
        if let Some(next) = self.next.get_mut(&name) {
            if next.replace(write).is_some() {
                // The one before is part of the count of this one.
                self.metrics.observe(EventOutcome::Patched);
            }
            return;
        }
        self.start(name, write);
    }

    fn start(&mut self, name: String, write: Write) {
        self.next.insert(name.clone(), None);
        let (client, supervisor) = (self.config.client.clone(), self.config.supervisor.clone());
        let task = self.config.task.clone();
        self.active.spawn(async move {
            let uid = write.event.involved_object.uid.clone();
            let namespace = write.event.metadata.namespace.clone().unwrap_or_default();
            let writing = retry(Api::namespaced(client, &namespace), write);
            let written = supervisor.guard(&task, writing).await.unwrap_or(Written::Failed);
            Done { name, uid, written }
        });
    }

    /// Waits for a write to finish; none if none is under way. Answers the uid of the object if its namespace terminates. This is
    /// cancel safe.
    pub(super) async fn finished(&mut self) -> Option<Option<String>> {
        let done = match self.active.join_next().await? {
            Ok(done) => done,
            // Panics are caught in the task, and no code aborts it.
            Err(error) => {
                tracing::error!(%error, "a task that writes an event failed");
                return Some(None);
            }
        };
        let Done { name, uid, written } = done;
        self.metrics.observe(match written {
            Written::Created => EventOutcome::Created,
            Written::Patched => EventOutcome::Patched,
            Written::Failed | Written::NamespaceTerminates => EventOutcome::Failed,
        });
        if let Some(next) = self.next.remove(&name).flatten() {
            self.start(name, next);
        }
        Some(uid.filter(|_| written == Written::NamespaceTerminates))
    }
}

/// Writes an event, and tries again if that may help.
async fn retry(events: Api<Event>, mut write: Write) -> Written {
    let mut backoff = Backoff::new(DELAYS).with_jitter(0.5, system_random());
    loop {
        let failure = match timeout(TIMEOUT, try_once(&events, &mut write)).await {
            Ok(Ok(written)) => return written,
            Ok(Err(error)) if is_namespace_terminating(&error) => return Written::NamespaceTerminates,
            Ok(Err(error)) if !is_transient(&error) => {
                tracing::debug!(%error, reason = write.event.reason, "the API server rejects an event");
                return Written::Failed;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        if backoff.failures() + 1 >= TRIES {
            tracing::debug!(error = failure, reason = write.event.reason, "cannot emit an event, giving up");
            return Written::Failed;
        }
        backoff.wait().await;
    }
}

async fn try_once(events: &Api<Event>, write: &mut Write) -> kube::Result<Written> {
    if write.exists {
        let name = write.event.metadata.name.as_deref().unwrap_or_default();
        let params = PatchParams::default();
        match events.patch(name, &params, &Patch::Strategic(&patch(&write.event))).await {
            // It has expired, or was never written.
            Err(kube::Error::Api(status)) if status.is_not_found() => write.exists = false,
            patched => return patched.map(|_| Written::Patched),
        }
    }
    match events.create(&PostParams::default(), &write.event).await {
        // An earlier try was written, though the answer was lost.
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(Written::Created),
        created => created.map(|_| Written::Created),
    }
}

/// Whether another try may succeed.
fn is_transient(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        kube::Error::HyperError(_) | kube::Error::Service(_) => true,
        _ => false,
    }
}

fn is_namespace_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}
