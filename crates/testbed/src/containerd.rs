//! A handle of a running containerd without Kubernetes, for tests.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use crate::assets::{Programs, RuntimeAssets};
use crate::cache::Cache;
use crate::error::Error;
use crate::event::{Event, RuntimeEndpoints};
use crate::lifeline::{Lifeline, Start};
use crate::monitor::InstanceSpec;

/// The timeout of the start.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A running containerd with a pod network and the images [`BUSYBOX`](crate::BUSYBOX) and [`PAUSE`](crate::PAUSE). It is
/// in namespaces of its own; when they end, for whichever reason, all containers end, too.
///
/// The launcher restarts containerd when it ends, so that a test can kill it.
#[derive(Debug)]
pub struct Containerd {
    endpoints: RuntimeEndpoints,
    dir: PathBuf,
    assets: RuntimeAssets,
    lifeline: Lifeline,
}

impl Containerd {
    /// Starts one in a temporary folder and waits until it is ready.
    pub async fn start() -> Result<Self, Error> {
        Self::start_in(None).await
    }

    /// The same in this folder, which must be empty or not exist.
    pub async fn start_in(dir: Option<PathBuf>) -> Result<Self, Error> {
        let cache = Cache::of_user()?;
        if !nix::unistd::geteuid().is_root() {
            return Err(Error::NotRoot);
        }
        let assets = RuntimeAssets::find(&cache)?;
        let spec = InstanceSpec {
            dir,
            programs: Programs::Containerd(assets.clone()),
            apiserver_flags: Vec::new(),
            controllers_flags: Vec::new(),
            nodes: 1,
            images: Vec::new(),
            kept_logs: cache.logs(),
        };
        let (mut lifeline, mut events) = Lifeline::start(None, &spec)?;
        let start = Start { what: "the start of containerd", timeout: TIMEOUT, logs: cache.logs() };
        let ready = |event| if let Event::RuntimeReady(endpoints) = event { Some(endpoints) } else { None };
        let (endpoints, dir) = lifeline.wait(&mut events, start, |_| {}, ready).await?;
        Ok(Self { endpoints, dir, assets, lifeline })
    }

    /// How to reach it.
    pub fn endpoints(&self) -> &RuntimeEndpoints {
        &self.endpoints
    }

    /// Its socket, as flags have it.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.endpoints.socket.display())
    }

    /// Its folder, which the monitor removes at the end; its logs are in `logs` there.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A command of containerd's client, in the namespace of pods.
    pub fn ctr(&self) -> Command {
        let mut ctr = Command::new(&self.assets.ctr);
        ctr.arg("--address").arg(&self.endpoints.socket).args(["--namespace", "k8s.io"]);
        ctr
    }

    /// The process of containerd itself, as this process sees it.
    pub fn process(&self) -> Option<i32> {
        let config = self.dir.join("containerd.toml");
        let entries = std::fs::read_dir("/proc").ok()?;
        entries.flatten().find_map(|entry| {
            let id: i32 = entry.file_name().to_str()?.parse().ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let mut words = line.split(|byte| *byte == 0);
            let is_it = words.next()?.ends_with(b"/containerd")
                && words.any(|word| word == config.as_os_str().as_encoded_bytes());
            is_it.then_some(id)
        })
    }

    /// A command that runs a program in its namespaces, where it sees the mounts that containerd sees. The program ends
    /// with containerd's namespaces at the latest, not with the command.
    pub fn enter(&self, program: &std::process::Command) -> Option<std::process::Command> {
        let mut enter = std::process::Command::new("nsenter");
        enter.args(["--target", &self.process()?.to_string(), "--mount", "--pid", "--"]);
        enter.arg(program.get_program()).args(program.get_args());
        Some(enter)
    }

    /// Stops it and waits until its monitor has removed it.
    pub async fn stop(mut self) -> Result<(), Error> {
        if self.lifeline.stop().await?.success() {
            return Ok(());
        }
        let reason = String::from("its process could not clean up");
        Err(Error::Gone { reason, logs: self.dir.join("logs") })
    }
}
