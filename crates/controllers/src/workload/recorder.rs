//! Events: what a controller did and why, for the person who looks. Nothing waits for them.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::{Client, Resource};
use plumb_controller::events::{EventRecorder, EventType, NewEvent, RecorderConfig};
use plumb_controller::metrics::Metrics;
use plumb_supervise::Supervisor;

use super::action::Note;
use super::kinds::Ref;

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// Empty if its kind has none; the event is in `default` then.
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl Subject {
    /// An object.
    pub(crate) fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let metadata = object.meta();
        Self {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            namespace: text(&metadata.namespace),
            name: text(&metadata.name),
            uid: text(&metadata.uid),
        }
    }
}

impl From<Ref> for Subject {
    fn from(of: Ref) -> Self {
        let Ref { kind, namespace, name, uid } = of;
        Self { api_version: kind.api_version(), kind: kind.name().to_owned(), namespace, name, uid }
    }
}

impl From<Subject> for ObjectReference {
    fn from(of: Subject) -> Self {
        Self {
            api_version: Some(of.api_version),
            kind: Some(of.kind),
            namespace: Some(of.namespace).filter(|namespace| !namespace.is_empty()),
            name: Some(of.name),
            uid: Some(of.uid),
            ..Self::default()
        }
    }
}

/// Emits the events of a controller.
#[derive(Clone)]
pub(crate) struct Recorder(EventRecorder);

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
    pub(crate) fn record(&self, about: impl Into<Subject>, note: Note, at: Timestamp) {
        let Note { warning, reason, message } = note;
        let type_ = if warning { EventType::Warning } else { EventType::Normal };
        self.0.record(about.into().into(), NewEvent::new(type_, reason, message), at);
    }
}
