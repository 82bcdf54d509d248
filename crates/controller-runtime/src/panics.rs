//! A panic during the reconcile of one object causes an event about the object.

use std::sync::OnceLock;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use plumb_supervise::Panic;

use crate::events::{EventRecorder, NewEvent};

/// The reason of the event.
const PANICKED: &str = "ReconcilePanicked";

/// Emits events about objects that a controller panicked over.
pub(crate) struct PanicEvents {
    start: Box<dyn Fn() -> EventRecorder + Send + Sync>,
    recorder: OnceLock<EventRecorder>,
}

impl PanicEvents {
    pub(crate) fn new(start: impl Fn() -> EventRecorder + Send + Sync + 'static) -> Self {
        Self { start: Box::new(start), recorder: OnceLock::new() }
    }

    pub(crate) fn emit(&self, object: ObjectReference, panic: &Panic, at: Timestamp) {
        let message = format!("The controller panicked over this object and will retry: {}", panic.message);
        self.recorder.get_or_init(&self.start).record(object, NewEvent::warning(PANICKED, message), at);
    }
}
