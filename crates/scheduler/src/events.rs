//! Events: what became of a pod, for the person who looks. They are told in passing: nothing waits for them.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use plumb_supervise::Supervisor;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use crate::planner::PodRef;

/// How many events wait to be written at most; more are lost. Enough for tens of thousands of pods at once, which are
/// scheduled faster than told of.
const WAITING: usize = 1 << 16;
/// How many are written at a time.
const AT_ONCE: usize = 16;
/// How long a note may be.
const LONGEST: usize = 1024;

/// What happened to a pod.
#[derive(Debug)]
pub(crate) struct Happened {
    pub(crate) pod: PodRef,
    pub(crate) related: Option<PodRef>,
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) action: &'static str,
    pub(crate) note: String,
    pub(crate) at: Timestamp,
}

/// Where to say what happened.
#[derive(Clone, Debug)]
pub(crate) struct Recorder(mpsc::Sender<Happened>);

impl Recorder {
    /// Starts writing events as a scheduler of that name; it ends when the last clone is dropped.
    pub(crate) fn start(client: Client, scheduler: &str, supervisor: &Supervisor) -> Self {
        let (tell, told) = mpsc::channel::<Happened>(WAITING);
        // What waits to be written outlives a restart.
        let (told, scheduler) = (Arc::new(Mutex::new(told)), Arc::from(scheduler));
        tokio::spawn(supervisor.finish(&format!("event-recorder/{scheduler}"), move || {
            let (client, scheduler, told) = (client.clone(), Arc::clone(&scheduler), told.clone());
            async move {
                let mut told = told.lock().await;
                write(client, scheduler, &mut told).await;
            }
        }));
        Self(tell)
    }

    /// Says what happened.
    pub(crate) fn record(&self, happened: Happened) {
        // So many events that they cannot be written are not worth waiting for.
        if let Err(error) = self.0.try_send(happened) {
            tracing::debug!(%error, "an event was not recorded");
        }
    }
}

async fn write(client: Client, scheduler: Arc<str>, told: &mut mpsc::Receiver<Happened>) {
    let mut writing = JoinSet::new();
    while let Some(happened) = told.recv().await {
        if writing.len() >= AT_ONCE {
            writing.join_next().await;
        }
        let (client, scheduler) = (client.clone(), scheduler.clone());
        writing.spawn(async move {
            let api: Api<Event> = Api::namespaced(client, &happened.pod.namespace);
            let event = event(happened, &scheduler);
            if let Err(error) = api.create(&PostParams::default(), &event).await {
                tracing::debug!(%error, reason = event.reason, "an event was not written");
            }
        });
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

fn event(happened: Happened, scheduler: &str) -> Event {
    let Happened { pod, related, warning, reason, action, mut note, at } = happened;
    if note.len() > LONGEST {
        let end = note.floor_char_boundary(LONGEST - 4);
        note.truncate(end);
        note.push_str(" ...");
    }
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{:x}", pod.name, at.as_nanosecond())),
            namespace: Some(pod.namespace.clone()),
            ..ObjectMeta::default()
        },
        regarding: Some(reference(&pod)),
        related: related.as_ref().map(reference),
        event_time: Some(MicroTime(at)),
        type_: Some(if warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(reason.to_owned()),
        action: Some(action.to_owned()),
        note: Some(note),
        reporting_controller: Some(scheduler.to_owned()),
        reporting_instance: Some(scheduler.to_owned()),
        ..Event::default()
    }
}
