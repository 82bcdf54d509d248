//! The allocation manager: one allocator for all pods of the node, and a journal that has every decision before it is
//! returned.
//!
//! Decisions are made and handed to the journal under one lock, so that the journal has them in the allocator's order;
//! callers wait for the disk outside of it, so that many decisions share one sync.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use plumb_resize::admission::Verdict;
use plumb_resize::pod::PodResources;
use plumb_resize::resource::{Amounts, Resource};
use plumb_resize::status::Allocation;
use plumb_runtime::types::CpuSet;
use plumb_store::{Event, Ticket};
use plumb_supervise::{Panic, Supervisor};
use tokio::sync::{mpsc, watch};

use crate::Clock;
use crate::allocator::{AdmissionError, AllocationResult, Allocator, PodInfo, is_any_less};
use crate::holders::{Holders, Wait};
use crate::journal::{Entry, Journal, JournalError};
use crate::predicates::Predicate;
use crate::worker::{Message, POD_WORKER};

/// The trigger of the retry of a deferred resize, in the words of the kubelet's metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// A pod was removed.
    PodsRemoved,
    /// A pod has terminated.
    PodTerminated,
    /// A pod counts less: its actual resources decreased, exclusive CPUs were released, or a resize that was not actuated was
    /// reverted.
    PodResized,
}

impl Trigger {
    /// The value of the label `retry_trigger`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::PodsRemoved => "pods_removed",
            Self::PodTerminated => "pod_terminated",
            Self::PodResized => "pod_resized",
        }
    }
}

/// Allocates the node's resources to pods, durably.
pub(crate) struct AllocationManager {
    state: Mutex<State>,
    /// The CPU that is allocated to all Burstable pods, once all pods are known.
    burstable: watch::Sender<Option<i64>>,
    /// How many pods of the first list have yet to be admitted or rejected.
    admitting: watch::Sender<usize>,
    journal: Journal,
    clock: Clock,
    /// Counts panics over single pods.
    supervisor: Supervisor,
}

struct State {
    allocator: Allocator,
    /// The pods whose last write to the journal failed; retried with the next request.
    unwritten: BTreeSet<String>,
    /// The pod workers that are notified of results of retries.
    subscribers: BTreeMap<String, mpsc::UnboundedSender<Message>>,
    /// The shared CPUs, as the workers know them.
    shared: Option<Arc<CpuSet>>,
}

impl State {
    /// Writes a pod's entry to the journal.
    fn write(&mut self, journal: &Journal, uid: &str) -> Result<Option<Ticket<Arc<Event>>>, JournalError> {
        let Some(entry) = self.allocator.entry(uid) else { return Ok(None) };
        let written = journal.write(uid, entry);
        match &written {
            Ok(_) => self.unwritten.remove(uid),
            Err(_) => self.unwritten.insert(uid.to_owned()),
        };
        written.map(Some)
    }
}

impl AllocationManager {
    pub(crate) fn new(allocator: Allocator, journal: Journal, clock: Clock, supervisor: Supervisor) -> Self {
        let shared = allocator.shared_cpus().map(Arc::new);
        let state = State { allocator, unwritten: BTreeSet::new(), subscribers: BTreeMap::new(), shared };
        Self {
            state: Mutex::new(state),
            burstable: watch::Sender::new(None),
            admitting: watch::Sender::new(0),
            journal,
            clock,
            supervisor,
        }
    }

    /// The CPUs that are not assigned exclusively; none without the static CPU manager policy.
    pub(crate) fn shared_cpus(&self) -> Option<Arc<CpuSet>> {
        self.state.lock().shared.clone()
    }

    /// The CPU that is allocated to all Burstable pods, from when all pods are known.
    pub(crate) fn burstable_cpu(&self) -> watch::Receiver<Option<i64>> {
        self.burstable.subscribe()
    }

    /// All pods of the node are known from now on.
    pub(crate) fn all_pods_known(&self) {
        self.burstable.send_replace(Some(self.state.lock().allocator.burstable_cpu()));
    }

    /// A pod of the first list is going to be admitted: until the returned value is dropped, no resize is decided.
    pub(crate) fn expect_admission(self: &Arc<Self>) -> PendingAdmission {
        self.admitting.send_modify(|count| *count += 1);
        PendingAdmission(self.clone())
    }

    /// Waits until all pods of the first list are admitted or rejected.
    pub(crate) async fn all_admitted(&self) {
        // The sender is never dropped before this returns.
        let _ = self.admitting.subscribe().wait_for(|count| *count == 0).await;
    }

    /// Notifies the pod workers if a change of the allocator affects all pods.
    fn notify_changes(&self, state: &mut State) {
        let sum = state.allocator.burstable_cpu();
        self.burstable.send_if_modified(|last| last.is_some() && last.replace(sum) != Some(sum));
        let shared = state.allocator.shared_cpus();
        if shared.as_ref() == state.shared.as_deref() {
            return;
        }
        state.shared = shared.map(Arc::new);
        for sender in state.subscribers.values() {
            // The worker may have ended.
            let _ = sender.send(Message::RuntimeEvent);
        }
    }

    /// Sends results of retries to a pod worker.
    pub(crate) fn subscribe(&self, uid: &str, sender: mpsc::UnboundedSender<Message>) {
        self.state.lock().subscribers.insert(uid.to_owned(), sender);
    }

    /// The entry of a pod, if it was admitted.
    pub(crate) fn entry(&self, uid: &str) -> Option<Entry> {
        self.state.lock().allocator.entry(uid).cloned()
    }

    /// Admits a new pod with this allocation, if it fits and fails no predicate. If the journal fails, nothing is allocated.
    pub(crate) async fn admit(
        &self,
        uid: &str,
        info: PodInfo,
        allocation: Allocation,
        failed: Option<Predicate>,
    ) -> Result<Result<Entry, AdmissionError>, JournalError> {
        let (entry, ticket) = {
            let mut state = self.state.lock();
            match state.allocator.admit(uid, info, allocation, failed) {
                Ok(entry) => {
                    self.notify_changes(&mut state);
                    (entry, state.write(&self.journal, uid))
                }
                Err(rejected) => return Ok(Err(rejected)),
            }
        };
        let written = match ticket {
            Ok(ticket) => self.await_disk(uid, ticket).await,
            Err(error) => Err(error),
        };
        if written.is_err() {
            let mut state = self.state.lock();
            state.unwritten.remove(uid);
            state.allocator.release(uid);
            self.notify_changes(&mut state);
        }
        written.map(|()| Ok(entry))
    }

    /// The pods to preempt for a critical pod that does not fit, if it is admitted without them. Its requests count until
    /// it is admitted, or the returned value is dropped.
    pub(crate) fn begin_preemption(
        self: &Arc<Self>,
        uid: &str,
        info: &PodInfo,
        allocation: &Allocation,
        failed: Option<Predicate>,
    ) -> Option<(Vec<String>, Preemption)> {
        let victims = self.state.lock().allocator.begin_preemption(uid, info, allocation, failed)?;
        Some((victims, Preemption { allocations: self.clone(), uid: uid.to_owned() }))
    }

    /// Whether a pod fits with these resources.
    pub(crate) fn fits(&self, uid: &str, info: &PodInfo, resources: &PodResources) -> bool {
        self.state.lock().allocator.fits(uid, info, resources)
    }

    /// The verdict on other resources of a pod, which changes nothing; none if the pod was not admitted.
    pub(crate) fn verdict(&self, uid: &str, desired: &PodResources) -> Option<Verdict> {
        self.state.lock().allocator.verdict(uid, desired)
    }

    /// What the node has left for a pod beside what counts for it already.
    pub(crate) fn left(&self, uid: &str) -> Amounts {
        self.state.lock().allocator.left(uid)
    }

    /// Who holds a resource of the node, as an event of this pod may say.
    pub(crate) fn holders(&self, uid: &str, resource: Resource) -> Holders {
        self.state.lock().allocator.holders(uid, resource)
    }

    /// What a deferred resize of a pod waits for.
    pub(crate) fn explain_wait(&self, uid: &str) -> Option<Wait> {
        self.state.lock().allocator.explain_wait(uid)
    }

    /// Admits a pod that ran before, with its allocation of then; returns its entry.
    pub(crate) fn readmit(&self, uid: &str, info: PodInfo, entry: Entry) -> Entry {
        let mut state = self.state.lock();
        let entry = state.allocator.readmit(uid, info, entry);
        self.notify_changes(&mut state);
        entry
    }

    /// Writes a pod's entry to the journal, after it was rebuilt.
    pub(crate) async fn write(&self, uid: &str) -> Result<(), JournalError> {
        let ticket = self.state.lock().write(&self.journal, uid)?;
        self.await_disk(uid, ticket).await
    }

    /// Decides on the resources in a pod's spec; the decision is durable. None if the pod was not admitted, or if pods of
    /// the first list have yet to be: then the pod's worker is notified once they are.
    pub(crate) async fn request_resize(
        &self,
        uid: &str,
        desired: PodResources,
        generation: i64,
    ) -> Result<Option<AllocationResult>, JournalError> {
        let now = (self.clock)().as_millisecond();
        let (result, ticket, freed) = {
            let mut state = self.state.lock();
            // Under the lock, so that the notification is not sent before this is decided.
            if *self.admitting.borrow() > 0 {
                return Ok(None);
            }
            let before = state.allocator.entry(uid).cloned();
            let counted = state.allocator.counted(uid);
            let Some(result) = state.allocator.request_resize(uid, desired, generation, now) else {
                return Ok(None);
            };
            self.notify_changes(&mut state);
            let changed = before.as_ref() != Some(&result.entry) || state.unwritten.contains(uid);
            let ticket = if changed { state.write(&self.journal, uid)? } else { None };
            (result, ticket, is_any_less(state.allocator.counted(uid), counted))
        };
        self.await_disk(uid, ticket).await?;
        if freed {
            // A resize up that was not actual yet was reverted: no actual resources will change.
            self.retry_deferred(Trigger::PodResized).await;
        }
        Ok(Some(result))
    }

    /// Changes a pod's entry apart from its allocation, and returns it. It is durable when this returns; if that fails, the
    /// next call writes it.
    pub(crate) async fn update_entry(
        &self,
        uid: &str,
        change: impl FnOnce(&mut Entry),
    ) -> Result<Option<Entry>, JournalError> {
        let (entry, ticket) = {
            let mut state = self.state.lock();
            let Some((entry, changed)) = state.allocator.update_entry(uid, change) else { return Ok(None) };
            let changed = changed || state.unwritten.contains(uid);
            (entry, if changed { state.write(&self.journal, uid)? } else { None })
        };
        self.await_disk(uid, ticket).await?;
        Ok(Some(entry))
    }

    /// Sets the actual resources of a pod, and retries deferred resizes if that freed capacity.
    pub(crate) async fn set_actual(&self, uid: &str, actual: PodResources) {
        let freed = {
            let mut state = self.state.lock();
            let freed = state.allocator.set_actual(uid, actual);
            if freed {
                self.notify_changes(&mut state);
            }
            freed
        };
        if freed {
            self.retry_deferred(Trigger::PodResized).await;
        }
    }

    /// Releases exclusive CPUs that no container of a pod runs on any more, and retries deferred resizes if there are
    /// some.
    pub(crate) async fn release_unused_cpus(&self, uid: &str) {
        let freed = {
            let mut state = self.state.lock();
            let freed = state.shared.is_some() && state.allocator.release_unused_cpus(uid);
            if freed {
                self.notify_changes(&mut state);
            }
            freed
        };
        if freed {
            self.retry_deferred(Trigger::PodResized).await;
        }
    }

    /// Releases the resources of a pod that has terminated or was removed.
    pub(crate) async fn release(&self, uid: &str, why: Trigger) {
        let held = {
            let mut state = self.state.lock();
            state.subscribers.remove(uid);
            state.unwritten.remove(uid);
            let held = state.allocator.release(uid);
            self.notify_changes(&mut state);
            held
        };
        if let Err(error) = self.journal.delete(uid).await {
            // The next start deletes it: no pod has that uid any more.
            tracing::warn!(%error, uid, "cannot delete a pod's entry from the journal");
        }
        if held {
            self.retry_deferred(why).await;
        }
    }

    /// Retries the deferred resizes, and notifies their pod workers.
    async fn retry_deferred(&self, trigger: Trigger) {
        let now = (self.clock)().as_millisecond();
        self.retry_with(trigger, |allocator| allocator.retry_deferred(now)).await;
    }

    /// Notifies pod workers of the results of a retry. A panic over one pod is that of its own worker, which requests the resize
    /// again, and not of the worker that has freed capacity.
    async fn retry_with(
        &self,
        trigger: Trigger,
        retry: impl FnOnce(&mut Allocator) -> Vec<(String, Result<AllocationResult, Panic>)>,
    ) {
        let results: Vec<_> = {
            let mut state = self.state.lock();
            let results = retry(&mut state.allocator);
            self.notify_changes(&mut state);
            let written = results.into_iter().map(|(uid, result)| {
                let written = result.map(|result| (result, state.write(&self.journal, &uid)));
                (state.subscribers.get(&uid).cloned(), uid, written)
            });
            written.collect()
        };
        for (sender, uid, written) in results {
            // The worker then requests the resize itself: with the backoff after a failed write, or after its own panic.
            let message = match written {
                Ok((result, Ok(ticket))) => match self.await_disk(&uid, ticket).await {
                    Ok(()) => Message::Allocation(Box::new(result), trigger),
                    Err(_) => Message::Retry,
                },
                Ok((_, Err(_))) => Message::Retry,
                Err(panic) => {
                    tracing::error!(uid, "the retry of a deferred resize panicked");
                    self.supervisor.note_panic(POD_WORKER, &panic);
                    Message::Retry
                }
            };
            if let Some(sender) = sender {
                // The worker may have ended.
                let _ = sender.send(message);
            }
        }
    }

    /// Waits until a journal write is durable.
    async fn await_disk(&self, uid: &str, ticket: Option<Ticket<Arc<Event>>>) -> Result<(), JournalError> {
        let Some(ticket) = ticket else { return Ok(()) };
        match ticket.await {
            Ok(_) => Ok(()),
            Err(error) => {
                self.state.lock().unwritten.insert(uid.to_owned());
                Err(error.into())
            }
        }
    }
}

/// A pod of the first list that is being admitted. Resizes wait for it, so that they do not take the capacity of pods that
/// were bound before.
pub(crate) struct PendingAdmission(Arc<AllocationManager>);

impl Drop for PendingAdmission {
    fn drop(&mut self) {
        let state = self.0.state.lock();
        let mut is_last = false;
        self.0.admitting.send_modify(|count| {
            *count = count.saturating_sub(1);
            is_last = *count == 0;
        });
        if is_last {
            for sender in state.subscribers.values() {
                // The worker may have ended.
                let _ = sender.send(Message::Retry);
            }
        }
    }
}

/// A critical pod that waits until the pods that it preempts have ended. Deferred resizes do not get the capacity that they
/// free, or their termination would not let the critical pod in.
pub(crate) struct Preemption {
    allocations: Arc<AllocationManager>,
    uid: String,
}

impl Drop for Preemption {
    fn drop(&mut self) {
        let mut state = self.allocations.state.lock();
        if state.allocator.end_preemption(&self.uid) {
            // It was not admitted: others may have its capacity.
            for sender in state.subscribers.values() {
                // The worker may have ended.
                let _ = sender.send(Message::Retry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use plumb_resize::admission::NodeFacts;
    use plumb_resize::aggregate::Role;
    use plumb_resize::pod::{ContainerShape, PodShape};
    use plumb_resize::qos::QosClass;
    use plumb_resize::resource::{Amounts, Declared, PerResource, Requirements};
    use plumb_resize::rules::Rules;
    use plumb_resize::status::ResizeOutcome;
    use plumb_store::{Options, Store};

    use super::*;

    fn cpu(milli: i64) -> PodResources {
        PodResources { containers: vec![Requirements::equal(milli, 1 << 20)], pod: None }
    }

    fn info(name: &str, milli: i64) -> PodInfo {
        let container = ContainerShape { name: "c".into(), role: Role::Main, policy: PerResource::default() };
        let qos = QosClass::Burstable;
        PodInfo {
            namespace: "default".into(),
            name: name.into(),
            shape: PodShape { containers: vec![container], overhead: Declared::NONE, qos },
            host_ports: Vec::new(),
            priority: 0,
            critical: false,
            ephemeral_storage: 0,
            desired: cpu(milli),
            generation: 1,
        }
    }

    /// A node of one CPU with a pod `large`, and the pods `first` and `second`, whose resizes are deferred in this
    /// order until `large` is removed. Returns the inboxes of the workers of these two.
    async fn full() -> (Arc<AllocationManager>, [mpsc::UnboundedReceiver<Message>; 2]) {
        let allocatable = Amounts::new(1000, 1 << 30);
        let allocator = Allocator::new(allocatable, 10, NodeFacts::default(), Rules::kep());
        let journal = Journal::new(Store::in_memory(&Options::default()), "n1");
        let manager =
            AllocationManager::new(allocator, journal, Arc::new(Timestamp::now), Supervisor::default());
        let manager = Arc::new(manager);
        for (name, milli) in [("large", 600), ("first", 100), ("second", 200)] {
            let allocation = Allocation::new(cpu(milli), 1);
            manager.admit(name, info(name, milli), allocation, None).await.unwrap().unwrap();
        }
        let subscribe = async |name: &str| {
            let (sender, inbox) = mpsc::unbounded_channel();
            manager.subscribe(name, sender);
            manager.request_resize(name, cpu(400), 2).await.unwrap().unwrap();
            inbox
        };
        let inboxes = [subscribe("first").await, subscribe("second").await];
        assert_eq!(manager.state.lock().allocator.deferred().collect::<Vec<_>>(), ["first", "second"]);
        (manager, inboxes)
    }

    #[tokio::test]
    async fn a_panic_over_one_deferred_resize_is_left_to_the_worker_of_its_pod() {
        let (manager, [mut first, mut second]) = full().await;
        manager.state.lock().allocator.release("large");
        let before = manager.entry("first");
        let retry = |allocator: &mut Allocator| {
            allocator.retry_each(|allocator, uid| {
                allocator.unchanged_by_panics(uid, |allocator| {
                    let result = allocator.decide(uid, 7);
                    assert_ne!(uid, "first", "the decision on one pod panics");
                    result
                })
            })
        };
        // The caller is the worker of a third pod, and does not panic.
        manager.retry_with(Trigger::PodsRemoved, retry).await;
        assert_eq!(manager.supervisor.panics(POD_WORKER), 1);
        let Ok(Message::Allocation(result, Trigger::PodsRemoved)) = second.try_recv() else {
            panic!("the other resize is decided")
        };
        assert_eq!((result.outcome, &result.entry.allocation.allocated), (ResizeOutcome::Started, &cpu(400)));
        assert!(matches!(first.try_recv(), Ok(Message::Retry)), "its own worker requests it again");
        assert_eq!(manager.entry("first"), before, "an allocation that is not in the journal");
        {
            let state = manager.state.lock();
            assert_eq!(state.allocator.deferred().collect::<Vec<_>>(), ["first"]);
            assert_eq!((state.allocator.counted("first").cpu, state.allocator.burstable_cpu()), (100, 500));
        }
        let result = manager.request_resize("first", cpu(400), 2).await.unwrap().unwrap();
        assert_eq!(result.outcome, ResizeOutcome::Started);
    }

    #[tokio::test]
    async fn what_preempted_pods_free_is_for_the_critical_pod_and_not_for_deferred_resizes() {
        for is_admitted in [true, false] {
            let (manager, [mut first, _second]) = full().await;
            let critical = PodInfo { critical: true, ..info("critical", 700) };
            let allocation = Allocation::new(cpu(700), 1);
            let begun = manager.begin_preemption("critical", &critical, &allocation, None);
            let (victims, preemption) = begun.unwrap();
            assert_eq!(victims, ["large"]);
            manager.release("large", Trigger::PodTerminated).await;
            assert!(first.try_recv().is_err(), "a deferred resize gets the capacity");
            let resized = manager.request_resize("first", cpu(400), 2).await.unwrap().unwrap();
            assert_eq!(resized.outcome, ResizeOutcome::Unchanged, "it is still deferred");
            if is_admitted {
                manager.admit("critical", critical, allocation, None).await.unwrap().unwrap();
            }
            drop(preemption);
            assert_eq!(first.try_recv().is_err(), is_admitted, "a deferred resize is retried");
            let state = manager.state.lock();
            let expected = if is_admitted { (700, 1000) } else { (0, 300) };
            let counted = state.allocator.counted("critical").cpu;
            assert_eq!((counted, state.allocator.burstable_cpu()), expected);
        }
    }
}
