//! Events: what a component did to an object and why, for users of `kubectl describe`.
//!
//! ```text
//!   record ──▶ bounded queue ──▶ correlate: count ▸ combine similar ▸ filter ──▶ POST or PATCH, with retries
//!      └─ full: dropped, counted
//! ```
//!
//! [`EventRecorder`] does what client-go's `tools/record` does: an event that is repeated is counted on the same object,
//! many similar ones of an object are combined into one, and an object that causes too many is filtered. No component
//! waits for an event, and an event that cannot be written is lost.

mod correlate;
mod object;
mod recent;
mod write;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use plumb_supervise::Supervisor;
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use crate::metrics::{EventMetrics, EventOutcome, Metrics};
pub use correlate::{Action, Correlator, Observed};
use write::Writer;

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// All is as it should be.
    Normal,
    /// Something is wrong.
    Warning,
}

impl EventType {
    /// Its name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// An event to emit.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// Its type.
    pub type_: EventType,
    /// Why it happened, in one word for machines.
    pub reason: Cow<'static, str>,
    /// The action, in one machine-readable word.
    pub action: Option<Cow<'static, str>>,
    /// The message.
    pub message: String,
    /// Another object that took part in it.
    pub related: Option<ObjectReference>,
}

impl NewEvent {
    /// An event of a kind.
    pub fn new(type_: EventType, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { type_, reason: reason.into(), action: None, message: message.into(), related: None }
    }

    /// An event that is as it should be.
    pub fn normal(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(EventType::Normal, reason, message)
    }

    /// An event of type `Warning`.
    pub fn warning(reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(EventType::Warning, reason, message)
    }

    /// The same with an action.
    #[must_use]
    pub fn with_action(self, action: impl Into<Cow<'static, str>>) -> Self {
        Self { action: Some(action.into()), ..self }
    }

    /// The same with another object that took part in it.
    #[must_use]
    pub fn with_related(self, related: ObjectReference) -> Self {
        Self { related: Some(related), ..self }
    }
}

/// How an event is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventStyle {
    /// As client-go's `tools/record` does: with a source, a first and a last timestamp, and a count.
    #[default]
    Counted,
    /// As client-go's `tools/events` does: with an event time, an action, and a series once it is repeated.
    Series,
}

/// Configuration of an event recorder.
#[derive(Clone)]
pub struct RecorderConfig {
    /// The client. It needs to create and patch events.
    pub client: Client,
    /// The component that emits the events, like `deployment-controller`.
    pub component: String,
    /// Which of several such components, like the name of the node of a kubelet.
    pub instance: Option<String>,
    /// How the events are written.
    pub style: EventStyle,
    /// The name of the task.
    pub task: String,
    /// How many events wait to be written at most; more are dropped.
    pub queue: usize,
    /// Restarts the task.
    pub supervisor: Supervisor,
    /// Counts what becomes of events.
    pub metrics: Metrics,
}

impl RecorderConfig {
    /// The usual one of a component.
    pub fn new(client: Client, component: impl Into<String>, supervisor: &Supervisor) -> Self {
        let component = component.into();
        Self {
            client,
            task: format!("event-recorder/{component}"),
            component,
            instance: None,
            style: EventStyle::default(),
            queue: 4096,
            supervisor: supervisor.clone(),
            metrics: Metrics::default(),
        }
    }
}

/// An event about an object, at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Emitted {
    /// The object.
    pub regarding: ObjectReference,
    /// The event.
    pub event: NewEvent,
    /// When, by the wall clock of the component.
    pub at: Timestamp,
}

/// Emits events. Clones share one queue.
#[derive(Clone)]
pub struct EventRecorder {
    /// Boxed: a queue has memory for some from the start, and a process may have a thousand queues.
    queue: mpsc::Sender<Box<Emitted>>,
    metrics: Arc<EventMetrics>,
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorder").field("free", &self.queue.capacity()).finish_non_exhaustive()
    }
}

impl EventRecorder {
    /// Starts a task that writes events; it ends once the last clone of the recorder is dropped and the queue is empty. Has to
    /// be called inside a Tokio runtime.
    pub fn start(config: RecorderConfig) -> Self {
        let (sender, queue) = mpsc::channel(config.queue.max(1));
        let metrics = config.metrics.events(&config.component);
        let (task, supervisor) = (config.task.clone(), config.supervisor.clone());
        let writer = Writer::new(config, metrics.clone());
        // Events that wait to be written, written events and writes in progress outlive a restart.
        let state = Arc::new(Mutex::new(State { queue, correlator: Correlator::default(), writer }));
        tokio::spawn(supervisor.finish(&task, move || {
            let state = state.clone();
            async move { state.lock().await.run().await }
        }));
        Self { queue: sender, metrics }
    }

    /// Emits an event about an object. It never waits: if the queue is full the event is dropped, and counted as such.
    pub fn record(&self, regarding: ObjectReference, event: NewEvent, at: Timestamp) {
        if let Err(error) = self.queue.try_send(Box::new(Emitted { regarding, event, at })) {
            self.metrics.observe(EventOutcome::Dropped);
            tracing::debug!(%error, "an event is dropped");
        }
    }
}

struct State {
    queue: mpsc::Receiver<Box<Emitted>>,
    correlator: Correlator,
    writer: Writer,
}

impl State {
    async fn run(&mut self) {
        loop {
            tokio::select! {
                Some(terminating) = self.writer.finished() => {
                    if let Some(uid) = terminating {
                        self.correlator.namespace_terminates(&uid);
                    }
                }
                emitted = self.queue.recv(), if self.writer.has_capacity() => match emitted {
                    Some(emitted) => {
                        let action = self.correlator.correlate(&emitted, Instant::now());
                        self.writer.write(*emitted, action);
                    }
                    None if self.writer.is_idle() => return,
                    // The queue is closed and empty; the recorder waits for writes in progress.
                    None => { self.writer.finished().await; }
                },
            }
        }
    }
}
