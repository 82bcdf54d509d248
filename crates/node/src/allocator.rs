//! Admission and allocation for all pods of a node, decided one after the other.
//!
//! Resources are allocated here only, so two pods never get the same capacity. A pod counts with the larger of its
//! allocated and its actual resources. A resize that does not fit is deferred, and retried when capacity is freed, in
//! the order of `plumb_resize::queue`.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use plumb_placement::HostPort;
use plumb_resize::admission::{
    Available, Deferral, Ledger, LedgerEntry, NodeFacts, Request, Shortage, Verdict, admit, admit_new,
    what_if,
};
use plumb_resize::list::BadQuantity;
use plumb_resize::pod::{PodResources, PodShape};
use plumb_resize::qos::QosClass;
use plumb_resize::queue::DeferredResize;
use plumb_resize::resource::{Amounts, Resource};
use plumb_resize::rules::Rules;
use plumb_resize::status::{Allocation, PendingReason, ResizeOutcome};
use plumb_runtime::types::CpuSet;
use plumb_supervise::Panic;

use crate::cpus::{CpuAllocator, CpuAssignments, InsufficientCpus};
use crate::ephemeral_storage;
use crate::holders::{Holders, Outlook, Wait};
use crate::journal::Entry;
use crate::predicates::Predicate;
use crate::preemption::{self, Candidate};
use crate::shutdown::CRITICAL;

/// The node's knowledge of a pod's object, apart from its allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodInfo {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The part of the pod that a resize does not change.
    pub shape: PodShape,
    /// The ports of the node that it uses.
    pub host_ports: Vec<HostPort>,
    /// `spec.priority`, zero if it has none.
    pub priority: i32,
    /// Whether it is critical: by its priority, or because it is a static pod of this node, which the agent adds. The annotation
    /// of mirror pods is no proof of that: any user who creates pods may set it.
    pub critical: bool,
    /// The ephemeral storage that it requests, in bytes. No resize changes it.
    pub ephemeral_storage: i64,
    /// The resources in its spec.
    pub desired: PodResources,
    /// The generation of that spec.
    pub generation: i64,
}

/// Why a pod is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// A resource does not fit.
    #[error("{0}")]
    Shortage(Shortage),
    /// The node has its maximum number of pods.
    #[error("Node didn't have enough resource: pods, requested: 1, used: {used}, capacity: {capacity}")]
    Pods {
        /// How many it has.
        used: usize,
        /// How many it may have.
        capacity: usize,
    },
    /// Its ephemeral storage does not fit.
    #[error(
        "Node didn't have enough resource: ephemeral-storage, requested: {requested}, used: {used}, capacity: {capacity}"
    )]
    EphemeralStorage {
        /// How many bytes it requests.
        requested: i64,
        /// How many the other pods request.
        used: i64,
        /// How many are allocatable.
        capacity: i64,
    },
    /// It fails a predicate other than resources.
    #[error("Predicate {} failed: {}", .0.name(), .0.description())]
    Predicate(Predicate),
    /// Too few CPUs are left for exclusive use.
    #[error("Allocate failed due to {0}, which is unexpected")]
    Cpus(InsufficientCpus),
}

impl AdmissionError {
    /// Whether the pod does not fit beside the others.
    pub(crate) fn is_shortage(&self) -> bool {
        matches!(self, Self::Shortage(_) | Self::Pods { .. } | Self::EphemeralStorage { .. })
    }

    /// The value of `status.reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Shortage(Shortage { resource: Resource::Cpu, .. }) => "OutOfcpu",
            Self::Shortage(Shortage { resource: Resource::Memory, .. }) => "OutOfmemory",
            Self::Pods { .. } => "OutOfpods",
            Self::EphemeralStorage { .. } => "OutOfephemeral-storage",
            Self::Predicate(predicate) => predicate.name(),
            Self::Cpus(_) => "UnexpectedAdmissionError",
        }
    }
}

/// The result of a resize request, and the entry to be journalled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationResult {
    /// The outcome.
    pub outcome: ResizeOutcome,
    /// The pod's entry; it must be durable before anything is actuated.
    pub entry: Entry,
    /// The verdict of admission, if the desired resources differ from the allocated ones.
    pub verdict: Option<Verdict>,
}

impl PodInfo {
    /// The info of a pod.
    pub fn of(pod: &Pod) -> Result<Self, BadQuantity> {
        let none = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&none);
        Ok(Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            shape: PodShape::of(pod)?,
            host_ports: HostPort::read(spec),
            priority: spec.priority.unwrap_or(0),
            critical: spec.priority.is_some_and(|priority| priority >= CRITICAL),
            ephemeral_storage: ephemeral_storage::requested(spec),
            desired: PodResources::desired(spec)?,
            generation: pod.metadata.generation.unwrap_or(0),
        })
    }
}

/// The state of one pod.
#[derive(Clone, Debug)]
struct PodRecord {
    info: PodInfo,
    entry: Entry,
    /// The actual resources, as last observed.
    actual: PodResources,
}

/// Allocates the resources of one node to its pods.
#[derive(Clone, Debug)]
pub struct Allocator {
    facts: NodeFacts,
    rules: Rules,
    /// The maximum number of pods.
    max_pods: usize,
    /// The allocatable ephemeral storage in bytes; none if it is unknown.
    ephemeral_storage: Option<i64>,
    ledger: Ledger,
    /// With the static CPU manager policy.
    cpus: Option<CpuAllocator>,
    /// The CPU that is allocated to all Burstable pods.
    burstable: i64,
    pods: BTreeMap<String, PodRecord>,
    waiting: BTreeSet<DeferredResize>,
    /// The critical pods that wait until the pods that they preempt have ended, with the ephemeral storage that they request. Their
    /// other requests are in the ledger.
    preempting: BTreeMap<String, i64>,
    /// The pods that were preempted and have not ended yet.
    preempted: BTreeSet<String>,
}

impl Allocator {
    /// The allocator of a node without pods.
    pub fn new(allocatable: Amounts, max_pods: usize, facts: NodeFacts, rules: Rules) -> Self {
        Self {
            facts,
            rules,
            max_pods,
            ephemeral_storage: None,
            ledger: Ledger::new(allocatable),
            cpus: None,
            burstable: 0,
            pods: BTreeMap::new(),
            waiting: BTreeSet::new(),
            preempting: BTreeMap::new(),
            preempted: BTreeSet::new(),
        }
    }

    /// The same, with exclusive CPUs if `cpus` is set.
    #[must_use]
    pub fn with_cpus(self, cpus: Option<CpuAllocator>) -> Self {
        Self { cpus, ..self }
    }

    /// The same, with this much allocatable ephemeral storage, in bytes.
    #[must_use]
    pub fn with_ephemeral_storage(self, ephemeral_storage: Option<i64>) -> Self {
        Self { ephemeral_storage, ..self }
    }

    /// The CPUs that are not assigned exclusively; none without the static CPU manager policy.
    pub fn shared_cpus(&self) -> Option<CpuSet> {
        self.cpus.as_ref().map(CpuAllocator::shared)
    }

    /// The CPU that is allocated to all Burstable pods, in millicores.
    pub fn burstable_cpu(&self) -> i64 {
        self.burstable
    }

    /// The journal entry of a pod.
    pub fn entry(&self, uid: &str) -> Option<&Entry> {
        self.pods.get(uid).map(|record| &record.entry)
    }

    /// The uids of the pods with a deferred resize, in the order of retries.
    pub fn deferred(&self) -> impl Iterator<Item = &str> {
        self.waiting.iter().map(|waiting| waiting.pod.as_str())
    }

    /// The accounting of all pods: the larger of allocated and actual.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What the node has left for a pod beside what counts for it already.
    pub fn left(&self, uid: &str) -> Amounts {
        let available = self.ledger.available_to(uid);
        available.free().less(available.held)
    }

    /// Who holds a resource of the node, as an event of this pod may say.
    pub fn holders(&self, uid: &str, resource: Resource) -> Holders {
        let namespace = self.pods.get(uid).map(|record| record.info.namespace.as_str()).unwrap_or_default();
        Holders::new(namespace, resource, self.counted_pods(resource))
    }

    /// What a deferred resize of a pod waits for; none if it fits, or if the pod was not admitted.
    pub fn explain_wait(&self, uid: &str) -> Option<Wait> {
        let PodRecord { info, entry, .. } = self.pods.get(uid)?;
        let allocated = &entry.allocation.allocated;
        let request = Request { pod: uid, shape: &info.shape, allocated, desired: &info.desired };
        let found = what_if(request, &self.ledger);
        let resource = Resource::ALL.into_iter().find(|resource| found.missing[*resource] > 0)?;
        let wanted = info.shape.requests(&info.desired);
        let outlook = if !self.fits_beside(uid, wanted, |_| false) {
            Outlook::Never
        } else if !self.fits_beside(uid, wanted, |other| other.critical) {
            Outlook::NeverBesideCriticalPods
        } else if found.after_all_shrinks {
            Outlook::ResizesInProgress
        } else if !self.fits_beside(uid, wanted, |other| other.priority >= info.priority) {
            Outlook::NotPreemption
        } else {
            Outlook::OtherPods
        };
        Some(Wait {
            resource,
            missing: found.missing[resource],
            holders: self.holders(uid, resource),
            outlook,
        })
    }

    /// Whether a pod fits with these requests beside some of the others. (Iterates over all pods: for explanations.)
    fn fits_beside(&self, uid: &str, wanted: Amounts, stays: impl Fn(&PodInfo) -> bool) -> bool {
        let staying = self.pods.iter().filter(|(other, record)| *other != uid && stays(&record.info));
        let others = staying.map(|(other, _)| self.counted(other)).fold(Amounts::ZERO, Amounts::plus);
        Available { others, ..self.ledger.available_to(uid) }.fits(wanted)
    }

    fn counted_pods(&self, resource: Resource) -> impl Iterator<Item = (&PodInfo, i64)> {
        self.pods.iter().map(move |(uid, record)| {
            (&record.info, self.ledger.held(uid).unwrap_or_default().counted()[resource])
        })
    }

    /// Admits a new pod with this allocation, if it fits. `failed` is the predicate about its node alone that it fails.
    /// Whether the desired resources fit is decided by a resize request, if they differ.
    pub fn admit(
        &mut self,
        uid: &str,
        info: PodInfo,
        allocation: Allocation,
        failed: Option<Predicate>,
    ) -> Result<Entry, AdmissionError> {
        let used = self.other_pods(uid);
        if used >= self.max_pods {
            return Err(AdmissionError::Pods { used, capacity: self.max_pods });
        }
        let actual = allocation.allocated.clone();
        admit_new(uid, info.shape.requests(&actual), &self.ledger).map_err(AdmissionError::Shortage)?;
        self.check_ephemeral_storage(uid, info.ephemeral_storage)?;
        let failed = failed.into_iter().chain(self.has_port_conflict(&info).then_some(Predicate::NodePorts));
        if let Some(failed) = failed.min() {
            return Err(AdmissionError::Predicate(failed));
        }
        let mut entry = Entry::new(&info, allocation);
        if let Some(cpus) = &mut self.cpus {
            let assigned =
                cpus.fit(uid, &info.shape, &actual, &CpuAssignments::new()).map_err(AdmissionError::Cpus)?;
            cpus.assign(uid, &assigned);
            entry.cpus = assigned;
        }
        self.end_preemption(uid);
        self.insert(uid, PodRecord { info, entry: entry.clone(), actual });
        Ok(entry)
    }

    /// The pods to preempt for a critical pod that does not fit, with those that others have preempted and that have not ended
    /// yet: it waits for them too, since what they free counts before more pods are preempted. Until the pod is admitted or [`Self::end_preemption`] is
    /// called, its requests count: what the others free is not for deferred resizes or other new pods. `None` if it is not
    /// critical, or is not admitted without them either.
    pub fn begin_preemption(
        &mut self,
        uid: &str,
        info: &PodInfo,
        allocation: &Allocation,
        failed: Option<Predicate>,
    ) -> Option<Vec<String>> {
        let victims = self.victims(uid, info, &allocation.allocated)?;
        // Terminate none of them for a pod that still cannot be admitted: one that fails a predicate, uses a port of a pod that stays, or gets too
        // few exclusive CPUs.
        let mut without = self.clone();
        for victim in &victims {
            without.release(victim);
        }
        without.admit(uid, info.clone(), allocation.clone(), failed).ok()?;
        let requests = info.shape.requests(&allocation.allocated);
        self.ledger.hold(uid, LedgerEntry { allocated: requests, actual: requests });
        self.preempting.insert(uid.to_owned(), info.ephemeral_storage);
        self.preempted.extend(victims.iter().cloned());
        Some(victims)
    }

    /// The requests of a critical pod that has preempted others and was not admitted count no longer. False if it was admitted.
    pub fn end_preemption(&mut self, uid: &str) -> bool {
        let has_waited = self.preempting.remove(uid).is_some();
        if has_waited {
            self.ledger.release(uid);
        }
        has_waited
    }

    /// How many pods there are besides one that is being admitted.
    fn other_pods(&self, uid: &str) -> usize {
        self.pods.len() + self.preempting.keys().filter(|other| *other != uid).count()
    }

    fn victims(&self, uid: &str, info: &PodInfo, allocated: &PodResources) -> Option<Vec<String>> {
        if !info.critical {
            return None;
        }
        let requests = info.shape.requests(allocated);
        let available = self.ledger.available_to(uid);
        let missing = |resource| available.missing_of(resource, requests);
        let storage = self.check_ephemeral_storage(uid, info.ephemeral_storage).err();
        let storage = match storage {
            Some(AdmissionError::EphemeralStorage { requested, used, capacity }) => {
                requested.saturating_add(used).saturating_sub(capacity)
            }
            _ => 0,
        };
        let pods = self.other_pods(uid).saturating_add(1).saturating_sub(self.max_pods);
        let pods = i64::try_from(pods).unwrap_or(i64::MAX);
        let candidates = self.pods.iter().filter(|(_, record)| !record.info.critical);
        let candidates = candidates.map(|(uid, record)| {
            let counted = self.counted(uid);
            let freed = [counted[Resource::Cpu], counted[Resource::Memory], record.info.ephemeral_storage, 1];
            Candidate { uid: uid.clone(), class: record.info.shape.qos, freed }
        });
        let (ending, candidates) = candidates.partition(|candidate| self.preempted.contains(&candidate.uid));
        let missing = [missing(Resource::Cpu), missing(Resource::Memory), storage, pods];
        preemption::victims(missing, ending, candidates)
    }

    /// Whether the ephemeral storage that a pod requests fits. Pods are few.
    fn check_ephemeral_storage(&self, uid: &str, requested: i64) -> Result<(), AdmissionError> {
        let Some(capacity) = self.ephemeral_storage.filter(|_| requested > 0) else { return Ok(()) };
        let used = self.pods.values().map(|record| record.info.ephemeral_storage);
        let preempting = self.preempting.iter().filter(|(other, _)| *other != uid).map(|(_, bytes)| *bytes);
        let used = used.chain(preempting).fold(0, i64::saturating_add);
        if requested <= capacity.saturating_sub(used) {
            return Ok(());
        }
        Err(AdmissionError::EphemeralStorage { requested, used, capacity })
    }

    /// Whether another pod uses a host port of this one. Pods are few, and host ports rare.
    fn has_port_conflict(&self, info: &PodInfo) -> bool {
        let mut others = self.pods.values().flat_map(|record| &record.info.host_ports);
        !info.host_ports.is_empty()
            && others.any(|used| info.host_ports.iter().any(|port| port.conflicts(used)))
    }

    /// Whether a pod fits with these resources.
    pub fn fits(&self, uid: &str, info: &PodInfo, resources: &PodResources) -> bool {
        admit_new(uid, info.shape.requests(resources), &self.ledger).is_ok()
    }

    /// Admits a pod that ran before the agent was restarted, with its allocation of then. It is not checked whether it
    /// fits: it runs. Returns its entry, which differs from the given one if the node's CPUs have changed.
    pub fn readmit(&mut self, uid: &str, info: PodInfo, mut entry: Entry) -> Entry {
        let actual = entry.allocation.allocated.clone();
        if let Some(cpus) = &mut self.cpus {
            // A pod that cannot have exclusive CPUs any more uses the shared ones.
            entry.cpus = cpus.fit(uid, &info.shape, &actual, &entry.cpus).unwrap_or_default();
            cpus.assign(uid, &entry.cpus);
        }
        self.insert(uid, PodRecord { info, entry: entry.clone(), actual });
        entry
    }

    /// The verdict on other resources of a pod, apart from exclusive CPUs; it changes nothing.
    pub fn verdict(&self, uid: &str, desired: &PodResources) -> Option<Verdict> {
        let PodRecord { info, entry, .. } = self.pods.get(uid)?;
        let allocated = &entry.allocation.allocated;
        let request = Request { pod: uid, shape: &info.shape, allocated, desired };
        Some(admit(request, self.facts, &self.ledger, &self.rules))
    }

    /// Decides on the resources in a pod's spec. `now` is in milliseconds since 1970.
    pub fn request_resize(
        &mut self,
        uid: &str,
        desired: PodResources,
        generation: i64,
        now: i64,
    ) -> Option<AllocationResult> {
        // The queue has it with its former desired resources.
        self.unqueue(uid);
        let record = self.pods.get_mut(uid)?;
        record.info.desired = desired;
        record.info.generation = generation;
        self.decide(uid, now)
    }

    /// The capacity that a pod takes: for each resource the larger of its allocated and its actual amount.
    pub fn counted(&self, uid: &str) -> Amounts {
        self.ledger.held(uid).unwrap_or_default().counted()
    }

    /// Retries the deferred resizes in their order. To be called when capacity was freed; returns the results that
    /// changed. A pod whose decision panics stays deferred, and the others are decided all the same.
    pub fn retry_deferred(&mut self, now: i64) -> Vec<(String, Result<AllocationResult, Panic>)> {
        self.retry_each(|allocator, uid| allocator.decide(uid, now))
    }

    /// Decides on each deferred resize in their order.
    pub(crate) fn retry_each(
        &mut self,
        mut decide: impl FnMut(&mut Self, &str) -> Option<AllocationResult>,
    ) -> Vec<(String, Result<AllocationResult, Panic>)> {
        let uids: Vec<String> = self.deferred().map(str::to_owned).collect();
        let mut results = Vec::new();
        for uid in uids {
            // A decision that panics changes nothing, see below.
            match catch_unwind(AssertUnwindSafe(|| decide(self, &uid))) {
                Ok(Some(result)) if result.outcome != ResizeOutcome::Unchanged => {
                    results.push((uid, Ok(result)));
                }
                Ok(_) => {}
                Err(payload) => results.push((uid, Err(Panic::from_payload(&*payload)))),
            }
        }
        results
    }

    /// Sets the actual resources of a pod. True if that freed capacity.
    pub fn set_actual(&mut self, uid: &str, actual: PodResources) -> bool {
        let Some(record) = self.pods.get_mut(uid) else { return false };
        if record.actual == actual {
            return false;
        }
        record.actual = actual;
        let before = self.counted(uid);
        self.account(uid);
        let after = self.counted(uid);
        let freed_cpus = self.release_unused_cpus(uid);
        freed_cpus || is_any_less(after, before)
    }

    /// Releases the CPUs that a pod has given up, once its actual CPU is the allocated one. True if there were any. To be
    /// called when its containers run on no others: a growth that is reverted before it is actuated changes no actual
    /// resources.
    pub fn release_unused_cpus(&mut self, uid: &str) -> bool {
        let (Some(cpus), Some(record)) = (&mut self.cpus, self.pods.get(uid)) else { return false };
        if record.actual.request_differs(&record.entry.allocation.allocated, Resource::Cpu) {
            return false;
        }
        let before = cpus.shared();
        cpus.assign(uid, &record.entry.cpus);
        cpus.shared() != before
    }

    /// Changes a pod's entry apart from its allocation: an error, a restart in progress. Returns the entry, and whether it
    /// changed.
    pub fn update_entry(&mut self, uid: &str, change: impl FnOnce(&mut Entry)) -> Option<(Entry, bool)> {
        let record = self.pods.get_mut(uid)?;
        let before = record.entry.clone();
        change(&mut record.entry);
        // Only resize requests change the allocation.
        record.entry.allocation.allocated.clone_from(&before.allocation.allocated);
        record.entry.cpus.clone_from(&before.cpus);
        Some((record.entry.clone(), record.entry != before))
    }

    /// Removes a pod. True if it had an allocation.
    pub fn release(&mut self, uid: &str) -> bool {
        self.unqueue(uid);
        self.preempted.remove(uid);
        self.burstable -= self.counted_burstable(uid);
        self.ledger.release(uid);
        if let Some(cpus) = &mut self.cpus {
            cpus.release(uid);
        }
        self.pods.remove(uid).is_some()
    }

    /// Decides on the desired resources of a pod.
    pub(crate) fn decide(&mut self, uid: &str, now: i64) -> Option<AllocationResult> {
        self.unchanged_by_panics(uid, |allocator| allocator.try_decide(uid, now))
    }

    /// Changes the allocation of a pod. If that panics, the pod keeps its allocation, its CPUs and its entry in the queue: an
    /// allocation that the caller does not know is not in the journal.
    pub(crate) fn unchanged_by_panics<T>(&mut self, uid: &str, change: impl FnOnce(&mut Self) -> T) -> T {
        let record = self.pods.get(uid).cloned();
        let (held, burstable, cpus) = (self.ledger.held(uid), self.burstable, self.cpus.clone());
        match catch_unwind(AssertUnwindSafe(|| change(self))) {
            Ok(changed) => changed,
            Err(payload) => {
                self.waiting.retain(|waiting| waiting.pod != uid);
                self.pods.extend(record.map(|record| (uid.to_owned(), record)));
                if let Some(held) = held {
                    self.ledger.hold(uid, held);
                }
                (self.burstable, self.cpus) = (burstable, cpus);
                self.queue(uid);
                resume_unwind(payload)
            }
        }
    }

    fn try_decide(&mut self, uid: &str, now: i64) -> Option<AllocationResult> {
        self.unqueue(uid);
        let Self { facts, rules, ledger, pods, cpus, .. } = self;
        let record = pods.get_mut(uid)?;
        let PodInfo { shape, desired, generation, .. } = &record.info;
        let since = record.entry.since;
        let (mut said, mut assigned) = (None, None);
        let kept = &record.entry.cpus;
        let outcome = record.entry.allocation.decide(desired, *generation, |allocated| {
            let mut verdict = admit(Request { pod: uid, shape, allocated, desired }, *facts, ledger, rules);
            if let (Verdict::Fits, Some(cpus)) = (&verdict, cpus.as_ref()) {
                match cpus.fit(uid, shape, desired, kept) {
                    Ok(fits) => assigned = Some(fits),
                    Err(why) => verdict = insufficient_cpus(why),
                }
            }
            said.insert(verdict).clone()
        });
        if let (ResizeOutcome::Started, Some(assigned), Some(cpus)) = (outcome, assigned, cpus.as_mut()) {
            cpus.assign_additionally(uid, &assigned);
            record.entry.cpus = assigned;
        }
        record.entry.since = record.entry.allocation.pending.as_ref().map(|_| since.unwrap_or(now));
        let result = AllocationResult { outcome, entry: record.entry.clone(), verdict: said };
        self.account(uid);
        self.queue(uid);
        Some(result)
    }

    fn insert(&mut self, uid: &str, record: PodRecord) {
        self.unqueue(uid);
        self.pods.insert(uid.to_owned(), record);
        self.account(uid);
        self.queue(uid);
    }

    fn account(&mut self, uid: &str) {
        let Some(record) = self.pods.get(uid) else { return };
        let requests = |resources: &PodResources| record.info.shape.requests(resources);
        let held = LedgerEntry {
            allocated: requests(&record.entry.allocation.allocated),
            actual: requests(&record.actual),
        };
        self.burstable -= self.counted_burstable(uid);
        self.ledger.hold(uid, held);
        self.burstable += self.counted_burstable(uid);
    }

    /// The CPU that a pod adds to that of all Burstable pods.
    fn counted_burstable(&self, uid: &str) -> i64 {
        let record = self.pods.get(uid).filter(|record| record.info.shape.qos == QosClass::Burstable);
        record.and_then(|_| self.ledger.held(uid)).map_or(0, |held| held.allocated.cpu)
    }

    fn queue(&mut self, uid: &str) {
        self.waiting.extend(self.pods.get(uid).and_then(|record| waiting(uid, record)));
    }

    fn unqueue(&mut self, uid: &str) {
        if let Some(waiting) = self.pods.get(uid).and_then(|record| waiting(uid, record)) {
            self.waiting.remove(&waiting);
        }
    }
}

/// The verdict for a pod that needs more exclusive CPUs than are left.
fn insufficient_cpus(why: InsufficientCpus) -> Verdict {
    Verdict::Deferred(Deferral::Other { reason: "OutOfcpu".to_owned(), message: why.to_string() })
}

/// A pod's entry in the queue of deferred resizes.
fn waiting(uid: &str, record: &PodRecord) -> Option<DeferredResize> {
    let pending = record.entry.allocation.pending.as_ref()?;
    if pending.reason != PendingReason::Deferred {
        return None;
    }
    let requests = |resources: &PodResources| record.info.shape.requests(resources);
    let (wanted, allocated) = (requests(&record.info.desired), requests(&record.entry.allocation.allocated));
    Some(DeferredResize {
        pod: uid.to_owned(),
        grows: Resource::ALL.into_iter().any(|resource| wanted[resource] > allocated[resource]),
        priority: record.info.priority,
        qos: record.info.shape.qos,
        since: record.entry.since,
    })
}

/// Whether any resource has become less.
pub(crate) fn is_any_less(now: Amounts, before: Amounts) -> bool {
    Resource::ALL.into_iter().any(|resource| now[resource] < before[resource])
}
