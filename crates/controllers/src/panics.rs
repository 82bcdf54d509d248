//! A panic over one object: it becomes an event of the object, is counted, and the object is tried again later while the
//! controller goes on with the others.

use std::sync::{Arc, OnceLock};

use k8s_openapi::jiff::Timestamp;
use plumb_supervise::{Panic, Supervisor};

use crate::Clients;
use crate::workload::Note;
use crate::workload::recorder::{Recorder, Subject};

/// The reason of the event.
const PANICKED: &str = "ReconcilePanicked";

/// What is said of the object.
pub(crate) fn note(panic: &Panic) -> Note {
    Note::warning(
        PANICKED,
        format!("The controller panicked over this object and will retry: {}", panic.message),
    )
}

/// Does the work of a controller on one object after the other.
#[derive(Clone)]
pub(crate) struct Guard {
    controller: &'static str,
    clients: Clients,
    /// Most controllers never panic.
    recorder: Arc<OnceLock<Recorder>>,
}

impl Guard {
    pub(crate) fn new(controller: &'static str, clients: &Clients) -> Self {
        Self { controller, clients: clients.clone(), recorder: Arc::default() }
    }

    pub(crate) fn supervisor(&self) -> &Supervisor {
        &self.clients.supervisor
    }

    /// Does the work on an object; none if it panicked, which the event says.
    pub(crate) async fn reconcile<T>(
        &self,
        about: impl FnOnce() -> Option<Subject>,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        match self.supervisor().guard(self.controller, work).await {
            Ok(done) => Some(done),
            Err(panic) => {
                self.tell(about(), &panic);
                None
            }
        }
    }

    /// Emits the event of a panic that was caught and counted.
    pub(crate) fn tell(&self, about: Option<Subject>, panic: &Panic) {
        let Some(about) = about else { return };
        // As the user that all controllers watch as: not every controller may write events.
        let start = || Recorder::start(self.clients.watch.clone(), self.controller, self.supervisor());
        self.recorder.get_or_init(start).record(about, note(panic), Timestamp::now());
    }
}
