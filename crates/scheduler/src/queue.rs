//! The pods that wait for a node, and when each is to be looked at.
//!
//! ```text
//!            put                        pop                     no node will do
//!   pod ───────────▶ active ──────────────────────▶ decide ───────────────────────▶ parked
//!                     ▲  ▲  later                      │ cannot be bound              │ something changed
//!                     │  └────────── backing off ◀─────┘                              │ that helps its class
//!                     └───────────────────────────────────────────────────────────────┘
//! ```
//!
//! Pods of one class ask for the same, so what is found for one of them holds for all: while a class is *settled*
//! nothing has changed since no node would do for it, and its pods are parked without a look. News that may help
//! opens it, and then one of its pods at a time is tried, for as long as that goes well.
//!
//! Times are monotonic, so that a wall clock that is set does not move a wait.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use plumb_supervise::Exponential;
use tokio::time::Instant;

use crate::cluster::Uid;
use crate::facts::Pending;

/// How long a pod waits after failed attempts.
const BACKOFF: Exponential = Exponential::new(Duration::from_secs(1), Duration::from_secs(10));
/// After this long a parked pod is tried whatever happened, and how often it is looked whether there is one.
const PARKED_AT_MOST: Duration = Duration::from_mins(5);
const LOOK_FOR_OLD: Duration = Duration::from_secs(1);

/// Who comes first: higher priority, then who came first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Order {
    priority: Reverse<i32>,
    arrival: u64,
    uid: Uid,
}

/// Where a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Active,
    /// Until then; whatever happens if it is because of an error, else only while others are active.
    BackingOff(Instant, bool),
    Parked,
    Gated,
}

/// A pod that waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) pod: Arc<Pending>,
    /// How many times it was tried.
    pub(crate) attempts: u32,
    /// Since when it could be tried.
    pub(crate) since: Instant,
    arrival: u64,
    state: State,
    not_before: Instant,
    /// In which round of its class it was tried.
    round: u64,
}

impl Waiting {
    fn order(&self) -> Order {
        Order { priority: Reverse(self.pod.class.priority), arrival: self.arrival, uid: self.pod.uid.clone() }
    }
}

/// The pods of one class.
#[derive(Clone, Debug, Default)]
struct Line {
    parked: BTreeSet<Order>,
    /// How many are active or back off; not counting those with which something went wrong, on whom nobody waits.
    awake: usize,
    /// Each news that may help begins a round, in which each is tried once.
    round: u64,
    /// Why no node will do, if that is known in this round.
    settled: Option<Arc<str>>,
    settled_at: Option<Instant>,
    /// Where other pods are has a say.
    minds_others: bool,
}

/// How many pods are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depths {
    /// To be tried next.
    pub active: usize,
    /// To be tried after a while.
    pub backing_off: usize,
    /// To be tried when something changes.
    pub parked: usize,
    /// Not to be tried until somebody allows it.
    pub gated: usize,
}

/// The queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    pods: HashMap<Uid, Waiting>,
    active: BTreeSet<Order>,
    backing_off: BTreeSet<(Instant, Order)>,
    lines: HashMap<u64, Line>,
    gated: usize,
    arrivals: u64,
    look_for_old_at: Option<Instant>,
}

/// What became of a pod that was put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// It waits for its turn, or was there already.
    Queued,
    /// It is known that no node will do, and why.
    Parked(Arc<str>),
}

impl Queue {
    /// A pod waits, or says something new.
    pub(crate) fn put(&mut self, pod: Pending, now: Instant) -> Put {
        let before = self.pods.get(&pod.uid);
        if let Some(before) = before
            && Arc::ptr_eq(&before.pod.class, &pod.class)
            && before.pod.gated == pod.gated
        {
            let uid = pod.uid.clone();
            if let Some(held) = self.pods.get_mut(&uid) {
                held.pod = Arc::new(pod);
            }
            return Put::Queued;
        }
        let known = before.map(|before| (before.arrival, before.attempts));
        self.remove(&pod.uid.clone());
        let (arrival, attempts) = known.unwrap_or_else(|| {
            self.arrivals += 1;
            (self.arrivals, 0)
        });
        let gated = pod.gated;
        let mut waiting = Waiting {
            pod: Arc::new(pod),
            attempts,
            since: now,
            arrival,
            state: if gated { State::Gated } else { State::Active },
            not_before: now,
            round: 0,
        };
        let line = self.lines.entry(waiting.pod.class.id).or_default();
        if let Some(why) = line.settled.clone().filter(|_| !gated) {
            waiting.attempts += 1;
            waiting.round = line.round;
            waiting.state = State::Parked;
            waiting.not_before = now + BACKOFF.after(waiting.attempts);
            self.insert(waiting);
            return Put::Parked(why);
        }
        self.insert(waiting);
        Put::Queued
    }

    /// A pod needs no node any more.
    pub(crate) fn remove(&mut self, uid: &str) -> Option<Waiting> {
        let waiting = self.take_out(uid)?;
        self.settle(waiting.pod.class.id, None, waiting.not_before);
        Some(waiting)
    }

    /// A pod that is here.
    pub(crate) fn get(&self, uid: &str) -> Option<&Waiting> {
        self.pods.get(uid)
    }

    /// The next pod to be tried. It is out of the queue until it is told what became of it.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Waiting> {
        while let Some((until, order)) = self.backing_off.first().filter(|(until, _)| *until <= now).cloned()
        {
            self.backing_off.remove(&(until, order.clone()));
            if let Some(waiting) = self.take_out(&order.uid) {
                self.insert(Waiting { state: State::Active, ..waiting });
            }
        }
        // Nobody is kept waiting while there is nothing else to do, unless there was an error.
        let patient = || {
            let impatient = |uid: &Uid| {
                self.pods.get(uid).is_some_and(|one| matches!(one.state, State::BackingOff(_, false)))
            };
            self.backing_off.iter().map(|(_, order)| &order.uid).find(|uid| impatient(uid)).cloned()
        };
        let uid = self.active.first().map(|order| order.uid.clone()).or_else(patient)?;
        self.take_out(&uid)
    }

    /// When the next pod is due that backs off now.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.backing_off.first().map(|(until, _)| *until)
    }

    /// No node will do for a pod that was popped. If others are to leave a node for it, the next of its class may
    /// yet find one in the same way.
    pub(crate) fn park(
        &mut self,
        mut waiting: Waiting,
        why: &Arc<str>,
        minds_others: bool,
        others_leave: bool,
        now: Instant,
    ) {
        let class = waiting.pod.class.id;
        let line = self.lines.entry(class).or_default();
        line.settled = (!others_leave).then(|| why.clone());
        line.settled_at = Some(now);
        line.minds_others = minds_others;
        waiting.attempts += 1;
        waiting.round = line.round;
        waiting.state = State::Parked;
        waiting.not_before = now + BACKOFF.after(waiting.attempts);
        self.insert(waiting);
        self.settle(class, None, now);
    }

    /// A pod that was popped has found a node; the next of its class may find one too.
    pub(crate) fn placed(&mut self, waiting: &Waiting, now: Instant) {
        self.settle(waiting.pod.class.id, None, now);
    }

    /// Something went wrong with a pod that was popped: it is tried again after a while.
    pub(crate) fn retry(&mut self, mut waiting: Waiting, now: Instant) {
        waiting.attempts += 1;
        waiting.not_before = now + BACKOFF.after(waiting.attempts);
        waiting.state = State::BackingOff(waiting.not_before, true);
        self.insert(waiting);
    }

    /// Why no node will do for a class, if that is known and nothing has changed since.
    pub(crate) fn verdict(&self, class: u64) -> Option<(Arc<str>, bool)> {
        let line = self.lines.get(&class)?;
        Some((line.settled.clone()?, line.minds_others))
    }

    /// The classes with parked pods that only news can help: the first of its pods, and whether it minds others.
    pub(crate) fn stuck(&self) -> impl Iterator<Item = (&Waiting, bool)> {
        let stuck = self.lines.values().filter(|line| line.settled.is_some() || line.awake == 0);
        stuck.filter_map(|line| Some((self.pods.get(&line.parked.first()?.uid)?, line.minds_others)))
    }

    /// There are news that may help a class: one of its pods is tried, this one if one is named.
    pub(crate) fn rouse(&mut self, class: u64, first: Option<&str>, now: Instant) {
        let Some(line) = self.lines.get_mut(&class) else { return };
        line.settled = None;
        line.round += 1;
        self.settle(class, first, now);
    }

    /// There are news about the node that a parked pod is nominated to: it is tried, whatever is known of its class and
    /// although others of it are awake, for which the node does not count as free.
    pub(crate) fn rouse_nominated(&mut self, uid: &str, now: Instant) {
        let Some(waiting) = self.pods.get(uid).filter(|waiting| waiting.state == State::Parked) else {
            return;
        };
        let class = waiting.pod.class.id;
        if let Some(line) = self.lines.get_mut(&class) {
            line.settled = None;
            line.round += 1;
        }
        self.awaken(uid, now);
    }

    /// Rouses whoever was parked for too long.
    pub(crate) fn rouse_old(&mut self, now: Instant) {
        if self.look_for_old_at.is_some_and(|at| now < at) {
            return;
        }
        self.look_for_old_at = Some(now + LOOK_FOR_OLD);
        let is_old = |line: &Line| line.settled_at.is_none_or(|at| at + PARKED_AT_MOST <= now);
        let old = self.lines.iter().filter(|(_, line)| !line.parked.is_empty() && is_old(line));
        let old: Vec<u64> = old.map(|(class, _)| *class).collect();
        for class in old {
            self.rouse(class, None, now);
        }
    }

    /// How many pods are where.
    pub(crate) fn depths(&self) -> Depths {
        let (active, backing_off) = (self.active.len(), self.backing_off.len());
        Depths {
            active,
            backing_off,
            gated: self.gated,
            parked: self.pods.len() - active - backing_off - self.gated,
        }
    }

    /// While a class is not settled, one of its pods that was not tried in this round is awake.
    fn settle(&mut self, class: u64, first: Option<&str>, now: Instant) {
        let Some(line) = self.lines.get(&class) else { return };
        if line.parked.is_empty() {
            if line.awake == 0 {
                self.lines.remove(&class);
            }
            return;
        }
        if line.settled.is_some() || line.awake > 0 {
            return;
        }
        let untried = |uid: &str| self.pods.get(uid).is_some_and(|one| one.round < line.round);
        let named = first
            .filter(|uid| untried(uid) && self.pods.get(*uid).is_some_and(|one| one.state == State::Parked));
        let next = named.map(Uid::from);
        let next =
            next.or_else(|| line.parked.iter().map(|order| &order.uid).find(|uid| untried(uid)).cloned());
        if let Some(uid) = next {
            self.awaken(&uid, now);
        }
    }

    /// A parked pod is tried next, or when it has backed off.
    fn awaken(&mut self, uid: &str, now: Instant) {
        let Some(mut waiting) = self.take_out(uid) else { return };
        waiting.state = if waiting.not_before > now {
            State::BackingOff(waiting.not_before, false)
        } else {
            State::Active
        };
        self.insert(waiting);
    }

    fn insert(&mut self, waiting: Waiting) {
        let order = waiting.order();
        let line = self.lines.entry(waiting.pod.class.id).or_default();
        match waiting.state {
            State::Active => {
                line.awake += 1;
                self.active.insert(order);
            }
            State::BackingOff(until, failed) => {
                line.awake += usize::from(!failed);
                self.backing_off.insert((until, order));
            }
            State::Parked => {
                line.parked.insert(order);
            }
            State::Gated => self.gated += 1,
        }
        self.pods.insert(waiting.pod.uid.clone(), waiting);
    }

    fn take_out(&mut self, uid: &str) -> Option<Waiting> {
        let waiting = self.pods.remove(uid)?;
        let order = waiting.order();
        let line = self.lines.entry(waiting.pod.class.id).or_default();
        match waiting.state {
            State::Active => {
                line.awake -= 1;
                self.active.remove(&order);
            }
            State::BackingOff(until, failed) => {
                line.awake -= usize::from(!failed);
                self.backing_off.remove(&(until, order));
            }
            State::Parked => {
                line.parked.remove(&order);
            }
            State::Gated => self.gated -= 1,
        }
        Some(waiting)
    }
}
