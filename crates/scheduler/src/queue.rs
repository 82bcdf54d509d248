//! The scheduling queue: pending pods, and when each is scheduled.
//!
//! ```text
//!            add                        pop                     no node is feasible
//!   pod ───────────▶ active ──────────────────────▶ schedule ─────────────────────▶ unschedulable
//!                     ▲  ▲  after the backoff          │ binding failed               │ a change may help
//!                     │  └────────── backing off ◀─────┘                              │ its class
//!                     └───────────────────────────────────────────────────────────────┘
//! ```
//!
//! The pods of an equivalence class have the same requirements, so a failure of one of them is the failure of all:
//! until something changes, the other pods of the class become unschedulable without an attempt. A change that may help
//! clears the failure, and then one pod of the class at a time is scheduled until one of them fails again.
//!
//! Times are monotonic: setting the wall clock does not change a backoff.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use plumb_supervise::Exponential;
use tokio::time::Instant;

use crate::cache::Uid;
use crate::pod_state::PendingPod;

/// The backoff of failed attempts: the defaults of upstream's `podInitialBackoffSeconds` and `podMaxBackoffSeconds`.
const BACKOFF: Exponential = Exponential::new(Duration::from_secs(1), Duration::from_secs(10));
/// The maximum time that a pod stays unschedulable before it is tried without a change (upstream's
/// `DefaultPodMaxInUnschedulablePodsDuration`).
const MAX_UNSCHEDULABLE_DURATION: Duration = Duration::from_mins(5);
/// How often the queue checks for such pods.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// The order of pods: by priority, then by arrival.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Order {
    priority: Reverse<i32>,
    arrival: u64,
    uid: Uid,
}

/// The part of the queue that a pod is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Active,
    /// The end of the backoff, and whether an error is the reason. Without one, the backoff ends early if no pod is
    /// active.
    BackingOff(Instant, bool),
    Unschedulable,
    Gated,
}

/// A pod in the queue.
#[derive(Clone, Debug)]
pub(crate) struct QueuedPodInfo {
    pub(crate) pod: Arc<PendingPod>,
    /// The number of attempts.
    pub(crate) attempts: u32,
    /// When it was added.
    pub(crate) since: Instant,
    arrival: u64,
    state: State,
    not_before: Instant,
    /// The round of its class in which it was last scheduled.
    round: u64,
}

impl QueuedPodInfo {
    fn order(&self) -> Order {
        Order { priority: Reverse(self.pod.class.priority), arrival: self.arrival, uid: self.pod.uid.clone() }
    }
}

/// The pods of one class.
#[derive(Clone, Debug, Default)]
struct ClassQueue {
    unschedulable: BTreeSet<Order>,
    /// The number of pods that are active or back off, without those that back off because of an error.
    ready: usize,
    /// A change that may help the class begins a round, in which each pod is scheduled once.
    round: u64,
    /// Why no node is feasible, if a pod has failed in this round.
    failure: Option<Arc<str>>,
    failed_at: Option<Instant>,
    /// Whether a change of other pods may help.
    depends_on_pods: bool,
}

/// The number of pods in each part of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depths {
    /// Pods that are scheduled next.
    pub active: usize,
    /// Pods that back off.
    pub backing_off: usize,
    /// Pods that are scheduled again when a change may help.
    pub unschedulable: usize,
    /// Pods with scheduling gates.
    pub gated: usize,
}

/// The scheduling queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    pods: HashMap<Uid, QueuedPodInfo>,
    active: BTreeSet<Order>,
    backing_off: BTreeSet<(Instant, Order)>,
    classes: HashMap<u64, ClassQueue>,
    gated: usize,
    arrivals: u64,
    next_flush: Option<Instant>,
}

/// The state of a pod that was added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// It is active or gated, or was in the queue already.
    Queued,
    /// It is unschedulable: its class has failed with this message.
    Unschedulable(Arc<str>),
}

impl Queue {
    /// Adds a pending pod, or updates it.
    pub(crate) fn add(&mut self, pod: PendingPod, now: Instant) -> Added {
        let before = self.pods.get(&pod.uid);
        if let Some(before) = before
            && Arc::ptr_eq(&before.pod.class, &pod.class)
            && before.pod.gated == pod.gated
        {
            let uid = pod.uid.clone();
            if let Some(queued) = self.pods.get_mut(&uid) {
                queued.pod = Arc::new(pod);
            }
            return Added::Queued;
        }
        let known = before.map(|before| (before.arrival, before.attempts));
        self.remove(&pod.uid.clone());
        let (arrival, attempts) = known.unwrap_or_else(|| {
            self.arrivals += 1;
            (self.arrivals, 0)
        });
        let gated = pod.gated;
        let mut queued = QueuedPodInfo {
            pod: Arc::new(pod),
            attempts,
            since: now,
            arrival,
            state: if gated { State::Gated } else { State::Active },
            not_before: now,
            round: 0,
        };
        let class_queue = self.classes.entry(queued.pod.class.id).or_default();
        if let Some(why) = class_queue.failure.clone().filter(|_| !gated) {
            queued.attempts += 1;
            queued.round = class_queue.round;
            queued.state = State::Unschedulable;
            queued.not_before = now + BACKOFF.after(queued.attempts);
            self.insert(queued);
            return Added::Unschedulable(why);
        }
        self.insert(queued);
        Added::Queued
    }

    /// Removes a pod that was deleted or has a node.
    pub(crate) fn remove(&mut self, uid: &str) -> Option<QueuedPodInfo> {
        let queued = self.take(uid)?;
        self.activate_next(queued.pod.class.id, None, queued.not_before);
        Some(queued)
    }

    /// A pod in the queue.
    pub(crate) fn get(&self, uid: &str) -> Option<&QueuedPodInfo> {
        self.pods.get(uid)
    }

    /// Takes the next pod to schedule out of the queue.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<QueuedPodInfo> {
        while let Some((until, order)) = self.backing_off.first().filter(|(until, _)| *until <= now).cloned()
        {
            self.backing_off.remove(&(until, order.clone()));
            if let Some(queued) = self.take(&order.uid) {
                self.insert(QueuedPodInfo { state: State::Active, ..queued });
            }
        }
        // Without active pods, a backoff that is not because of an error ends early.
        let next_backing_off = || {
            let is_backing_off = |uid: &Uid| {
                self.pods.get(uid).is_some_and(|one| matches!(one.state, State::BackingOff(_, false)))
            };
            self.backing_off.iter().map(|(_, order)| &order.uid).find(|uid| is_backing_off(uid)).cloned()
        };
        let uid = self.active.first().map(|order| order.uid.clone()).or_else(next_backing_off)?;
        self.take(&uid)
    }

    /// When the next backoff ends.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.backing_off.first().map(|(until, _)| *until)
    }

    /// Adds a popped pod for which no node is feasible. If it preempts other pods, the next pod of its class may do the
    /// same.
    pub(crate) fn add_unschedulable(
        &mut self,
        mut queued: QueuedPodInfo,
        why: &Arc<str>,
        depends_on_pods: bool,
        preempts: bool,
        now: Instant,
    ) {
        let class = queued.pod.class.id;
        let class_queue = self.classes.entry(class).or_default();
        class_queue.failure = (!preempts).then(|| why.clone());
        class_queue.failed_at = Some(now);
        class_queue.depends_on_pods = depends_on_pods;
        queued.attempts += 1;
        queued.round = class_queue.round;
        queued.state = State::Unschedulable;
        queued.not_before = now + BACKOFF.after(queued.attempts);
        self.insert(queued);
        self.activate_next(class, None, now);
    }

    /// A popped pod is assumed on a node; the next of its class is scheduled.
    pub(crate) fn assumed(&mut self, queued: &QueuedPodInfo, now: Instant) {
        self.activate_next(queued.pod.class.id, None, now);
    }

    /// Adds a popped pod that could not be bound, with a backoff.
    pub(crate) fn add_failed(&mut self, mut queued: QueuedPodInfo, now: Instant) {
        queued.attempts += 1;
        queued.not_before = now + BACKOFF.after(queued.attempts);
        queued.state = State::BackingOff(queued.not_before, true);
        self.insert(queued);
    }

    /// Why no node is feasible for a class, if it has failed and nothing has changed since.
    pub(crate) fn known_failure(&self, class: u64) -> Option<(Arc<str>, bool)> {
        let class_queue = self.classes.get(&class)?;
        Some((class_queue.failure.clone()?, class_queue.depends_on_pods))
    }

    /// The classes whose unschedulable pods only a change of the cache makes schedulable: the first pod of each, and
    /// whether a change of other pods may help it.
    pub(crate) fn unschedulable_classes(&self) -> impl Iterator<Item = (&QueuedPodInfo, bool)> {
        let classes = self
            .classes
            .values()
            .filter(|class_queue| class_queue.failure.is_some() || class_queue.ready == 0);
        classes.filter_map(|class_queue| {
            Some((self.pods.get(&class_queue.unschedulable.first()?.uid)?, class_queue.depends_on_pods))
        })
    }

    /// Begins a round of a class after a change that may help it, with this pod if one is named.
    pub(crate) fn activate_class(&mut self, class: u64, first: Option<&str>, now: Instant) {
        let Some(class_queue) = self.classes.get_mut(&class) else { return };
        class_queue.failure = None;
        class_queue.round += 1;
        self.activate_next(class, first, now);
    }

    /// Activates an unschedulable pod after a change of its nominated node, even if its class has failed or has an
    /// active pod: to other pods the nominated node is not free.
    pub(crate) fn activate_nominated(&mut self, uid: &str, now: Instant) {
        let Some(queued) = self.pods.get(uid).filter(|queued| queued.state == State::Unschedulable) else {
            return;
        };
        let class = queued.pod.class.id;
        if let Some(class_queue) = self.classes.get_mut(&class) {
            class_queue.failure = None;
            class_queue.round += 1;
        }
        self.activate(uid, now);
    }

    /// Activates the classes that have been unschedulable for too long.
    pub(crate) fn flush_unschedulable(&mut self, now: Instant) {
        if self.next_flush.is_some_and(|at| now < at) {
            return;
        }
        self.next_flush = Some(now + FLUSH_INTERVAL);
        let is_old = |class_queue: &ClassQueue| {
            class_queue.failed_at.is_none_or(|at| at + MAX_UNSCHEDULABLE_DURATION <= now)
        };
        let old = self
            .classes
            .iter()
            .filter(|(_, class_queue)| !class_queue.unschedulable.is_empty() && is_old(class_queue));
        let old: Vec<u64> = old.map(|(class, _)| *class).collect();
        for class in old {
            self.activate_class(class, None, now);
        }
    }

    /// The number of pods in each part.
    pub(crate) fn depths(&self) -> Depths {
        let active = self.active.len();
        let backing_off = self.backing_off.len();
        Depths {
            active,
            backing_off,
            gated: self.gated,
            unschedulable: self.pods.len() - active - backing_off - self.gated,
        }
    }

    /// Activates the next pod of a class that was not scheduled in this round, unless the class has failed or has an
    /// active pod.
    fn activate_next(&mut self, class: u64, first: Option<&str>, now: Instant) {
        let Some(class_queue) = self.classes.get(&class) else { return };
        if class_queue.unschedulable.is_empty() {
            if class_queue.ready == 0 {
                self.classes.remove(&class);
            }
            return;
        }
        if class_queue.failure.is_some() || class_queue.ready > 0 {
            return;
        }
        let untried = |uid: &str| self.pods.get(uid).is_some_and(|one| one.round < class_queue.round);
        let named = first.filter(|uid| {
            untried(uid) && self.pods.get(*uid).is_some_and(|one| one.state == State::Unschedulable)
        });
        let next = named.map(Uid::from);
        let next = next.or_else(|| {
            class_queue.unschedulable.iter().map(|order| &order.uid).find(|uid| untried(uid)).cloned()
        });
        if let Some(uid) = next {
            self.activate(&uid, now);
        }
    }

    /// Activates an unschedulable pod, after its backoff.
    fn activate(&mut self, uid: &str, now: Instant) {
        let Some(mut queued) = self.take(uid) else { return };
        queued.state =
            if queued.not_before > now { State::BackingOff(queued.not_before, false) } else { State::Active };
        self.insert(queued);
    }

    fn insert(&mut self, queued: QueuedPodInfo) {
        let order = queued.order();
        let class_queue = self.classes.entry(queued.pod.class.id).or_default();
        match queued.state {
            State::Active => {
                class_queue.ready += 1;
                self.active.insert(order);
            }
            State::BackingOff(until, failed) => {
                class_queue.ready += usize::from(!failed);
                self.backing_off.insert((until, order));
            }
            State::Unschedulable => {
                class_queue.unschedulable.insert(order);
            }
            State::Gated => self.gated += 1,
        }
        self.pods.insert(queued.pod.uid.clone(), queued);
    }

    fn take(&mut self, uid: &str) -> Option<QueuedPodInfo> {
        let queued = self.pods.remove(uid)?;
        let order = queued.order();
        let class_queue = self.classes.entry(queued.pod.class.id).or_default();
        match queued.state {
            State::Active => {
                class_queue.ready -= 1;
                self.active.remove(&order);
            }
            State::BackingOff(until, failed) => {
                class_queue.ready -= usize::from(!failed);
                self.backing_off.remove(&(until, order));
            }
            State::Unschedulable => {
                class_queue.unschedulable.remove(&order);
            }
            State::Gated => self.gated -= 1,
        }
        Some(queued)
    }
}
