//! Events about pods and their node. No component waits for them, and when the API server is away for long they are lost.

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::Client;
use plumb_controller_runtime::events::{EventRecorder, NewEvent, RecorderConfig};
use plumb_supervise::Supervisor;

use crate::Clock;
use crate::cri_config::identity;
use crate::metrics::Metrics;

pub(crate) use plumb_controller_runtime::events::EventType as Kind;

/// The component that emits the events, as upstream calls it.
const COMPONENT: &str = "kubelet";
/// How many events wait to be written at most: a process may have a thousand nodes.
const QUEUE: usize = 1024;

/// Emits the events of a node. Clones are the same.
#[derive(Clone)]
pub(crate) struct Recorder {
    events: EventRecorder,
    clock: Clock,
}

impl Recorder {
    /// Starts writing events for a node; it ends when the last clone is dropped.
    pub(crate) fn start(
        client: Client,
        node: &str,
        clock: Clock,
        supervisor: &Supervisor,
        metrics: &Metrics,
    ) -> Self {
        let events = EventRecorder::start(RecorderConfig {
            instance: Some(node.to_owned()),
            task: "node-event-recorder".to_owned(),
            queue: QUEUE,
            metrics: metrics.toolkit().clone(),
            ..RecorderConfig::new(client, COMPONENT, supervisor)
        });
        Self { events, clock }
    }

    /// Emits an event of a pod.
    pub(crate) fn pod(&self, pod: &Pod, kind: Kind, reason: &'static str, message: impl Into<String>) {
        self.record(pod, None, NewEvent::new(kind, reason, message));
    }

    /// Emits an event of a container of a pod.
    pub(crate) fn container(
        &self,
        pod: &Pod,
        container: &str,
        kind: Kind,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let spec = pod.spec.as_ref();
        let is_init =
            spec.is_some_and(|spec| spec.init_containers.iter().flatten().any(|init| init.name == container));
        let is_ephemeral = spec
            .is_some_and(|spec| spec.ephemeral_containers.iter().flatten().any(|own| own.name == container));
        let list = if is_init {
            "initContainers"
        } else if is_ephemeral {
            "ephemeralContainers"
        } else {
            "containers"
        };
        let field = format!("spec.{list}{{{container}}}");
        self.record(pod, Some(field), NewEvent::new(kind, reason, message));
    }

    /// Emits an event of the node. Its uid is its name, as in the kubelet's, by which `kubectl describe node` finds it.
    pub(crate) fn node(&self, name: &str, kind: Kind, reason: &'static str, message: &str) {
        let regarding = ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(name.to_owned()),
            ..ObjectReference::default()
        };
        self.events.record(regarding, NewEvent::new(kind, reason, message), (self.clock)());
    }

    fn record(&self, pod: &Pod, field: Option<String>, event: NewEvent) {
        let (namespace, name, uid) = identity(pod);
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
            resource_version: pod.metadata.resource_version.clone(),
            field_path: field,
        };
        self.events.record(regarding, event, (self.clock)());
    }
}
