//! The frame of the workload controllers.
//!
//! ```text
//!   the API ──▶ shelves: one watch per kind, an index ──▶ queue: whose turn is it ──▶ gather ▸ decide ▸ perform ──┐
//!      ▲                                                    ▲                                                     │
//!      │                                                    └── at a time, or after a failure ◀──────────────────┤
//!      └──────────────────────────────────── what was written is waited for ◀────────────────────────────────────┘
//! ```
//!
//! A [`Workload`] is a pure decision over one object and what belongs to it: plain data in, [`Action`]s out, time is a
//! value. An event of a pod touches its owner and nobody else. A workload whose own writes are not on the [`Shelf`]
//! yet is not decided anew, so that nothing is made twice.

pub mod action;
pub mod claim;
pub mod kinds;
mod perform;
pub mod placed;
pub mod pods;
pub mod queue;
pub(crate) mod recorder;
pub mod shelf;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, Resource};
use plumb_follow::{Backoff, Place, place};
use plumb_supervise::{Panic, Supervisor};
use tokio::task::JoinSet;

use crate::panics;

pub use action::{Action, Failure, Note, Outcome, Verb};
pub use kinds::{Kind, Object, Ref, Shelved, Shelves, Written};
pub use queue::{Queue, Went};
pub use shelf::{Change, Shelf, controller_of};

use perform::Performer;
use recorder::Recorder;

/// How many workloads of a kind are looked at at a time.
const AT_ONCE: usize = 16;

/// What time it is.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What a decision is made in view of, besides what is there.
#[derive(Clone, Debug)]
pub struct Around {
    /// What time it is.
    pub now: Timestamp,
    /// What went wrong when it was last looked at. It is forgotten once a look goes well, and then looked again.
    pub failure: Option<Failure>,
}

impl Around {
    /// What time it is, in whole seconds as conditions have it.
    pub fn time(&self) -> Time {
        Time(Timestamp::from_second(self.now.as_second()).unwrap_or(self.now))
    }
}

/// A kind of workload.
pub trait Workload: Send + Sync + 'static {
    /// The name of its controller, and of the user that this writes as.
    const NAME: &'static str;
    /// The name of the task that runs it, in health checks and metrics.
    const TASK: &'static str = Self::NAME;
    /// The name that its events are told under.
    const TELLS_AS: &'static str = Self::NAME;
    /// The finalizer by which what it adopts is kept until it lets it go, if it counts what it controls.
    const KEEPS: Option<&'static str> = None;
    /// The kind.
    type Kind: Written + Into<Object>;
    /// An object of it with all that matters for it.
    type State: Send;

    /// Whether a change of an object is worth a look at it. Asked of every change of the kind, so it must not take long.
    fn minds(object: &Self::Kind) -> bool {
        let _ = object;
        true
    }

    /// Arranges whose changes touch which workloads. Its own changes touch a workload anyway.
    fn wire(&self, wiring: &Wiring<Self::Kind>);

    /// What has to be adopted and released. While there is something, nothing is decided.
    fn claims(&self, object: &Self::Kind, shelves: &Shelves) -> Vec<Action>;

    /// Collects what matters for a workload.
    fn gather(&self, object: &Arc<Self::Kind>, shelves: &Shelves) -> Self::State;

    /// What is to be done. Pure.
    fn decide(&self, state: &Self::State, around: &Around) -> Vec<Action>;

    /// What is said about what came of a write. Pure.
    fn said(&self, owner: &Self::Kind, outcome: &Outcome<'_>) -> Option<Note> {
        let _ = owner;
        said_of_pods(outcome)
    }
}

/// What most controllers say about the pods that they make and delete.
pub fn said_of_pods(outcome: &Outcome<'_>) -> Option<Note> {
    let Outcome { verb, object, error } = outcome;
    if object.kind != Kind::Pod {
        return None;
    }
    match (verb, error) {
        (Verb::Create, None) => {
            Some(Note::normal("SuccessfulCreate", format!("Created pod: {}", object.name)))
        }
        (Verb::Create, Some(error)) => {
            Some(Note::warning("FailedCreate", format!("Error creating: {error}")))
        }
        (Verb::Delete, None) => {
            Some(Note::normal("SuccessfulDelete", format!("Deleted pod: {}", object.name)))
        }
        (Verb::Delete, Some(error)) => {
            Some(Note::warning("FailedDelete", format!("Error deleting: {error}")))
        }
        (Verb::Change, _) => None,
    }
}

/// Whose changes touch which workloads.
pub struct Wiring<W> {
    /// What is known.
    pub shelves: Arc<Shelves>,
    /// Which workloads are to be looked at.
    pub queue: Arc<Queue>,
    kind: std::marker::PhantomData<fn() -> W>,
}

impl<W: Written> Wiring<W> {
    /// A change of an object touches the workload that controls it, and that did before. One that nobody controls
    /// touches the workloads that select it.
    pub fn owned<K: Shelved>(&self, selector: fn(&W) -> Option<LabelSelector>) {
        let (queue, shelves) = (self.queue.clone(), self.shelves.clone());
        K::shelf(&self.shelves).listen(move |change| {
            let before = change.before.and_then(|object| owner::<W>(&**object));
            let now = change.now.and_then(|object| owner::<W>(&**object));
            if let Some(before) = before.filter(|before| Some(before) != now.as_ref()) {
                queue.touch(before);
            }
            if let Some(at) = now {
                queue.touch(at);
            } else if let Some(orphan) = change.now.filter(|now| controller_of(now.meta()).is_none()) {
                let namespace = orphan.meta().namespace.as_deref().unwrap_or_default();
                for workload in W::shelf(&shelves).within(namespace) {
                    let wanted = claim::selector(selector(&workload).as_ref());
                    if wanted.is_some_and(|wanted| claim::selects(&wanted, &**orphan)) {
                        queue.touch(place(&*workload));
                    }
                }
            }
        });
    }
}

/// Where the workload of a kind is that controls an object, if one does.
pub fn owner<W: Resource<DynamicType = ()>>(object: &impl Resource) -> Option<Place> {
    let owner = controller_of(object.meta())?;
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    let is_of_kind = owner.kind == W::kind(&()) && group == W::group(&());
    is_of_kind.then(|| (object.meta().namespace.clone().unwrap_or_default(), owner.name.clone()))
}

/// The workload controllers of a cluster.
pub struct Workloads {
    shelves: Arc<Shelves>,
    clock: Clock,
    looks: Arc<AtomicU64>,
    supervisor: Supervisor,
    /// Lists what the shelves may not know yet; there from when they are followed on.
    watcher: Arc<OnceLock<Client>>,
    running: JoinSet<()>,
}

impl Workloads {
    /// None yet.
    pub fn new(clock: Clock, supervisor: Supervisor) -> Self {
        let (shelves, looks, running) = (Arc::default(), Arc::default(), JoinSet::new());
        Self { shelves, clock, looks, supervisor, watcher: Arc::default(), running }
    }

    /// What is known.
    pub fn shelves(&self) -> &Arc<Shelves> {
        &self.shelves
    }

    /// What time it is.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// How often a workload was looked at, from now on.
    pub fn looks(&self) -> Arc<AtomicU64> {
        self.looks.clone()
    }

    /// Adds a controller, which writes by this client. It starts when everything is known.
    pub fn add<W: Workload>(&mut self, workload: W, client: Client) {
        let queue = Arc::new(Queue::default());
        let wiring = Wiring {
            shelves: self.shelves.clone(),
            queue: queue.clone(),
            kind: std::marker::PhantomData::<fn() -> W::Kind>,
        };
        let touched = queue.clone();
        W::Kind::shelf(&self.shelves).listen(move |change| {
            if let Some(object) = change.now.filter(|object| W::minds(object)) {
                touched.touch(place(&**object));
            }
        });
        workload.wire(&wiring);
        let recorder = Recorder::start(client.clone(), W::TELLS_AS, &self.supervisor);
        let desk = Arc::new(Desk {
            workload,
            client,
            queue,
            shelves: self.shelves.clone(),
            recorder,
            clock: self.clock.clone(),
            looks: self.looks.clone(),
            supervisor: self.supervisor.clone(),
            watcher: self.watcher.clone(),
            started: AtomicBool::new(false),
        });
        // The queue outlives a restart: what touched it meanwhile is not lost.
        self.running.spawn(self.supervisor.keep(W::TASK, move || run(desk.clone())));
    }

    /// Adds something else that runs beside them.
    pub fn also(&mut self, beside: impl Future<Output = ()> + Send + 'static) {
        self.running.spawn(beside);
    }

    /// Follows the API, as this client sees it, and runs the controllers until it is dropped.
    pub async fn run(mut self, client: Client) {
        // Only the first counts, and this is called once.
        let _ = self.watcher.set(client.clone());
        let mut following = self.shelves.follow(&client, &self.supervisor);
        tokio::join!(async { while following.join_next().await.is_some() {} }, async {
            while self.running.join_next().await.is_some() {}
        });
    }
}

/// Where the workloads of a kind are decided about.
struct Desk<W> {
    workload: W,
    client: Client,
    queue: Arc<Queue>,
    shelves: Arc<Shelves>,
    recorder: Recorder,
    clock: Clock,
    looks: Arc<AtomicU64>,
    supervisor: Supervisor,
    watcher: Arc<OnceLock<Client>>,
    /// Whether this is not the first run of the task.
    started: AtomicBool,
}

/// How looking at a workload went.
struct Looked {
    went: Went,
    failure: Option<Failure>,
}

async fn run<W: Workload>(desk: Arc<Desk<W>>) {
    desk.queue.requeue_busy();
    desk.shelves.ready().await;
    let mut under_way: JoinSet<Looked> = JoinSet::new();
    let mut places: HashMap<tokio::task::Id, Place> = HashMap::new();
    let mut failures: HashMap<Place, Failure> = HashMap::new();
    let mut wrote_unseen = desk.started.swap(true, Ordering::Relaxed);
    loop {
        if std::mem::take(&mut wrote_unseen) {
            desk.catch_up().await;
        }
        let now = (desk.clock)();
        while under_way.len() < AT_ONCE
            && let Some(at) = desk.queue.take(now)
        {
            let (desk, failure, place) = (desk.clone(), failures.remove(&at), at.clone());
            let task = under_way.spawn(async move { desk.look(at, Around { now, failure }).await });
            places.insert(task.id(), place);
        }
        let wait = desk.queue.next_at().filter(|_| under_way.len() < AT_ONCE);
        let wait = wait.map(|when| when.duration_since(now).try_into().unwrap_or_default());
        tokio::select! {
            Some(looked) = under_way.join_next_with_id() => {
                let (id, looked) = match looked {
                    Ok((id, looked)) => (id, looked),
                    Err(error) => {
                        // A bug, but one of this object: it waits like one whose writes fail, and the others go on.
                        let id = error.id();
                        if let Some(panic) = Panic::of_task(error) {
                            desk.note_panic(places.get(&id), &panic, now);
                        }
                        wrote_unseen = true;
                        (id, Looked { went: Went::Badly, failure: None })
                    }
                };
                let Some(at) = places.remove(&id) else { continue };
                if let Some(failure) = looked.failure {
                    failures.insert(at.clone(), failure);
                }
                desk.queue.done(at, looked.went, (desk.clock)());
            }
            () = desk.queue.changed() => {}
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
        }
    }
}

impl<W: Workload> Desk<W> {
    /// Waits until the shelves hold what there is now. What was written by a run that panicked or was aborted was not waited
    /// for; who decides without it makes it twice.
    async fn catch_up(&self) {
        let Some(watcher) = self.watcher.get() else { return };
        let mut backoff = Backoff::default();
        while let Err(error) = self.shelves.catch_up(watcher).await {
            tracing::debug!(%error, controller = W::NAME, "cannot list what was written, will try again");
            backoff.wait().await;
        }
    }

    /// Counts a panic over an object, and emits an event of the object.
    fn note_panic(&self, at: Option<&Place>, panic: &Panic, now: Timestamp) {
        self.supervisor.note_panic(W::TASK, panic);
        if let Some(object) = at.and_then(|at| W::Kind::shelf(&self.shelves).get(at)) {
            self.recorder.record(Ref::to(&*object), panics::note(panic), now);
        }
    }

    /// Looks at one workload, and does what is to be done.
    async fn look(&self, at: Place, around: Around) -> Looked {
        self.looks.fetch_add(1, Ordering::Relaxed);
        let Some(object) = W::Kind::shelf(&self.shelves).get(&at) else {
            return Looked { went: Went::Well, failure: None };
        };
        let claims = self.workload.claims(&object, &self.shelves);
        let claimed = !claims.is_empty();
        let actions = if claimed {
            claims
        } else {
            let state = self.workload.gather(&object, &self.shelves);
            self.workload.decide(&state, &around)
        };
        let said = |outcome: &Outcome<'_>| self.workload.said(&object, outcome);
        let performer = Performer {
            client: &self.client,
            shelves: &self.shelves,
            recorder: &self.recorder,
            owner: Ref::to(&*object),
            reference: claim::controller_reference(&*object),
            keeps: W::KEEPS,
            now: around.now,
            said: &said,
        };
        let performed = performer.perform(actions).await;
        if let Some(when) = performed.again_at {
            self.queue.touch_at(at.clone(), when);
        }
        let went = match &performed.failure {
            Some(_) => Went::Badly,
            None if performed.overtaken => Went::Badly,
            // Who was to be claimed is gone, which is not known here yet.
            None if claimed && performed.wrote_nothing() => Went::Badly,
            // What was said about a failure is to be taken back, and who was claimed to be counted.
            None if around.failure.is_some() || claimed => Went::Again,
            None => Went::Well,
        };
        Looked { went, failure: performed.failure }
    }
}
