//! Adopts running containers, and removes unfinished ones.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::{Once, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use plumb_oci::Registry;
use plumb_resize::cgroup::WeightScale;
use plumb_resize::qos::QosClass;
use rustix::fs::{FlockOperation, flock};
use tokio::sync::{broadcast, watch};

use super::container::{self, clear};
use super::guard::{GroupGuard, Wakers};
use super::life::{Life, lost};
use super::naming::Naming;
use super::nat::{Nat, PodNetwork};
use super::network::{Addresses, Wire};
use super::pressure::{Hold, MemoryWatches};
use super::program::ShimProgram;
use super::pulls::Pulls;
use super::source_guard::{PodAddresses, SourceGuard};
use super::state::{
    ContainerEntry, ContainerRecord, EVENTS, Pods, SandboxEntry, SandboxRecord, State, WatchedContainer,
};
use super::{Builtin, Config, FOLDER, IMAGES, namespaces, sandbox};
use crate::cgroup::{Controller, Notification, Notifier, Tree, Version};
use crate::error::{Error, Result};
use crate::image::Images;
use crate::shim::{EXIT, LOCK, SOCKET, STARTED, Started, load, store};
use crate::types::{ContainerChange, Event, SandboxState};
use crate::untrusted::remove_tree;

pub(super) const OWN_NETWORK: u8 = 24;
/// An empty directory, the upper layer of the mount that shims are executed from.
const EMPTY: &str = "empty";

impl Builtin {
    /// Opens the runtime of a data directory: it adopts running containers, and removes half-made ones.
    /// Must be called in a Tokio runtime.
    pub async fn open(config: Config) -> Result<Self> {
        let opened = tokio::task::spawn_blocking(move || open(config)).await;
        let (state, running) = opened.map_err(|error| Error::failed("opening the runtime", error))??;
        for entry in &running {
            state.watch_container(entry, None);
        }
        state.resume_guards(&running).await;
        Ok(Self { state })
    }

    /// Removes the bridge and the rules of the pod network, unless a pod still has an address in it. Pods run on after the
    /// agent has ended, and so does their network.
    pub async fn release_unused_network(&self) -> Result<()> {
        let state = self.state.clone();
        let released = tokio::task::spawn_blocking(move || {
            let entries: Vec<_> = state.pods.lock().sandboxes.values().cloned().collect();
            if entries.iter().any(|entry| entry.record.lock().address.is_some()) {
                return Ok(());
            }
            state.remove_network()
        });
        released.await.map_err(|error| Error::failed("removing the pod network", error))?
    }

    /// Ends and removes everything of this data directory: containers, pods, cgroups, the bridge. Images stay.
    pub async fn clear(&self) -> Result<()> {
        use crate::Runtime as _;
        for sandbox in self.list_sandboxes(&crate::types::SandboxFilter::default()).await? {
            self.remove_sandbox(&sandbox.id).await?;
        }
        let state = self.state.clone();
        let cleared = tokio::task::spawn_blocking(move || -> Result<()> {
            state.remove_network()?;
            Ok(state.tree.delete()?)
        });
        cleared.await.map_err(|error| Error::failed("clearing the runtime", error))?
    }
}

fn open(config: Config) -> Result<(Arc<State>, Vec<Arc<ContainerEntry>>)> {
    let doing = |what: &Path| {
        let what = format!("opening {}", what.display());
        move |error: io::Error| Error::io(what, &error)
    };
    fs::create_dir_all(&config.data_dir).map_err(doing(&config.data_dir))?;
    let data_dir = fs::canonicalize(&config.data_dir).map_err(doing(&config.data_dir))?;
    let folder = data_dir.join(FOLDER);
    for part in [sandbox::FOLDER, container::FOLDER, EMPTY] {
        fs::create_dir_all(folder.join(part)).map_err(doing(&folder))?;
    }
    // Only root may read it.
    let closed = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o700);
    fs::set_permissions(&folder, closed).map_err(doing(&folder))?;
    let naming = Naming::of(&data_dir);
    if config.cgroups.version() == Version::V1 && !config.cgroups.has(Controller::Devices) {
        tracing::warn!("no devices controller is mounted: only nodev keeps containers from devices");
    }
    if !config.cgroups.has(Controller::Pids) {
        tracing::warn!("there is no pids controller: pods can have as many processes as the machine");
    }
    let tree = Tree::new(config.cgroups, naming.cgroup());
    tree.create()?;
    let images = Arc::new(Images::open(folder.join(IMAGES))?);
    if let Some(load) = &config.load {
        images.make_load(load)?;
    }
    let (network, prefix) = config.pod_network.unwrap_or((naming.network(), OWN_NETWORK));
    if !(8..=29).contains(&prefix) {
        return Err(Error::InvalidArgument(format!("a pod network of /{prefix} is not between /8 and /29")));
    }
    let shim = ShimProgram::seal(config.shim.clone(), &folder.join(EMPTY)).map_err(doing(&config.shim.0))?;
    let events = broadcast::Sender::new(EVENTS);
    let listened: Arc<Mutex<HashMap<u64, WatchedContainer>>> = Arc::default();
    let wakers: Arc<Wakers> = Arc::default();
    let memory_watches: Arc<MemoryWatches> = Arc::default();
    let notifier = {
        let (listened, events, wakers) = (listened.clone(), events.clone(), wakers.clone());
        let memory_watches = memory_watches.clone();
        Notifier::start(move |notification| {
            // One notification may be for both.
            let is_guarded = wakers.wake(notification);
            let is_watched = memory_watches.notify(notification, &events);
            if !is_guarded && !is_watched {
                notify(notification, &listened, &events);
            }
        })?
    };
    let nat = Nat::new(PodNetwork {
        table: naming.table(),
        bridge: naming.bridge(),
        network,
        prefix,
        cluster: config.cluster_network,
        masquerade: config.masquerade,
    });
    let source_guard = Arc::new(SourceGuard::new(naming.table()));
    let state = State {
        folder,
        naming,
        tree,
        pulls: Pulls::new(Registry::new(config.registry), images.clone()),
        images,
        shim,
        pods: Mutex::default(),
        addresses: Mutex::new(Addresses::new(network, prefix)),
        bridge: Mutex::default(),
        mtu: config.mtu,
        nat,
        source_guard,
        gate: OnceLock::new(),
        events,
        notifier: Arc::new(notifier),
        watched: listened,
        wakers,
        memory_watches,
        guard_window: config.guard_window,
        next: AtomicU64::new(0),
        warned_about_oom_score: Once::new(),
    };
    let running = state.adopt_all()?;
    state.resume_network();
    Ok((Arc::new(state), running))
}

/// Handles the kernel's notification that a group ran out of memory. v2 notifies after an OOM kill; v1 notifies just
/// before, so the group is checked again for a moment.
fn notify(
    notification: Notification,
    watched: &Mutex<HashMap<u64, WatchedContainer>>,
    events: &broadcast::Sender<Event>,
) {
    for attempt in 0..6 {
        // The kernel also notifies when a group is removed; its entry is removed by then.
        let is_reported = |container: &mut WatchedContainer| {
            container.emit_oom_kills(events) || container.group.version() == Version::V2
        };
        if watched.lock().get_mut(&notification.0).is_none_or(is_reported) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1 << attempt));
    }
}

impl WatchedContainer {
    /// Sends an event for OOM kills since the last one; returns whether there were any.
    pub(super) fn emit_oom_kills(&mut self, events: &broadcast::Sender<Event>) -> bool {
        let kills = self.group.oom_kills().unwrap_or(self.kills);
        if kills <= self.kills {
            return false;
        }
        self.kills = kills;
        let _ = events.send(Event::Container {
            id: self.id.clone(),
            sandbox: self.sandbox.clone(),
            change: ContainerChange::OutOfMemory,
            at: Timestamp::now(),
        });
        true
    }
}

impl State {
    fn adopt_all(&self) -> Result<Vec<Arc<ContainerEntry>>> {
        let mut pods = Pods::default();
        let mut unfinished = Vec::new();
        for folder in folders(&self.folder.join(sandbox::FOLDER))? {
            let Ok(mut record) = load::<SandboxRecord>(&folder.join(sandbox::RECORD)) else {
                // Its record is written first, so without one nothing else exists; unless an administrator removed
                // the files by hand, which leaves the mounts.
                let error = |error: io::Error| Error::io(format!("unmounting {}", folder.display()), &error);
                namespaces::unmount(&folder).map_err(error)?;
                remove_folder(&folder)?;
                continue;
            };
            let group = self.tree.pod(record.config.class, &record.config.meta.uid);
            if record.complete && !namespaces::are_held(&folder, &record.config) {
                // It was stopped, or the host was restarted; then another pod may have its address.
                record.state = SandboxState::NotReady;
                record.address = None;
            }
            if let Some(address) = record.address {
                self.addresses.lock().keep(address);
                self.nat.adopt(&record.config.port_mappings, address);
                self.adopt_source(&folder, &record, address);
                self.adopt_route(&folder, &mut record);
            }
            let (id, complete) = (record.id.clone(), record.complete);
            let (context, whose, notifications) =
                (self.context(), (id.clone(), None), self.two_notifications());
            let guard = GroupGuard::of(context, &folder, &group, whose, notifications, None, None);
            let record = Mutex::new(record);
            let turn = tokio::sync::Mutex::default();
            let entry = Arc::new(SandboxEntry { folder, group, record, guard, turn });
            if complete {
                pods.sandboxes.insert(id, entry);
            } else {
                unfinished.push(entry);
            }
        }
        let mut running = Vec::new();
        for folder in folders(&self.folder.join(container::FOLDER))? {
            let record: Result<ContainerRecord, _> = load(&folder.join(container::RECORD));
            let known = record.ok().and_then(|record| {
                let sandbox = pods.sandboxes.get(&record.sandbox)?.clone();
                Some((record, sandbox))
            });
            let Some((record, sandbox)) = known else {
                self.forget(&folder)?;
                continue;
            };
            let entry = Arc::new(self.adopt(folder, record, &sandbox));
            if entry.life.borrow().is_running() {
                running.push(entry.clone());
            }
            // It exited while no runtime ran.
            if entry.life.borrow().exit().is_some()
                && let Err(error) = entry.group.delete()
            {
                tracing::warn!(container = %entry.record.id, %error, "cannot remove the cgroup of a container that has ended");
            }
            pods.containers.insert(entry.record.id.clone(), entry);
        }
        *self.pods.lock() = pods;
        for entry in unfinished {
            self.tear_down_sandbox(&entry)?;
        }
        self.sweep_groups()?;
        self.sweep_images()?;
        Ok(running)
    }

    /// Binds a pod that runs already to its addresses.
    fn adopt_source(&self, folder: &Path, record: &SandboxRecord, address: Ipv4Addr) {
        let hardware = record.hardware.map_or_else(|| namespaces::hardware_address_in(folder), Ok);
        match hardware {
            Ok(hardware) => {
                let veth = self.naming.veth(record.id.as_str());
                self.source_guard.adopt(veth, PodAddresses { hardware, address });
            }
            Err(error) => {
                tracing::warn!(sandbox = %record.id, %error, "a pod is not bound to its own addresses");
            }
        }
    }

    /// Has a pod that an older version has created send everything to the machine. Without it the pod would send to other
    /// pods of the node directly, which [`super::source_guard`] does not allow.
    fn adopt_route(&self, folder: &Path, record: &mut SandboxRecord) {
        if record.routed || !record.complete {
            return;
        }
        let (network, prefix, gateway) = {
            let addresses = self.addresses.lock();
            (addresses.network(), addresses.prefix(), addresses.gateway())
        };
        let veth = self.naming.veth(record.id.as_str());
        let routed = namespaces::in_network(folder, || Wire::open()?.route_pod(network, prefix, gateway))
            .and_then(|()| Wire::open()?.hairpin(&veth));
        record.routed = true;
        if let Err(error) = routed.and_then(|()| store(&folder.join(sandbox::RECORD), record, false)) {
            tracing::warn!(sandbox = %record.id, %error, "a pod does not reach other pods of this node until it is replaced");
            record.routed = false;
        }
    }

    /// Continues the guards that a runtime before this one left, of pods and of running containers.
    async fn resume_guards(&self, running: &[Arc<ContainerEntry>]) {
        let sandboxes: Vec<_> = self.pods.lock().sandboxes.values().cloned().collect();
        // A pod's sandboxes share its group, and those before the newest do not decide about it: they come first.
        let is_ready = |entry: &&Arc<SandboxEntry>| entry.record.lock().state == SandboxState::Ready;
        let (ready, over): (Vec<_>, Vec<_>) = sandboxes.iter().partition(is_ready);
        for entry in over {
            entry.guard.resume(false).await;
        }
        for guard in ready.into_iter().map(|entry| &entry.guard).chain(running.iter().map(|e| &e.guard)) {
            guard.resume(true).await;
        }
    }

    /// Removes what Plumb made an image of before an upgrade, unless a container still uses it.
    fn sweep_images(&self) -> Result<()> {
        for image in self.images.list()? {
            let used = self.pods.lock().containers.values().any(|entry| entry.record.uses(&image.id));
            if image.pinned && image.tags.is_empty() && !used {
                self.images.remove(&image.id)?;
            }
        }
        Ok(())
    }

    fn adopt(&self, folder: PathBuf, record: ContainerRecord, sandbox: &SandboxEntry) -> ContainerEntry {
        let group = sandbox.group.child(record.id.as_str(), WeightScale::Quadratic);
        let started: Option<Started> = load(&folder.join(STARTED)).ok();
        let life = match load(&folder.join(EXIT)) {
            Ok(exit) => Life::Exited(started, exit),
            Err(_) if has_shim(&folder) => match wait_for_start(&folder) {
                Some(started) => Life::Running(started),
                None => Life::Exited(None, lost("the shim did not start it")),
            },
            Err(_) if started.is_some() || folder.join(LOCK).exists() => {
                // The shim records the exit, so it was killed itself, or the host was. No process manages its
                // remains.
                if let Err(error) = group.kill() {
                    tracing::warn!(container = %record.id, %error, "cannot kill the processes of a container whose shim has ended");
                }
                let exit = lost("its shim is gone");
                let _ = store(&folder.join(EXIT), &exit, true);
                let _ = fs::remove_file(folder.join(SOCKET));
                Life::Exited(started, exit)
            }
            Err(_) => Life::Created,
        };
        let notifications = self.two_notifications();
        let whose = (record.sandbox.clone(), Some(record.id.clone()));
        let around = Some(sandbox.guard.clone());
        let hold = Hold::load(&folder);
        let held = Some(hold.clone());
        ContainerEntry {
            guard: GroupGuard::of(self.context(), &folder, &group, whose, notifications, around, held),
            hold,
            folder,
            group,
            record,
            life: watch::Sender::new(life),
            notification: notifications.0,
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Removes a container that has no record or no sandbox: its making or unmaking was broken off.
    fn forget(&self, folder: &Path) -> Result<()> {
        let id = folder.file_name().unwrap_or_default();
        for class in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
            for pod in self.tree.class(class).children()? {
                for group in pod.children()? {
                    if group.path().file_name() == Some(id) {
                        group.kill()?;
                        wait_for_end(folder);
                        clear(folder, &group)?;
                    }
                }
            }
        }
        remove_folder(folder)
    }

    /// Removes cgroups in our tree that belong to no pod or container.
    fn sweep_groups(&self) -> Result<()> {
        let (uids, ids): (BTreeSet<String>, BTreeSet<String>) = {
            let pods = self.pods.lock();
            (
                pods.sandboxes
                    .values()
                    .map(|entry| format!("pod{}", entry.record.lock().config.meta.uid))
                    .collect(),
                pods.containers.keys().map(ToString::to_string).collect(),
            )
        };
        let in_set = |set: &BTreeSet<String>, name: Option<&OsStr>| {
            name.and_then(OsStr::to_str).is_some_and(|name| set.contains(name))
        };
        for class in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
            for pod in self.tree.class(class).children()? {
                let name = pod.path().file_name();
                if name.and_then(OsStr::to_str).is_none_or(|name| !name.starts_with("pod")) {
                    continue;
                }
                if !in_set(&uids, name) {
                    pod.delete()?;
                    continue;
                }
                for group in pod.children()? {
                    if !in_set(&ids, group.path().file_name()) {
                        group.delete()?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn folders(folder: &Path) -> Result<Vec<PathBuf>> {
    let doing = |error: io::Error| Error::io(format!("reading {}", folder.display()), &error);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(doing)? {
        found.push(entry.map_err(doing)?.path());
    }
    found.sort();
    Ok(found)
}

fn remove_folder(folder: &Path) -> Result<()> {
    remove_tree(folder).map_err(|error| Error::io(format!("removing {}", folder.display()), &error))
}

/// Whether a shim holds the container: it has the lock for as long as it lives.
fn has_shim(folder: &Path) -> bool {
    let Ok(file) = fs::File::open(folder.join(LOCK)) else { return false };
    flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
}

/// A shim whose container was killed writes down how that ended, into the folder that is to go.
fn wait_for_end(folder: &Path) {
    for _ in 0..500 {
        if !has_shim(folder) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A shim that is just starting the container has written down so in a moment.
fn wait_for_start(folder: &Path) -> Option<Started> {
    for _ in 0..500 {
        if let Ok(started) = load(&folder.join(STARTED)) {
            return Some(started);
        }
        if !has_shim(folder) {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}
