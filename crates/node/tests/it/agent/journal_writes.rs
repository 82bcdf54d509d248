//! Failing journal writes: the agent does not actuate an allocation that is not in the journal, and writes it once
//! that is possible.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use k8s_openapi::api::core::v1::Event as CoreEvent;
use kube::Api;
use kube::api::ListParams;
use plumb_node::journal::Entry;
use plumb_resize::rules::Rules;
use plumb_runtime::fault::{Call, Fault, FaultKind};
use plumb_store::{Change, Event, Journal, JournalError, Options, Recovery, Store};
use plumb_testkit::{eventually, in_time};
use serde_json::json;
use tokio::sync::oneshot;

use crate::it::site::{Site, condition, equal, one, status};

/// A disk that can be full, or slow.
#[derive(Clone, Default)]
struct Disk {
    full: Arc<AtomicBool>,
    /// How many writes have failed.
    failed: Arc<AtomicUsize>,
    slow: Arc<Mutex<Option<Hold>>>,
}

/// A write that takes long.
struct Hold {
    /// Whether it has this entry.
    is_for: fn(&Entry) -> bool,
    reached: oneshot::Sender<()>,
    release: mpsc::Receiver<()>,
}

/// The entry that an event of the journal writes.
fn entry(event: &Event) -> Option<Entry> {
    match &event.change {
        Change::Created(object) | Change::Updated { current: object, .. } => {
            serde_json::from_slice(&object.value).ok()
        }
        Change::Deleted(_) => None,
    }
}

impl Journal for Disk {
    fn append(&mut self, batch: &[Arc<Event>]) -> Result<(), JournalError> {
        let has = |hold: &mut Hold| {
            batch.iter().filter_map(|event| entry(event)).any(|entry| (hold.is_for)(&entry))
        };
        let held = self.slow.lock().unwrap().take_if(has);
        if let Some(hold) = held {
            hold.reached.send(()).unwrap();
            // A test that has failed does not release it.
            let _ = hold.release.recv();
        }
        if !self.full.load(SeqCst) {
            return Ok(());
        }
        self.failed.fetch_add(1, SeqCst);
        Err(JournalError::Full { file: "journal".to_owned(), source: io::ErrorKind::StorageFull.into() })
    }
}

impl Disk {
    /// A node with its journal on this disk.
    async fn site(&self) -> Site {
        let options = Options::default();
        let recovery = Recovery::new(0, options.history);
        let store = Store::start(Box::new(self.clone()), recovery, options).unwrap();
        let mut site = Site::with_journal(Rules::kep(), store, tempfile::tempdir().unwrap());
        site.start_agent().await;
        site
    }

    /// The first write of such an entry takes until the returned sender is used; the receiver gets a message when it begins.
    fn hold(&self, is_for: fn(&Entry) -> bool) -> (oneshot::Receiver<()>, mpsc::Sender<()>) {
        let ((reached, begun), (end, release)) = (oneshot::channel(), mpsc::channel());
        *self.slow.lock().unwrap() = Some(Hold { is_for, reached, release });
        (begun, end)
    }

    /// Waits until this many writes have failed.
    async fn has_failed(&self, times: usize) {
        eventually(async || self.failed.load(SeqCst) >= times).await;
    }
}

#[tokio::test]
async fn a_resize_is_actuated_only_after_its_allocation_is_in_the_journal() {
    let disk = Disk::default();
    let site = disk.site().await;
    site.pod("a", one(equal("100m", "64Mi"))).await;
    let before = site.settled("a").await;
    disk.full.store(true, SeqCst);
    site.faults.record();
    site.resize("a", equal("200m", "64Mi")).await;
    // The worker has retried.
    disk.has_failed(2).await;
    let is_update =
        |call: Call| [Call::UpdateContainerResources, Call::UpdateSandboxResources].contains(&call);
    assert!(!site.faults.recorded().iter().any(|invocation| is_update(invocation.call)));
    assert_eq!(site.journalled("a").await.allocation.allocated.containers[0].requests.cpu, Some(100));
    disk.full.store(false, SeqCst);
    let after = site.settled("a").await;
    assert_eq!(status(&after).container_id, status(&before).container_id);
    assert_eq!(site.journalled("a").await.allocation.allocated.containers[0].requests.cpu, Some(200));
}

#[tokio::test]
async fn a_deferred_resize_whose_retry_is_not_in_the_journal_is_actuated_after_it_is() {
    let disk = Disk::default();
    let site = disk.site().await;
    for name in ["a", "b"] {
        site.pod(name, one(equal("900m", "64Mi"))).await;
        site.settled(name).await;
    }
    site.resize("a", equal("1500m", "64Mi")).await;
    site.until("a", |pod| condition(pod, "PodResizePending").is_some()).await;
    disk.full.store(true, SeqCst);
    site.faults.record();
    site.delete("b").await;
    // That of the deletion, that of the retry, and that of the worker of the deferred pod.
    disk.has_failed(3).await;
    let updates = |call: Call| call == Call::UpdateContainerResources;
    assert!(!site.faults.recorded().iter().any(|invocation| updates(invocation.call)));
    assert_eq!(site.journalled("a").await.allocation.allocated.containers[0].requests.cpu, Some(900));
    disk.full.store(false, SeqCst);
    site.settled("a").await;
    assert_eq!(site.journalled("a").await.allocation.allocated.containers[0].requests.cpu, Some(1500));
}

#[tokio::test]
async fn the_end_of_a_restart_that_was_not_journalled_at_first_is_noted_and_completes_the_resize() {
    let disk = Disk::default();
    let site = disk.site().await;
    let mut containers = one(equal("100m", "64Mi"));
    containers[0]["resizePolicy"] =
        json!([{ "resourceName": "memory", "restartPolicy": "RestartContainer" }]);
    site.pod("a", containers).await;
    site.settled("a").await;
    // The disk is full from when the container is started again.
    let full = disk.full.clone();
    let starts = Fault::new(FaultKind::Delay(Duration::ZERO)).on(Call::StartContainer);
    site.faults.add(starts.when(move |_| {
        full.store(true, SeqCst);
        false
    }));
    site.resize("a", equal("100m", "128Mi")).await;
    disk.has_failed(1).await;
    assert_eq!(site.journalled("a").await.restarting, ["c"]);
    site.faults.clear();
    disk.full.store(false, SeqCst);
    assert!(site.event("a", "ResizeCompleted").await.starts_with("Pod resize completed: {"));
    eventually(async || site.journalled("a").await.restarting.is_empty()).await;
    assert_eq!(status(&site.settled("a").await).restart_count, 1);
}

#[tokio::test]
async fn the_result_of_a_retry_that_arrives_after_that_of_a_newer_spec_starts_no_resize() {
    let disk = Disk::default();
    let site = disk.site().await;
    for name in ["a", "b"] {
        site.pod(name, one(equal("900m", "64Mi"))).await;
        site.settled(name).await;
    }
    site.resize("a", equal("1500m", "64Mi")).await;
    site.until("a", |pod| condition(pod, "PodResizePending").is_some()).await;
    // The worker of the deleted pod retries the deferred resize, and waits for the journal.
    let (begun, end) = disk.hold(|entry| entry.name == "a" && entry.allocation.generation == 2);
    site.delete("b").await;
    in_time(begun).await.unwrap();
    // The pod's own worker requests a newer spec, and waits for the journal as well: it handles its result first.
    site.resize("a", equal("1600m", "64Mi")).await;
    site.dispatched().await;
    end.send(()).unwrap();

    site.settled("a").await;
    let allocation = site.journalled("a").await.allocation;
    assert_eq!((allocation.allocated.containers[0].requests.cpu, allocation.generation), (Some(1600), 3));
    assert!(site.event("a", "ResizeCompleted").await.ends_with(r#""generation":3}"#));
    let events: Api<CoreEvent> = Api::default_namespaced(site.cluster.admin());
    let events = events.list(&ListParams::default().fields("involvedObject.name=a")).await.unwrap();
    for reason in ["ResizeStarted", "ResizeCompleted"] {
        let of_reason = events.iter().filter(|event| event.reason.as_deref() == Some(reason));
        let counts: Vec<i32> = of_reason.map(|event| event.count.unwrap_or(1)).collect();
        assert_eq!(counts, [1], "{reason}");
    }
}
