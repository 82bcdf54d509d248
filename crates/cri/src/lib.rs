//! A client of the CRI v1 behind the trait of container runtimes: pods run in containerd, CRI-O or another CRI runtime.
//!
//! ```text
//!   node agent ──▶ dyn Runtime ──▶ Cri ──▶ unix socket: runtime.v1.RuntimeService, runtime.v1.ImageService
//!                                   │
//!                                   ├──▶ cgroups of pods and QoS classes: managed here, as by the kubelet
//!                                   └──▶ cgroups of containers: written first in an update, read for actual resources
//! ```
//!
//! All state is in the runtime. An annotation of a sandbox has the configuration that it was created with, an annotation of a
//! container the path of its cgroup, and a label names the cluster, since a runtime may have pods of others. So an agent that
//! restarts, perhaps with another release, finds all that it needs, and no state is lost when the runtime restarts.
//!
//! - [`api`]: the messages, with their field numbers.
//! - `convert`: conversions between the messages and the types of the trait; pure.
//! - `events`: events of containers, from the runtime or from comparing lists.
//! - `updates`: updates of resources, written to cgroups before the runtime confirms them.
//! - [`systemd`]: slices for pods, if the runtime has that cgroup driver.

pub mod api;
mod cgroups;
mod containerd;
mod convert;
mod error;
mod events;
mod hosts;
mod images;
mod load;
mod logs;
mod names;
mod runtime;
mod sandboxes;
mod stats;
pub mod systemd;
mod updates;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use plumb_runtime::cgroup::Layout;
use plumb_runtime::service_nat::ServiceNat;
use plumb_runtime::types::{Event, NamespaceMode, SandboxFilter, SandboxId, SandboxState};
use plumb_runtime::{Error, Result, Runtime as _};
use plumb_supervise::Supervisor;
use tokio::sync::broadcast;
use tokio::task::JoinSet;

use cgroups::Cgroups;
use error::{from_status, is_unimplemented};
use plumb_grpc::Connection;
use sandboxes::Sandboxes;
use systemd::{Systemd, UnitManager};
use updates::Updates;

pub use plumb_grpc::{InvalidEndpoint, socket_path};

/// The timeout of a call, as the kubelet's `--runtime-request-timeout`. The timeouts of commands and grace periods are added to
/// it, and pulls have none.
pub const REQUEST_TIMEOUT: Duration = Duration::from_mins(2);
/// The number of events that a subscriber may be behind.
const EVENTS: usize = 1024;

/// How the cgroups of pods and containers are created. The runtime and the agent must use the same driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// Cgroups are created in the cgroup file system.
    Cgroupfs,
    /// systemd creates them: slices for pods, scopes for containers.
    Systemd,
}

/// The configuration of a client.
#[derive(Clone, Debug)]
pub struct Config {
    /// The runtime's socket: `unix:///PATH`.
    pub endpoint: String,
    /// The socket of its image service; `None` if both services have one socket.
    pub image_endpoint: Option<String>,
    /// The name of this cluster on this machine: the name of the cgroup of all its pods, and the value of the label of its
    /// sandboxes and containers.
    pub cluster: String,
    /// The directory of files that pods mount, such as `/etc/hosts`.
    pub folder: PathBuf,
    /// The mount points of the cgroup controllers.
    pub cgroups: Layout,
    /// The cgroup driver of a runtime that does not report its driver.
    pub cgroup_driver: CgroupDriver,
    /// The timeout of calls; usually [`REQUEST_TIMEOUT`].
    pub request_timeout: Duration,
}

/// A runtime behind a CRI socket. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Cri {
    state: Arc<State>,
    /// The background tasks, which are aborted when the last clone is dropped.
    _tasks: Arc<JoinSet<()>>,
}

/// The state that calls and background tasks share.
#[derive(Debug)]
pub(crate) struct State {
    runtime: Connection,
    images: Connection,
    cluster: String,
    folder: PathBuf,
    cgroups: Cgroups,
    sandboxes: Sandboxes,
    updates: Updates,
    events: broadcast::Sender<Event>,
    /// Whether the runtime lacks `UpdatePodSandboxResources`.
    without_sandbox_update: AtomicBool,
    /// Whether the runtime sends events.
    has_events: AtomicBool,
    /// The NAT rules by which pods reach the API server, if they do.
    service: OnceLock<Arc<ServiceNat>>,
}

impl Cri {
    /// Connects to a runtime, creates the cgroups of the cluster, and follows the runtime's events.
    pub async fn open(config: Config, supervisor: &Supervisor) -> Result<Self> {
        Self::open_with(config, supervisor, Arc::new(Systemd::of_this_machine())).await
    }

    /// Connects like [`open`](Self::open), with another implementation of systemd's unit manager, such as one for tests.
    pub async fn open_with(
        config: Config,
        supervisor: &Supervisor,
        units: Arc<dyn UnitManager>,
    ) -> Result<Self> {
        let socket =
            |endpoint: &str| socket_path(endpoint).map_err(|error| Error::InvalidArgument(error.to_string()));
        let runtime = Connection::new(socket(&config.endpoint)?, config.request_timeout);
        let images = match &config.image_endpoint {
            Some(endpoint) => Connection::new(socket(endpoint)?, config.request_timeout),
            None => runtime.clone(),
        };
        let version: api::VersionResponse = runtime
            .call("/runtime.v1.RuntimeService/Version", api::VersionRequest::default())
            .await
            .map_err(|status| from_status("connecting to the container runtime", "runtime", "", &status))?;
        let driver = cgroup_driver(&runtime).await?.unwrap_or(config.cgroup_driver);
        let cgroups = match driver {
            CgroupDriver::Cgroupfs => Cgroups::cgroupfs(config.cgroups, &config.cluster),
            CgroupDriver::Systemd => Cgroups::systemd(config.cgroups, &config.cluster, units).await?,
        };
        cgroups.create().await?;
        tracing::info!(runtime = version.runtime_name, ?driver, "connected to the container runtime");
        let state = Arc::new(State {
            runtime,
            images,
            updates: Updates::new(&config.folder),
            cluster: config.cluster,
            folder: config.folder,
            cgroups,
            sandboxes: Sandboxes::default(),
            events: broadcast::Sender::new(EVENTS),
            without_sandbox_update: AtomicBool::new(false),
            has_events: AtomicBool::new(false),
            service: OnceLock::new(),
        });
        let mut tasks = JoinSet::new();
        let following = state.clone();
        let logs = state.clone();
        let updated = state.clone();
        tasks.spawn(supervisor.keep("cri-events", move || events::follow(following.clone())));
        tasks.spawn(supervisor.keep("cri-log-rotation", move || logs::rotate(logs.clone())));
        tasks.spawn(supervisor.keep("cri-updates", move || updates::confirm(updated.clone())));
        Ok(Self { state, _tasks: Arc::new(tasks) })
    }

    /// The addresses of the pods that are not in the host network, for [`let_pods_reach`](Self::let_pods_reach).
    pub async fn pod_addresses(&self) -> Result<BTreeMap<Ipv4Addr, SandboxId>> {
        let ready = SandboxFilter { state: Some(SandboxState::Ready), ..SandboxFilter::default() };
        let mut found = BTreeMap::new();
        for sandbox in self.list_sandboxes(&ready).await? {
            let status = match self.sandbox_status(&sandbox.id).await {
                Err(error) if error.is_not_found() => continue,
                status => status?,
            };
            if status.namespaces.network != NamespaceMode::Node {
                found.extend(ipv4(&status.ips).map(|address| (address, sandbox.id.clone())));
            }
        }
        Ok(found)
    }

    /// Lets pods reach the API server: each pod from the creation of its first container until its sandbox is stopped. Further
    /// calls have no effect.
    pub fn let_pods_reach(&self, service: Arc<ServiceNat>) {
        // Setting fails after the first call, whose rules are those of the same pods.
        let _ = self.state.service.set(service);
    }

    /// Removes all sandboxes of this cluster with their containers, and its cgroups.
    pub async fn clear(&self) -> Result<()> {
        for sandbox in self.list_sandboxes(&SandboxFilter::default()).await? {
            self.remove_sandbox(&sandbox.id).await?;
        }
        self.state.cgroups.delete().await?;
        hosts::remove_all(&self.state.folder)
    }
}

fn ipv4(addresses: &[IpAddr]) -> impl Iterator<Item = Ipv4Addr> {
    addresses.iter().filter_map(|address| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    })
}

/// The cgroup driver that a runtime reports (KEP-4033). Older runtimes report none.
async fn cgroup_driver(runtime: &Connection) -> Result<Option<CgroupDriver>> {
    let asked = runtime.call("/runtime.v1.RuntimeService/RuntimeConfig", api::Empty {}).await;
    match asked {
        Ok(api::RuntimeConfigResponse { linux: Some(linux) }) => Ok(Some(match linux.cgroup_driver() {
            api::CgroupDriver::Systemd => CgroupDriver::Systemd,
            api::CgroupDriver::Cgroupfs => CgroupDriver::Cgroupfs,
        })),
        Ok(api::RuntimeConfigResponse { linux: None }) => Ok(None),
        Err(status) if is_unimplemented(&status) => Ok(None),
        Err(status) => Err(from_status("asking for the cgroup driver", "runtime", "", &status)),
    }
}
