//! A client of the CRI v1 behind the trait of container runtimes: pods run in containerd, CRI-O or the like.
//!
//! ```text
//!   node agent ──▶ dyn Runtime ──▶ Cri ──▶ unix socket: runtime.v1.RuntimeService, runtime.v1.ImageService
//!                                   │
//!                                   ├──▶ cgroups of pods and QoS classes: ours, as they are the kubelet's
//!                                   └──▶ cgroups of containers: read, for what is actually applied
//! ```
//!
//! All state is in the runtime. A sandbox carries the configuration that it was made with in an annotation, a container
//! the place of its cgroup, and a label says whose they are, since a runtime may have pods of others. So an agent that
//! starts again, or another release of it, finds all that it needs, and a runtime that starts again loses nothing of ours.
//!
//! - [`api`]: the messages, with their field numbers.
//! - `convert`: between them and the types of the trait; pure.
//! - `events`: what changed since the last list, unless the runtime sends events.
//! - [`systemd`]: slices for pods, where the runtime has that cgroup driver.

pub mod api;
mod cgroups;
mod connection;
mod containerd;
mod convert;
mod error;
mod events;
mod grpc;
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
use connection::Connection;
use error::{is_unimplemented, of_status};
use sandboxes::Sandboxes;
use systemd::{Systemd, UnitManager};
use updates::Updates;

pub use connection::{InvalidEndpoint, socket_path};

/// How long a call may take, as the kubelet's `--runtime-request-timeout`. Pulls, commands and grace periods come on top.
pub const REQUEST_TIMEOUT: Duration = Duration::from_mins(2);
/// How many events a reader may be behind.
const EVENTS: usize = 1024;

/// How the cgroups of pods and containers are made. The runtime and the agent have to have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// By writing to the cgroup file system.
    Cgroupfs,
    /// By systemd: slices for pods, scopes for containers.
    Systemd,
}

/// The configuration of a client.
#[derive(Clone, Debug)]
pub struct Config {
    /// The runtime's socket: `unix:///PATH`.
    pub endpoint: String,
    /// The socket of its image service; `None` is the same.
    pub image_endpoint: Option<String>,
    /// The name of this cluster on this machine: that of the cgroup of all its pods, and the value of the label of all
    /// that is its.
    pub cluster: String,
    /// The directory of files that pods mount, such as `/etc/hosts`.
    pub folder: PathBuf,
    /// Where the cgroup controllers are mounted.
    pub cgroups: Layout,
    /// The cgroup driver of a runtime that does not say which it has.
    pub cgroup_driver: CgroupDriver,
    /// How long a call may take; usually [`REQUEST_TIMEOUT`].
    pub request_timeout: Duration,
}

/// A runtime that is reached over its CRI socket. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Cri {
    state: Arc<State>,
    /// They end with the last clone.
    _tasks: Arc<JoinSet<()>>,
}

/// What calls and background tasks share.
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
    /// The runtime has no `UpdatePodSandboxResources`.
    without_sandbox_update: AtomicBool,
    /// The runtime sends events.
    has_events: AtomicBool,
    /// How pods reach the API server, if they do.
    service: OnceLock<Arc<ServiceNat>>,
}

impl Cri {
    /// Connects to a runtime, creates the cgroups of the cluster, and follows the runtime's events.
    pub async fn open(config: Config, supervisor: &Supervisor) -> Result<Self> {
        Self::open_with(config, supervisor, Arc::new(Systemd::of_this_machine())).await
    }

    /// The same where this manager of units stands for systemd, if the runtime has that cgroup driver.
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
            .map_err(|status| of_status("connecting to the container runtime", "runtime", "", &status))?;
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
        let (following, logs, updated) = (state.clone(), state.clone(), state.clone());
        tasks.spawn(supervisor.keep("cri-events", move || events::follow(following.clone())));
        tasks.spawn(supervisor.keep("cri-log-rotation", move || logs::rotate(logs.clone())));
        tasks.spawn(supervisor.keep("cri-updates", move || updates::confirm(updated.clone())));
        Ok(Self { state, _tasks: Arc::new(tasks) })
    }

    /// The addresses of the pods that run in networks of their own, for [`let_pods_reach`](Self::let_pods_reach).
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

    /// Lets pods reach the API server from now on: each one before its first container is created, until its sandbox is
    /// stopped. The first call counts.
    pub fn let_pods_reach(&self, service: Arc<ServiceNat>) {
        // A second one is that of the same process and the same pods.
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

/// The cgroup driver that a runtime says it has. Older ones do not say.
async fn cgroup_driver(runtime: &Connection) -> Result<Option<CgroupDriver>> {
    let asked = runtime.call("/runtime.v1.RuntimeService/RuntimeConfig", api::Empty {}).await;
    match asked {
        Ok(api::RuntimeConfigResponse { linux: Some(linux) }) => Ok(Some(match linux.cgroup_driver() {
            api::CgroupDriver::Systemd => CgroupDriver::Systemd,
            api::CgroupDriver::Cgroupfs => CgroupDriver::Cgroupfs,
        })),
        Ok(api::RuntimeConfigResponse { linux: None }) => Ok(None),
        Err(status) if is_unimplemented(&status) => Ok(None),
        Err(status) => Err(of_status("asking for the cgroup driver", "runtime", "", &status)),
    }
}
