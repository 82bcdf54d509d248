//! A handle of a running cluster, for tests.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::Client;
use tokio::sync::mpsc;

use crate::assets::{self, Assets, Programs};
use crate::cache::Cache;
use crate::error::Error;
use crate::event::{Endpoints, Event};
use crate::image::ProgramImage;
use crate::instance::NODES;
use crate::lifeline::{Lifeline, Start};
use crate::monitor::InstanceSpec;
use crate::release::{self, Release};

/// The timeout of the start of a cluster.
const TIMEOUT: Duration = Duration::from_mins(3);

/// Which parts of Kubernetes are started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parts {
    /// etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and containerd: pods run.
    #[default]
    Cluster,
    /// etcd, kube-apiserver and kube-controller-manager: objects are reconciled, nothing runs.
    ControlPlane,
    /// etcd and kube-apiserver: objects stay as they are written. Namespaces are not emptied on deletion, and pods
    /// need no service account.
    ApiServer,
}

/// What to start. `Config::default()` is a whole cluster of one node in a temporary folder.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Which release of Kubernetes.
    pub release: Release,
    /// Which parts.
    pub parts: Parts,
    /// The folder for its files; must be empty or not exist. A temporary one if `None`.
    pub dir: Option<PathBuf>,
    /// Flags for kube-apiserver, after those that the testbed sets: the last of two equal flags takes effect.
    pub apiserver_flags: Vec<String>,
    /// The same for kube-controller-manager.
    pub controllers_flags: Vec<String>,
    /// How many nodes it has; each is called by its number but for the first, `testbed-node`. At least one, at most 16.
    pub nodes: u8,
    /// Whether metrics-server runs, so that `kubectl top` and autoscalers have values. It needs a node.
    pub metrics: bool,
    /// Images of programs of this machine, beside the two that every node has.
    pub images: Vec<ProgramImage>,
    /// The `testbed` program; found beside the running program if `None`.
    pub monitor: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            release: Release::default(),
            parts: Parts::default(),
            dir: None,
            apiserver_flags: Vec::new(),
            controllers_flags: Vec::new(),
            nodes: 1,
            metrics: false,
            images: Vec::new(),
            monitor: None,
        }
    }
}

impl Config {
    /// A whole cluster of the release that `PLUMB_TESTBED_RELEASE` names, for tests that run on any release.
    pub fn from_environment() -> Result<Self, Error> {
        Ok(Self { release: Release::from_environment()?, ..Self::default() })
    }

    /// The given parts in a temporary folder.
    pub fn of(parts: Parts) -> Self {
        Self { parts, ..Self::default() }
    }
}

/// A running cluster. Its monitor removes it when this is dropped, and also when the process that holds this is killed.
#[derive(Debug)]
pub struct Cluster {
    endpoints: Endpoints,
    kubectl: PathBuf,
    dir: PathBuf,
    lifeline: Lifeline,
    events: mpsc::Receiver<Event>,
}

impl Cluster {
    /// Starts a cluster and waits until it is ready.
    pub async fn start(config: Config) -> Result<Self, Error> {
        Self::start_with_progress(config, |_| {}).await
    }

    /// The same; calls `on_step` for each step of the start.
    pub async fn start_with_progress(config: Config, mut on_step: impl FnMut(&str)) -> Result<Self, Error> {
        let cache = Cache::of_user()?;
        if config.parts == Parts::Cluster && !nix::unistd::geteuid().is_root() {
            return Err(Error::NotRoot);
        }
        let mut assets = Assets::find(&cache, config.release, config.parts)?;
        if let Some(node) = assets.node.as_mut().filter(|_| config.metrics) {
            let program = assets::kubernetes_program(&cache, Release::default(), release::METRICS_SERVER)?;
            node.metrics_server = Some(program);
        }
        let kubectl = assets.kubectl.clone();
        if let Some(version) = assets.other_version(config.release) {
            let expected = config.release.version();
            on_step(&format!("KUBEBUILDER_ASSETS has {version}, not Kubernetes {expected}"));
        }
        let spec = InstanceSpec {
            dir: config.dir,
            programs: Programs::Kubernetes(Box::new(assets)),
            apiserver_flags: config.apiserver_flags,
            controllers_flags: config.controllers_flags,
            nodes: config.nodes.clamp(1, NODES),
            images: config.images,
            kept_logs: cache.logs(),
        };
        let (mut lifeline, mut events) = Lifeline::start(config.monitor, &spec)?;
        let start = Start { what: "the start of the cluster", timeout: TIMEOUT, logs: cache.logs() };
        let ready = |event| if let Event::Ready(endpoints) = event { Some(endpoints) } else { None };
        let (endpoints, dir) = lifeline.wait(&mut events, start, on_step, ready).await?;
        Ok(Self { endpoints, kubectl, dir, lifeline, events })
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig_path(&self) -> &Path {
        &self.endpoints.kubeconfig
    }

    /// Everything a client may need to reach the cluster.
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// A kubectl of the cluster's own version.
    pub fn kubectl(&self) -> &Path {
        &self.kubectl
    }

    /// The cluster's folder; its logs are in `logs` there.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The process id of the monitor, which removes the cluster when its owner ends.
    pub fn monitor_id(&self) -> u32 {
        self.lifeline.id()
    }

    /// A client with the administrator's rights.
    pub async fn client(&self) -> Result<Client, Error> {
        crate::install_crypto();
        crate::client::from_kubeconfig(self.kubeconfig_path()).await
    }

    /// Waits until the cluster ends without [`Cluster::stop`], and returns why and where its logs are.
    pub async fn ended(&mut self) -> Error {
        let mut failure = None;
        while let Some(event) = self.events.recv().await {
            match event {
                Event::Failed(why) => failure = Some(why),
                Event::LogsKept(logs) => {
                    let reason = failure.unwrap_or_else(|| String::from("a signal terminated its monitor"));
                    return Error::Gone { reason, logs };
                }
                _ => {}
            }
        }
        let reason = failure
            .unwrap_or_else(|| String::from("its monitor was killed; `testbed clean` removes the rest"));
        Error::Gone { reason, logs: self.dir.join("logs") }
    }

    /// Stops the cluster and waits until its monitor has removed it. Dropping it does the same, but cannot report that
    /// the removal failed; after a panic of the test the monitor keeps the logs.
    pub async fn stop(mut self) -> Result<(), Error> {
        if self.lifeline.stop().await?.success() {
            return Ok(());
        }
        Err(self.ended().await)
    }
}
