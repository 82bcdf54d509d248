//! Events that controllers emit. No controller waits until they are written.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use plumb_controller_runtime::events::{EventRecorder, EventType, NewEvent, RecorderConfig};
use plumb_controller_runtime::metrics::Metrics;
use plumb_supervise::Supervisor;

use super::action::Note;
use super::kinds::Ref;

impl From<Ref> for ObjectReference {
    fn from(of: Ref) -> Self {
        let Ref { kind, namespace, name, uid } = of;
        Self {
            api_version: Some(kind.api_version()),
            kind: Some(kind.name().to_owned()),
            namespace: Some(namespace).filter(|namespace| !namespace.is_empty()),
            name: Some(name),
            uid: Some(uid),
            ..Self::default()
        }
    }
}

/// Emits the events of a controller.
#[derive(Clone)]
pub(crate) struct Recorder(pub(crate) EventRecorder);

impl Recorder {
    /// Starts writing events as a controller of that name; it ends when the last clone is dropped.
    pub(crate) fn start(
        client: Client,
        controller: &'static str,
        supervisor: &Supervisor,
        metrics: &Metrics,
    ) -> Self {
        let config = RecorderConfig::new(client, controller, supervisor);
        Self(EventRecorder::start(RecorderConfig { metrics: metrics.clone(), ..config }))
    }

    /// Emits an event about an object.
    pub(crate) fn record(&self, about: impl Into<ObjectReference>, note: Note, at: Timestamp) {
        let Note { warning, reason, message } = note;
        let type_ = if warning { EventType::Warning } else { EventType::Normal };
        self.0.record(about.into(), NewEvent::new(type_, reason, message), at);
    }
}
