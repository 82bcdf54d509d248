//! The agent: takes up what runs, follows the pods that are bound to its node, and has a worker for each.

mod adopt;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use plumb_follow::{Place, Told, follow, place};
use plumb_resize::admission::NodeFacts;
use plumb_resize::resource::Amounts;
use plumb_resize::rules::Rules;
use plumb_runtime::types::{ContainerChange, Event, SandboxFilter, SandboxId};
use plumb_runtime::{Error, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::Clock;
use crate::book::{Book, Guest};
use crate::desk::Desk;
use crate::env::EnvFacts;
use crate::events::{Kind, Recorder};
use crate::journal::{Entry, Journal, JournalError};
use crate::node::{Node, Workers};
use crate::objects::Objects;
use crate::specify;
use crate::volumes::{Volumes, VolumesConfig};
use crate::worker::{Message, Worker, error_chain, is_over};

/// What an agent is made of.
pub struct Config {
    /// The node's name.
    pub name: String,
    /// How the cluster is reached, as the node's own user.
    pub client: Client,
    /// What runs pods.
    pub runtime: Arc<dyn Runtime>,
    /// Where promises are kept.
    pub journal: Journal,
    /// What was wrong with the journal when it was opened, if anything was.
    pub damage: Option<String>,
    /// Which rules bind.
    pub rules: Rules,
    /// What the node has to give to pods.
    pub allocatable: Amounts,
    /// How many pods it may have.
    pub max_pods: usize,
    /// What the node is like.
    pub facts: NodeFacts,
    /// What memory the machine has.
    pub memory: i64,
    /// What containers may know of the node: its addresses, where the API is, what there is to use.
    pub known: EnvFacts,
    /// Where volumes are made.
    pub volumes: PathBuf,
    /// Where pods' logs are, and how they look up names.
    pub place: specify::Place,
    /// What time it is.
    pub clock: Clock,
}

/// Why an agent could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The runtime did not answer.
    #[error("ask the container runtime")]
    Runtime(#[from] Error),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// An agent that has taken up what runs, and is about to follow the API.
pub struct Agent {
    node: Arc<Node>,
    /// What the journal held, until its pod is seen.
    entries: BTreeMap<String, Entry>,
    /// What was wrong with the journal.
    damage: Vec<String>,
    /// The uids of the pods, by where they are.
    places: HashMap<Place, String>,
    /// Which pod a sandbox is for.
    sandboxes: HashMap<SandboxId, String>,
    workers: JoinSet<()>,
    /// Whether all pods have been seen once.
    listed: bool,
}

impl Agent {
    /// Makes an agent; nothing is touched yet.
    pub async fn new(config: Config) -> Result<Self, StartError> {
        let Config { name, client, runtime, journal, rules, clock, .. } = config;
        let version = runtime.version().await?;
        let found = journal.read()?;
        let objects = Objects::new(client.clone());
        let book = Book::new(config.allocatable, config.max_pods, config.facts, rules.clone());
        let node = Node {
            desk: Desk::new(book, journal, clock.clone()),
            events: Recorder::start(client.clone(), &name, clock.clone()),
            name,
            runtime,
            runtime_name: version.runtime_name,
            rules,
            clock,
            place: config.place,
            volumes: Volumes::new(
                VolumesConfig {
                    root: config.volumes,
                    objects: objects.clone(),
                    allocatable: config.known.allocatable.clone(),
                },
                client.clone(),
            ),
            objects,
            facts: config.known,
            client,
            memory: config.memory,
            workers: Workers::default(),
        };
        let damage = config.damage.into_iter().chain(found.damage).collect();
        Ok(Self {
            node: Arc::new(node),
            entries: found.entries,
            damage,
            places: HashMap::new(),
            sandboxes: HashMap::new(),
            workers: JoinSet::new(),
            listed: false,
        })
    }

    /// Works until the future is dropped. Containers run on.
    pub async fn run(mut self) {
        let (tell, mut told) = mpsc::channel(256);
        let selector = format!("spec.nodeName={}", self.node.name);
        let pods: Api<Pod> = Api::all(self.node.client.clone());
        let following = follow(pods, Some(&selector), tell);
        let mut events = self.node.runtime.events();
        let work = async {
            loop {
                tokio::select! {
                    news = told.recv() => match news {
                        Some(Told::All(pods)) => self.take_all(pods).await,
                        Some(Told::Put(pod)) => self.take(Arc::new(*pod)),
                        Some(Told::Gone(at)) => self.gone(&at),
                        None => return,
                    },
                    event = events.next() => match event {
                        Some(event) => self.happened(event).await,
                        None => return,
                    },
                    // Only so that what has ended is let go of.
                    Some(_) = self.workers.join_next() => {}
                }
            }
        };
        tokio::join!(following, work);
    }

    /// Takes a pod that is new or changed.
    fn take(&mut self, pod: Arc<Pod>) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let before = self.places.insert(place(&*pod), uid.clone());
        if let Some(other) = before.filter(|other| *other != uid) {
            // Another pod had the name; that it is gone was missed.
            self.node.workers.tell(&other, Message::Deleted);
        }
        if !self.node.workers.tell(&uid, Message::Pod(pod.clone())) {
            self.employ(uid, pod, None);
        }
    }

    fn gone(&mut self, at: &Place) {
        if let Some(uid) = self.places.remove(at) {
            self.node.workers.tell(&uid, Message::Deleted);
        }
    }

    /// Has somebody work for a pod: one that was promised something before, or one that is new.
    fn employ(&mut self, uid: String, pod: Arc<Pod>, entry: Option<Entry>) {
        let (tell, inbox) = mpsc::unbounded_channel();
        self.node.workers.employ(&uid, pod.clone(), tell.clone());
        self.node.desk.listen(&uid, tell.clone());
        let node = self.node.clone();
        self.workers.spawn(async move {
            if let Some(worker) = hire(node, tell, uid, pod, entry).await {
                worker.run(inbox).await;
            }
        });
    }

    /// Takes what happened in the runtime.
    async fn happened(&mut self, event: Event) {
        match event {
            Event::Container { id, sandbox, change, .. } => {
                let message = match change {
                    ContainerChange::OutOfMemory => Message::OutOfMemory(id),
                    ContainerChange::Stopped => Message::Happened,
                    // What the workers themselves do.
                    ContainerChange::Created | ContainerChange::Started | ContainerChange::Deleted => return,
                };
                if !self.sandboxes.contains_key(&sandbox) {
                    self.learn_sandboxes().await;
                }
                if let Some(uid) = self.sandboxes.get(&sandbox) {
                    self.node.workers.tell(uid, message);
                }
            }
            Event::Missed(_) => {
                self.sandboxes.clear();
                self.node.workers.tell_all(|| Message::Happened);
            }
        }
    }

    /// Learns which pods the sandboxes are for.
    async fn learn_sandboxes(&mut self) {
        match self.node.runtime.list_sandboxes(&SandboxFilter::default()).await {
            Ok(list) => {
                self.sandboxes = list.into_iter().map(|sandbox| (sandbox.id, sandbox.meta.uid)).collect();
            }
            Err(error) => tracing::warn!(%error, "cannot list sandboxes"),
        }
    }
}

/// Whoever is to work for a pod, unless it cannot be worked for.
async fn hire(
    node: Arc<Node>,
    tell: mpsc::UnboundedSender<Message>,
    uid: String,
    pod: Arc<Pod>,
    entry: Option<Entry>,
) -> Option<Worker> {
    let guest = match Guest::of(&pod) {
        Ok(guest) => guest,
        Err(error) => {
            // The API server has seen to it that this does not happen.
            tracing::error!(uid, %error, "a pod cannot be read");
            node.workers.dismiss(&uid);
            return None;
        }
    };
    let promised = |guest: &Guest| Entry::new(guest, guest.desired.clone());
    if let Some(entry) = entry {
        return Some(Worker::new(node, tell, pod, guest, entry));
    }
    if is_over(&pod) || pod.metadata.deletion_timestamp.is_some() {
        let entry = promised(&guest);
        return Some(Worker::new(node, tell, pod, guest, entry));
    }
    let mut wait = std::time::Duration::from_millis(100);
    let admitted = loop {
        match node.desk.admit(&uid, guest.clone()).await {
            Ok(admitted) => break admitted,
            Err(error) => {
                tracing::error!(error = error_chain(&error), "a promise cannot be kept, will try again");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(std::time::Duration::from_secs(10));
                node.desk.forget(&uid);
            }
        }
    };
    match admitted {
        Ok(entry) => Some(Worker::new(node, tell, pod, guest, entry)),
        Err(turned) => {
            let (reason, message) = (turned.reason().to_owned(), format!("Pod was rejected: {turned}"));
            node.events.pod(&pod, Kind::Warning, turned.reason(), turned.to_string());
            let entry = promised(&guest);
            Some(Worker::new(node, tell, pod, guest, entry).turned_away(reason, message))
        }
    }
}
