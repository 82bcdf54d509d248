//! The book of a node: who is promised what, decided for all pods one after the other.
//!
//! A promise is made here and nowhere else, so two pods never get the same room. Room is counted as the larger
//! of what is promised and what is in force. A resize that finds no room waits, and is asked about again when
//! room is freed, in the order of `plumb_resize::queue`.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use plumb_resize::admission::{
    Deferral, Held, Ledger, NodeFacts, Request, Shortage, Verdict, admit, admit_new,
};
use plumb_resize::list::BadQuantity;
use plumb_resize::pod::{PodResources, PodShape};
use plumb_resize::qos::QosClass;
use plumb_resize::queue::Waiting;
use plumb_resize::resource::{Amounts, Resource};
use plumb_resize::rules::Rules;
use plumb_resize::status::{Outcome, Refusal};

use crate::cpus::{CpuSet, Cpus, Given, TooFew};
use crate::journal::Entry;

/// What a pod is to its node, apart from what it is promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What no resize changes of it.
    pub shape: PodShape,
    /// `spec.priority`, zero if it has none.
    pub priority: i32,
    /// What its spec asks for.
    pub desired: PodResources,
    /// The generation of that spec.
    pub generation: i64,
}

/// Why a pod is not taken in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Turned {
    /// The node has too little of something.
    #[error("{0}")]
    Shortage(Shortage),
    /// The node has as many pods as it may have.
    #[error("Node didn't have enough resource: pods, requested: 1, used: {used}, capacity: {capacity}")]
    Pods {
        /// How many it has.
        used: usize,
        /// How many it may have.
        capacity: usize,
    },
    /// The node has too few cpus left that a container could have for itself.
    #[error("Allocate failed due to {0}, which is unexpected")]
    Cpus(TooFew),
}

impl Turned {
    /// The word for `status.reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Shortage(Shortage { resource: Resource::Cpu, .. }) => "OutOfcpu",
            Self::Shortage(Shortage { resource: Resource::Memory, .. }) => "OutOfmemory",
            Self::Pods { .. } => "OutOfpods",
            Self::Cpus(_) => "UnexpectedAdmissionError",
        }
    }
}

/// What became of a wish, and what is now to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What became of it.
    pub outcome: Outcome,
    /// What is kept of the pod; it must be durable before anything is done about it.
    pub entry: Entry,
    /// What was said to what is wanted, if it is not what is promised already.
    pub verdict: Option<Verdict>,
}

impl Guest {
    /// What a pod is to its node.
    pub fn of(pod: &Pod) -> Result<Self, BadQuantity> {
        let none = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&none);
        Ok(Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            shape: PodShape::of(pod)?,
            priority: spec.priority.unwrap_or(0),
            desired: PodResources::desired(spec)?,
            generation: pod.metadata.generation.unwrap_or(0),
        })
    }
}

/// One pod in the book.
#[derive(Clone, Debug)]
struct Page {
    guest: Guest,
    entry: Entry,
    /// What is in force, as last reported.
    actual: PodResources,
}

/// Who is promised what on one node.
#[derive(Clone, Debug)]
pub struct Book {
    facts: NodeFacts,
    rules: Rules,
    /// How many pods the node may have.
    max_pods: usize,
    ledger: Ledger,
    /// Where it is not the kernel that decides who runs on which cpus.
    cpus: Option<Cpus>,
    /// What the Burstable pods are promised of cpu together.
    burstable: i64,
    pods: BTreeMap<String, Page>,
    waiting: BTreeSet<Waiting>,
}

impl Book {
    /// The book of a node without pods.
    pub fn new(allocatable: Amounts, max_pods: usize, facts: NodeFacts, rules: Rules) -> Self {
        Self {
            facts,
            rules,
            max_pods,
            ledger: Ledger::new(allocatable),
            cpus: None,
            burstable: 0,
            pods: BTreeMap::new(),
            waiting: BTreeSet::new(),
        }
    }

    /// The same, giving cpus away to those who want them for themselves.
    #[must_use]
    pub fn with_cpus(self, cpus: Option<Cpus>) -> Self {
        Self { cpus, ..self }
    }

    /// The cpus that nobody has for themselves; none where it is the kernel that decides who runs on which.
    pub fn shared_cpus(&self) -> Option<CpuSet> {
        self.cpus.as_ref().map(Cpus::shared)
    }

    /// What the Burstable pods are promised of cpu together, in thousandths of a core.
    pub fn burstable_cpu(&self) -> i64 {
        self.burstable
    }

    /// What is kept of a pod.
    pub fn entry(&self, uid: &str) -> Option<&Entry> {
        self.pods.get(uid).map(|page| &page.entry)
    }

    /// The uids of the pods that wait for room, the next one first.
    pub fn waiting(&self) -> impl Iterator<Item = &str> {
        self.waiting.iter().map(|waiting| waiting.pod.as_str())
    }

    /// What all pods together hold, the larger of promised and in force.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Takes a pod in that has never run here, with all that it asks for, if there is room.
    pub fn admit(&mut self, uid: &str, guest: Guest) -> Result<Entry, Turned> {
        if self.pods.len() >= self.max_pods {
            return Err(Turned::Pods { used: self.pods.len(), capacity: self.max_pods });
        }
        admit_new(uid, guest.shape.requests(&guest.desired), &self.ledger).map_err(Turned::Shortage)?;
        let mut entry = Entry::new(&guest, guest.desired.clone());
        if let Some(cpus) = &mut self.cpus {
            let given = cpus.fit(uid, &guest.shape, &guest.desired, &Given::new()).map_err(Turned::Cpus)?;
            cpus.hold(uid, &given);
            entry.cpus = given;
        }
        let actual = guest.desired.clone();
        self.put(uid, Page { guest, entry: entry.clone(), actual });
        Ok(entry)
    }

    /// Takes a pod in that ran here before the agent was started, at what it was promised then. There is no
    /// asking for room: it has it. Answers what is kept of it, which differs where there are other cpus now.
    pub fn readmit(&mut self, uid: &str, guest: Guest, mut entry: Entry) -> Entry {
        let actual = entry.allocation.allocated.clone();
        if let Some(cpus) = &mut self.cpus {
            // One that cannot have cpus for itself any more shares those of the others.
            entry.cpus = cpus.fit(uid, &guest.shape, &actual, &entry.cpus).unwrap_or_default();
            cpus.hold(uid, &entry.cpus);
        }
        self.put(uid, Page { guest, entry: entry.clone(), actual });
        entry
    }

    /// Answers what a pod's spec wants of the node. `now` is in milliseconds since 1970.
    pub fn ask(&mut self, uid: &str, desired: PodResources, generation: i64, now: i64) -> Option<Answer> {
        let page = self.pods.get_mut(uid)?;
        page.guest.desired = desired;
        page.guest.generation = generation;
        self.decide(uid, now)
    }

    /// Asks again for the pods that wait, in their order. To be called when room was freed; answers those for
    /// which something is new.
    pub fn retry(&mut self, now: i64) -> Vec<(String, Answer)> {
        let uids: Vec<String> = self.waiting().map(str::to_owned).collect();
        let mut answers = Vec::new();
        for uid in uids {
            if let Some(answer) = self.decide(&uid, now).filter(|answer| answer.outcome != Outcome::Unchanged)
            {
                answers.push((uid, answer));
            }
        }
        answers
    }

    /// Notes what is in force for a pod. True if that freed room for others.
    pub fn report(&mut self, uid: &str, actual: PodResources) -> bool {
        let Some(page) = self.pods.get_mut(uid) else { return false };
        if page.actual == actual {
            return false;
        }
        page.actual = actual;
        let before = self.ledger.held(uid).unwrap_or_default().counted();
        self.hold(uid);
        let after = self.ledger.held(uid).unwrap_or_default().counted();
        let freed_cpus = self.let_cpus_go(uid);
        freed_cpus || Resource::ALL.into_iter().any(|resource| after[resource] < before[resource])
    }

    /// Takes back the cpus that a pod has given up, once that is in force. True if there were any.
    fn let_cpus_go(&mut self, uid: &str) -> bool {
        let (Some(cpus), Some(page)) = (&mut self.cpus, self.pods.get(uid)) else { return false };
        if page.actual.request_differs(&page.entry.allocation.allocated, Resource::Cpu) {
            return false;
        }
        let before = cpus.shared();
        cpus.hold(uid, &page.entry.cpus);
        cpus.shared() != before
    }

    /// Changes what is kept of a pod apart from what it is promised: an error, a restart under way. The entry if
    /// that made a difference.
    pub fn note(&mut self, uid: &str, change: impl FnOnce(&mut Entry)) -> Option<Entry> {
        let page = self.pods.get_mut(uid)?;
        let before = page.entry.clone();
        change(&mut page.entry);
        // Promises are made by asking only.
        page.entry.allocation.allocated.clone_from(&before.allocation.allocated);
        page.entry.cpus.clone_from(&before.cpus);
        (page.entry != before).then(|| page.entry.clone())
    }

    /// Forgets a pod that is gone. True if it held anything.
    pub fn release(&mut self, uid: &str) -> bool {
        self.unqueue(uid);
        self.burstable -= self.counted_burstable(uid);
        self.ledger.release(uid);
        if let Some(cpus) = &mut self.cpus {
            cpus.release(uid);
        }
        self.pods.remove(uid).is_some()
    }

    fn decide(&mut self, uid: &str, now: i64) -> Option<Answer> {
        self.unqueue(uid);
        let Self { facts, rules, ledger, pods, cpus, .. } = self;
        let page = pods.get_mut(uid)?;
        let Guest { shape, desired, generation, .. } = &page.guest;
        let since = page.entry.since;
        let (mut said, mut given) = (None, None);
        let kept = &page.entry.cpus;
        let outcome = page.entry.allocation.decide(desired, *generation, |allocated| {
            let mut verdict = admit(Request { pod: uid, shape, allocated, desired }, *facts, ledger, rules);
            if let (Verdict::Fits, Some(cpus)) = (&verdict, cpus.as_ref()) {
                match cpus.fit(uid, shape, desired, kept) {
                    Ok(fits) => given = Some(fits),
                    Err(why) => verdict = too_few(why),
                }
            }
            said.insert(verdict).clone()
        });
        if let (Outcome::Started, Some(given), Some(cpus)) = (outcome, given, cpus.as_mut()) {
            cpus.hold_also(uid, &given);
            page.entry.cpus = given;
        }
        page.entry.since = page.entry.allocation.pending.as_ref().map(|_| since.unwrap_or(now));
        let answer = Answer { outcome, entry: page.entry.clone(), verdict: said };
        self.hold(uid);
        self.queue(uid);
        Some(answer)
    }

    fn put(&mut self, uid: &str, page: Page) {
        self.unqueue(uid);
        self.pods.insert(uid.to_owned(), page);
        self.hold(uid);
        self.queue(uid);
    }

    fn hold(&mut self, uid: &str) {
        let Some(page) = self.pods.get(uid) else { return };
        let requests = |resources: &PodResources| page.guest.shape.requests(resources);
        let held =
            Held { allocated: requests(&page.entry.allocation.allocated), actual: requests(&page.actual) };
        self.burstable -= self.counted_burstable(uid);
        self.ledger.hold(uid, held);
        self.burstable += self.counted_burstable(uid);
    }

    /// What a pod counts for among the Burstable ones.
    fn counted_burstable(&self, uid: &str) -> i64 {
        let page = self.pods.get(uid).filter(|page| page.guest.shape.qos == QosClass::Burstable);
        page.and_then(|_| self.ledger.held(uid)).map_or(0, |held| held.allocated.cpu)
    }

    fn queue(&mut self, uid: &str) {
        self.waiting.extend(self.pods.get(uid).and_then(|page| waiting(uid, page)));
    }

    fn unqueue(&mut self, uid: &str) {
        if let Some(waiting) = self.pods.get(uid).and_then(|page| waiting(uid, page)) {
            self.waiting.remove(&waiting);
        }
    }
}

/// What is said to a pod that wants more cpus for itself than are left.
fn too_few(why: TooFew) -> Verdict {
    Verdict::Deferred(Deferral::Other { reason: "OutOfcpu".to_owned(), message: why.to_string() })
}

/// A pod's place in the queue, if it waits for room.
fn waiting(uid: &str, page: &Page) -> Option<Waiting> {
    let pending = page.entry.allocation.pending.as_ref()?;
    if pending.refusal != Refusal::Deferred {
        return None;
    }
    let requests = |resources: &PodResources| page.guest.shape.requests(resources);
    let (wanted, promised) = (requests(&page.guest.desired), requests(&page.entry.allocation.allocated));
    Some(Waiting {
        pod: uid.to_owned(),
        grows: Resource::ALL.into_iter().any(|resource| wanted[resource] > promised[resource]),
        priority: page.guest.priority,
        qos: page.guest.shape.qos,
        since: page.entry.since,
    })
}
