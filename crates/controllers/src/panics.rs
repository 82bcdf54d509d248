//! A panic over one object: the controller emits an event about the object, and retries it while it goes on with the others.

use std::sync::OnceLock;

use k8s_openapi::jiff::Timestamp;
use plumb_supervise::Panic;

use crate::Clients;
use crate::workload::Note;
use crate::workload::recorder::{Recorder, Subject};

/// The reason of the event.
const PANICKED: &str = "ReconcilePanicked";

/// The event.
pub(crate) fn note(panic: &Panic) -> Note {
    Note::warning(
        PANICKED,
        format!("The controller panicked over this object and will retry: {}", panic.message),
    )
}

/// Emits events about objects that a controller panicked over.
pub(crate) struct PanicEvents {
    controller: &'static str,
    clients: Clients,
    /// Most controllers never panic.
    recorder: OnceLock<Recorder>,
}

impl PanicEvents {
    pub(crate) fn new(controller: &'static str, clients: &Clients) -> Self {
        Self { controller, clients: clients.clone(), recorder: OnceLock::new() }
    }

    /// Emits the event, if the object is known.
    pub(crate) fn emit(&self, object: Option<Subject>, panic: &Panic) {
        let Some(object) = object else { return };
        // As the user that all controllers watch as: not every controller may write events.
        let Clients { watch, supervisor, metrics, .. } = &self.clients;
        let start = || Recorder::start(watch.clone(), self.controller, supervisor, metrics);
        self.recorder.get_or_init(start).record(object, note(panic), Timestamp::now());
    }
}
