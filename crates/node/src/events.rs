//! Events: what happened to a pod, for the person who looks.
//!
//! An event that happens again is counted, not written again; a pod that causes too many is heard less often.
//! Events are told in passing: nothing waits for them, and when the API is away they are lost.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use plumb_supervise::Supervisor;
use serde_json::json;
use tokio::sync::{Mutex, mpsc};

use crate::Clock;
use crate::specify::identity;

/// How many events wait to be written at most.
const WAITING: usize = 1024;
/// How many different events are remembered, so that they are counted when they happen again.
const REMEMBERED: usize = 4096;
/// How many events a pod may cause at once, and how long it takes until it may cause one more.
const BURST: f64 = 25.0;
const REFILL: SignedDuration = SignedDuration::from_secs(300);

/// Whether somebody should look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Warning,
}

/// Something that happened to an object.
struct Happened {
    about: ObjectReference,
    kind: Kind,
    reason: &'static str,
    message: String,
    at: Timestamp,
}

/// Where parts of the agent say what happened. Clones are the same.
#[derive(Clone)]
pub(crate) struct Recorder {
    tell: mpsc::Sender<Happened>,
    clock: Clock,
}

impl Recorder {
    /// Starts writing events for a node; it ends when the last clone is dropped.
    pub(crate) fn start(client: Client, node: &str, clock: Clock, supervisor: &Supervisor) -> Self {
        let (tell, told) = mpsc::channel::<Happened>(WAITING);
        // What waits to be written outlives a restart.
        let (told, node) = (Arc::new(Mutex::new(told)), node.to_owned());
        tokio::spawn(supervisor.finish("node-event-recorder", move || {
            let (client, node, told) = (client.clone(), node.clone(), told.clone());
            async move {
                let mut told = told.lock().await;
                write(client, node, &mut told).await;
            }
        }));
        Self { tell, clock }
    }

    /// Says what happened to a pod.
    pub(crate) fn pod(&self, pod: &Pod, kind: Kind, reason: &'static str, message: impl Into<String>) {
        self.record(pod, None, kind, reason, message.into());
    }

    /// Says what happened to a container of a pod.
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
        let list = if is_init { "initContainers" } else { "containers" };
        self.record(pod, Some(format!("spec.{list}{{{container}}}")), kind, reason, message.into());
    }

    fn record(&self, pod: &Pod, field: Option<String>, kind: Kind, reason: &'static str, message: String) {
        let (namespace, name, uid) = identity(pod);
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
            resource_version: pod.metadata.resource_version.clone(),
            field_path: field,
        };
        let happened = Happened { about, kind, reason, message, at: (self.clock)() };
        // So many events that they cannot be written are not worth waiting for.
        if self.tell.try_send(happened).is_err() {
            tracing::debug!(reason, "an event was not recorded");
        }
    }
}

/// What makes two events the same, as a number: spelled out it is as long as the events, and there are many of them.
type Same = u64;

fn same(by: &RandomState, about: &ObjectReference, reason: &str, message: &str) -> Same {
    by.hash_one((&about.uid, &about.field_path, reason, message))
}

/// An event that was written.
struct Written {
    name: String,
    count: i32,
    last: Timestamp,
}

async fn write(client: Client, node: String, told: &mut mpsc::Receiver<Happened>) {
    let mut written: HashMap<Same, Written> = HashMap::new();
    let by = RandomState::new();
    let mut budgets: HashMap<Option<String>, (f64, Timestamp)> = HashMap::new();
    let node: Arc<str> = node.into();
    while let Some(happened) = told.recv().await {
        if !may_speak(&mut budgets, &happened) {
            continue;
        }
        let Happened { about, reason, message, at, .. } = &happened;
        let same = same(&by, about, reason, message);
        let api: Api<Event> = Api::namespaced(client.clone(), about.namespace.as_deref().unwrap_or_default());
        if let Some(before) = written.get_mut(&same) {
            (before.count, before.last) = (before.count.saturating_add(1), *at);
            let patch = json!({ "count": before.count, "lastTimestamp": Time(*at) });
            let patched = api.patch(&before.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
            match patched {
                Ok(_) => continue,
                // It has expired since.
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => {
                    tracing::debug!(%error, reason, "an event was not counted");
                    continue;
                }
            }
        }
        let event = event(&happened, &node);
        let name = event.metadata.name.clone().unwrap_or_default();
        match api.create(&PostParams::default(), &event).await {
            Ok(_) => {
                forget_some(&mut written, &mut budgets);
                written.insert(same, Written { name, count: 1, last: *at });
            }
            Err(error) => tracing::debug!(%error, reason, "an event was not written"),
        }
    }
}

/// Whether a pod has not caused too many events already.
fn may_speak(budgets: &mut HashMap<Option<String>, (f64, Timestamp)>, happened: &Happened) -> bool {
    let (left, since) = budgets.entry(happened.about.uid.clone()).or_insert((BURST, happened.at));
    let passed = happened.at.duration_since(*since).as_secs_f64().max(0.0);
    *left = (*left + passed / REFILL.as_secs_f64()).min(BURST);
    *since = happened.at;
    if *left < 1.0 {
        return false;
    }
    *left -= 1.0;
    true
}

/// Keeps what is remembered within bounds: the older half goes.
fn forget_some(
    written: &mut HashMap<Same, Written>,
    budgets: &mut HashMap<Option<String>, (f64, Timestamp)>,
) {
    if written.len() >= REMEMBERED {
        let mut times: Vec<Timestamp> = written.values().map(|written| written.last).collect();
        times.sort_unstable();
        let middle = times.get(times.len() / 2).copied().unwrap_or_default();
        written.retain(|_, written| written.last > middle);
    }
    if budgets.len() >= REMEMBERED {
        budgets.retain(|_, (left, _)| *left < BURST - 1.0);
    }
}

fn event(happened: &Happened, node: &str) -> Event {
    let Happened { about, kind, reason, message, at } = happened;
    let name = about.name.as_deref().unwrap_or_default();
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{:x}", at.as_nanosecond())),
            namespace: about.namespace.clone(),
            ..ObjectMeta::default()
        },
        involved_object: about.clone(),
        reason: Some((*reason).to_owned()),
        message: Some(message.clone()),
        type_: Some(if *kind == Kind::Normal { "Normal" } else { "Warning" }.to_owned()),
        count: Some(1),
        first_timestamp: Some(Time(*at)),
        last_timestamp: Some(Time(*at)),
        source: Some(EventSource { component: Some("kubelet".to_owned()), host: Some(node.to_owned()) }),
        reporting_component: Some("kubelet".to_owned()),
        reporting_instance: Some(node.to_owned()),
        ..Event::default()
    }
}
