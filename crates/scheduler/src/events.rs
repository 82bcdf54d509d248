//! The events of pods. The scheduler does not wait for them.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use plumb_controller_runtime::events::{EventRecorder, EventStyle, EventType, NewEvent, RecorderConfig};
use plumb_supervise::Supervisor;

use crate::metrics::Metrics;
use crate::planner::PodRef;

/// The capacity of the recorder; further events are dropped. It is enough for tens of thousands of pods at once, which are
/// scheduled faster than their events are written.
const QUEUE: usize = 1 << 16;

/// An event about a pod.
#[derive(Debug)]
pub(crate) struct PodEvent {
    pub(crate) pod: PodRef,
    pub(crate) related: Option<PodRef>,
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) action: &'static str,
    pub(crate) note: String,
    pub(crate) at: Timestamp,
}

/// Emits the events of a scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Recorder(EventRecorder);

impl Recorder {
    /// Starts the recorder of a scheduler of that name.
    pub(crate) fn start(client: Client, scheduler: &str, supervisor: &Supervisor, metrics: &Metrics) -> Self {
        Self(EventRecorder::start(RecorderConfig {
            instance: Some(scheduler.to_owned()),
            style: EventStyle::Series,
            queue: QUEUE,
            metrics: metrics.toolkit().clone(),
            ..RecorderConfig::new(client, scheduler, supervisor)
        }))
    }

    /// Emits an event.
    pub(crate) fn record(&self, event: PodEvent) {
        let PodEvent { pod, related, warning, reason, action, note, at } = event;
        let type_ = if warning { EventType::Warning } else { EventType::Normal };
        let related = related.as_ref().map(reference);
        let event = NewEvent { related, ..NewEvent::new(type_, reason, note).with_action(action) };
        self.0.record(reference(&pod), event, at);
    }
}

fn reference(pod: &PodRef) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(pod.namespace.clone()),
        name: Some(pod.name.clone()),
        uid: Some(pod.uid.to_string()),
        resource_version: pod.resource_version.clone(),
        field_path: None,
    }
}
