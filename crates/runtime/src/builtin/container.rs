//! A container's way: made, started, looked after, ended, removed.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nix::sys::signal::Signal;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::timeout;

use super::client;
use super::guard::GroupGuard;
use super::life::{Life, lost};
use super::pressure::Hold;
use super::specify::{Parts, device_rules, linux, specify};
use super::state::{ContainerEntry, ContainerRecord, State, WatchedContainer};
use crate::cgroup::Notification;
use crate::error::{Error, Result};
use crate::shim::{EXIT, Exit, ROOT, SPEC, ShimCommand, ShimResponse, StartReport, load, store};
use crate::types::{
    ContainerChange, ContainerConfig, ContainerId, ExecOutput, ImageMount, SandboxId, SandboxState,
};
use crate::untrusted::remove_tree;

pub(super) const RECORD: &str = "container.json";
pub(super) const FOLDER: &str = "containers";
/// The timeout after SIGKILL. Processes exit on the CPU time of their pod, whose quota still holds: at 10m, freeing 1 GiB
/// takes 15 seconds. The shim then waits up to 30 seconds for attached clients that have not read all output.
const GONE_AFTER_KILL: Duration = Duration::from_mins(2);
/// The longest output of a command; the rest is dropped.
const LONGEST_OUTPUT: usize = 16 << 20;

impl State {
    pub(super) fn make_container(
        &self,
        sandbox_id: &SandboxId,
        config: ContainerConfig,
    ) -> Result<ContainerId> {
        let sandbox = self.sandbox(sandbox_id).ok_or_else(|| Error::no_sandbox(sandbox_id.as_str()))?;
        let sandbox_record = sandbox.record.lock().clone();
        if sandbox_record.state != SandboxState::Ready {
            return Err(Error::FailedPrecondition(format!("sandbox {sandbox_id} is not ready")));
        }
        let resources = linux(&config.resources)?.clone();
        let image = self.images.find(&config.image)?.ok_or_else(|| Error::no_image(&config.image))?;
        let find =
            |mount: &ImageMount| self.images.find(&mount.image)?.ok_or_else(|| Error::no_image(&mount.image));
        let image_volumes = config.image_mounts.iter().map(find).collect::<Result<Vec<_>>>()?;
        let notifications = self.two_notifications();
        let now = Timestamp::now();
        let id = ContainerId::from(self.naming.id(&format!(
            "{sandbox_id} {} {} {now} {}",
            config.meta.name, config.meta.attempt, notifications.0
        )));
        let folder = self.folder.join(FOLDER).join(id.as_str());
        let meta = &sandbox_record.config.meta;
        let group = self.tree.container(sandbox_record.config.class, &meta.uid, id.as_str());
        let log_path = match (&sandbox_record.config.log_directory, &config.log_path) {
            (Some(directory), Some(path)) => Some(directory.join(path)),
            _ => None,
        };
        let parts = Parts {
            config: &config,
            image: &image,
            image_volumes: &image_volumes,
            snapshots: &self.images.snapshots(),
            sandbox: &sandbox_record,
            sandbox_folder: &sandbox.folder,
            folder: &folder,
            group: &group,
            log: log_path.as_deref(),
            pid_target: self.pid_target(sandbox_id, &config)?,
        };
        let spec = specify(&parts)?;
        let stop_signal = [config.stop_signal.clone().unwrap_or_default(), image.config.stop_signal.clone()]
            .into_iter()
            .find(|signal| !signal.is_empty())
            .unwrap_or_else(|| "SIGTERM".to_owned());
        signal_named(&stop_signal)?;
        let devices = if config.security.privileged { None } else { Some(device_rules(&config)?) };
        let record = ContainerRecord {
            id: id.clone(),
            sandbox: sandbox_id.clone(),
            image_id: image.id.clone(),
            image_volumes: image_volumes.iter().map(|image| image.id.clone()).collect(),
            created_at: now,
            log_path,
            stop_signal,
            config,
        };
        let (whose, around) = ((sandbox_id.clone(), Some(id.clone())), Some(sandbox.guard.clone()));
        let hold = Hold::load(&folder);
        let held = Some(hold.clone());
        let entry = Arc::new(ContainerEntry {
            guard: GroupGuard::of(self.context(), &folder, &group, whose, notifications, around, held),
            hold,
            folder,
            group,
            record,
            life: watch::Sender::new(Life::Created),
            notification: notifications.0,
            turn: tokio::sync::Mutex::default(),
        });
        {
            let mut pods = self.pods.lock();
            let same = |other: &&Arc<ContainerEntry>| {
                other.record.sandbox == *sandbox_id && other.record.config.meta == entry.record.config.meta
            };
            if let Some(there) = pods.containers.values().find(same) {
                return Err(Error::AlreadyExists { what: "container", id: there.record.id.to_string() });
            }
            pods.containers.insert(id.clone(), entry.clone());
        }
        let make = || -> Result<()> {
            let doing = |error: io::Error| Error::io("making the container's folder", &error);
            for part in ["upper", "work", ROOT] {
                fs::create_dir_all(entry.folder.join(part)).map_err(doing)?;
            }
            if let Some(folder) = entry.record.log_path.as_deref().and_then(Path::parent) {
                fs::create_dir_all(folder).map_err(doing)?;
            }
            entry.group.create()?;
            entry.group.forbid_swap()?;
            entry.group.set(&resources)?;
            if let Some(rules) = &devices {
                entry.group.allow_devices(rules)?;
            }
            store(&entry.folder.join(SPEC), &spec, false).map_err(doing)?;
            // Last: the record makes the container exist.
            store(&entry.folder.join(RECORD), &entry.record, false).map_err(doing)
        };
        if let Err(error) = make() {
            if let Err(also) = self.clear_container(&entry) {
                tracing::warn!(container = %id, error = %also, "what is left of a container could not be removed");
            }
            self.pods.lock().containers.remove(&id);
            return Err(error);
        }
        self.emit(&entry, ContainerChange::Created);
        Ok(id)
    }

    /// The first process of the container whose pid namespace another one joins.
    fn pid_target(&self, sandbox: &SandboxId, config: &ContainerConfig) -> Result<Option<(i32, u64)>> {
        let Some(id) = &config.pid_target else { return Ok(None) };
        let target = self.container(id).filter(|entry| entry.record.sandbox == *sandbox);
        let target = target.ok_or_else(|| Error::no_container(id.as_str()))?;
        let life = target.life.borrow();
        let started = life.started().filter(|_| life.is_running());
        let started = started.ok_or_else(|| {
            Error::FailedPrecondition(format!(
                "container {id}, whose pid namespace is to be joined, is not running"
            ))
        })?;
        Ok(Some((started.pid, started.pid_start)))
    }

    pub(super) async fn start(self: &Arc<Self>, entry: &Arc<ContainerEntry>) -> Result<()> {
        let _turn = entry.turn.lock().await;
        if !matches!(*entry.life.borrow(), Life::Created) {
            return Err(Error::FailedPrecondition(format!(
                "container {} was started before",
                entry.record.id
            )));
        }
        let doing = |error: io::Error| Error::io("running the shim", &error);
        let mut child = self.shim("run", &entry.folder).stdout(Stdio::piped()).spawn().map_err(doing)?;
        let mut said = Vec::new();
        if let Some(stdout) = &mut child.stdout {
            stdout.read_to_end(&mut said).await.map_err(doing)?;
        }
        match serde_json::from_slice(&said) {
            Ok(StartReport::Started { started, warnings }) => {
                for warning in warnings {
                    self.warned_about_oom_score.call_once(|| tracing::warn!("{warning}"));
                }
                entry.life.send_replace(Life::Running(started));
                self.watch_container(entry, Some(child));
                self.emit(entry, ContainerChange::Started);
                Ok(())
            }
            Ok(StartReport::Failed(why)) => {
                let exit = load(&entry.folder.join(EXIT)).unwrap_or_else(|_| Exit {
                    code: 128,
                    oom_killed: false,
                    at: Timestamp::now(),
                    reason: Some("StartError".into()),
                    message: why.clone(),
                });
                let _ = child.wait().await;
                leave_group(entry).await;
                entry.life.send_replace(Life::Exited(None, exit));
                self.emit(entry, ContainerChange::Stopped);
                Err(Error::failed(format!("starting container {}", entry.record.id), why))
            }
            Err(_) => {
                let status = child.wait().await.map_err(doing)?;
                let why =
                    format!("the shim {} said nothing and ended with {status}", self.shim.path().display());
                leave_group(entry).await;
                entry.life.send_replace(Life::Exited(None, lost(&why)));
                self.emit(entry, ContainerChange::Stopped);
                Err(Error::failed(format!("starting container {}", entry.record.id), why))
            }
        }
    }

    pub(super) fn shim(&self, mode: &str, folder: &Path) -> Command {
        let mut command = Command::from(self.shim.command());
        command.arg(mode).arg(folder).stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Waits for the end of a running container.
    pub(super) fn watch_container(self: &Arc<Self>, entry: &Arc<ContainerEntry>, child: Option<Child>) {
        self.listen(entry);
        // The runtime may end before the container does.
        let (state, entry) = (Arc::downgrade(self), entry.clone());
        let child = Arc::new(tokio::sync::Mutex::new(child));
        // Without this task the end of a container would never be reported.
        tokio::spawn(plumb_supervise::process().finish_one_of("container-watch", move || {
            let (state, entry, child) = (state.clone(), entry.clone(), child.clone());
            async move {
                let answer = client::wait(&entry.folder).await;
                let exit = match answer {
                    Ok(ShimResponse::Exited(exit)) => exit,
                    // It may have exited before the request.
                    other => load(&entry.folder.join(EXIT)).unwrap_or_else(|_| {
                        let _ = entry.group.kill();
                        lost(&match other {
                            Ok(answer) => format!("the shim answered {answer:?}"),
                            Err(error) => format!("the shim is gone: {error}"),
                        })
                    }),
                };
                if let Some(child) = &mut *child.lock().await {
                    let _ = child.wait().await;
                }
                let state = state.upgrade();
                if let Some(state) = &state {
                    if let Some(watched) = state.watched.lock().get_mut(&entry.notification) {
                        watched.emit_oom_kills(&state.events);
                    }
                    state.stop_notifications(&entry);
                }
                leave_group(&entry).await;
                let ended = entry.life.send_if_modified(|life| match life {
                    Life::Running(started) => {
                        *life = Life::Exited(Some(started.clone()), exit);
                        true
                    }
                    _ => false,
                });
                if let Some(state) = state.filter(|_| ended) {
                    state.emit(&entry, ContainerChange::Stopped);
                }
            }
        }));
    }

    fn listen(&self, entry: &ContainerEntry) {
        let watched = WatchedContainer {
            id: entry.record.id.clone(),
            sandbox: entry.record.sandbox.clone(),
            group: entry.group.clone(),
            kills: entry.group.oom_kills().unwrap_or(0),
        };
        self.watched.lock().insert(entry.notification, watched);
        if let Err(error) = self.notifier.add(&entry.group, Notification(entry.notification)) {
            tracing::warn!(container = %entry.record.id, %error, "OOM events of the container will not be reported");
        }
    }

    fn stop_notifications(&self, entry: &ContainerEntry) {
        self.notifier.remove(Notification(entry.notification));
        self.watched.lock().remove(&entry.notification);
        entry.guard.effects().stop_notifications();
        self.memory_watches.remove(&entry.record.id, &self.notifier);
    }

    /// Sends a container its stop signal, and SIGKILL after the grace period.
    pub(super) async fn stop(&self, entry: &ContainerEntry, grace: Duration) -> Result<()> {
        let mut life = entry.life.subscribe();
        if !life.borrow().is_running() {
            return Ok(());
        }
        if !grace.is_zero() {
            let signal = signal_named(&entry.record.stop_signal)?;
            // A shim that does not answer is dealt with below.
            let _ =
                client::send(&entry.folder, ShimCommand::Signal { number: signal as i32, all: false }).await;
            if timeout(grace, life.wait_for(|life| !life.is_running())).await.is_ok() {
                return Ok(());
            }
        }
        // Not by way of the shim: it may not answer, and it does not lift the quota that delays the exit.
        let group = entry.group.clone();
        let killed = tokio::task::spawn_blocking(move || group.kill()).await;
        killed.map_err(|error| Error::failed("killing a container", error))??;
        match timeout(GONE_AFTER_KILL, life.wait_for(|life| !life.is_running())).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::DeadlineExceeded(format!("container {} does not end", entry.record.id))),
        }
    }

    pub(super) async fn remove(&self, entry: &Arc<ContainerEntry>) -> Result<()> {
        let _turn = entry.turn.lock().await;
        self.stop(entry, Duration::ZERO).await?;
        let clear = {
            let (folder, group) = (entry.folder.clone(), entry.group.clone());
            tokio::task::spawn_blocking(move || clear(&folder, &group)).await
        };
        clear.map_err(|error| Error::failed("removing a container", error))??;
        self.stop_notifications(entry);
        entry.life.send_replace(Life::Removed);
        if self.pods.lock().containers.remove(&entry.record.id).is_some() {
            self.emit(entry, ContainerChange::Deleted);
        }
        Ok(())
    }

    pub(super) fn clear_container(&self, entry: &ContainerEntry) -> Result<()> {
        self.stop_notifications(entry);
        clear(&entry.folder, &entry.group)
    }

    pub(super) async fn exec(
        &self,
        entry: &ContainerEntry,
        command: &[String],
        limit: Option<Duration>,
    ) -> Result<ExecOutput> {
        if !entry.life.borrow().is_running() {
            return Err(Error::FailedPrecondition(format!("container {} is not running", entry.record.id)));
        }
        let doing = |error: io::Error| Error::io("running the shim", &error);
        let mut shim = self.shim("exec", &entry.folder);
        shim.args(command).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = shim.spawn().map_err(doing)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let reading = async {
            tokio::join!(keep(stdout, &mut out), keep(stderr, &mut err));
        };
        let status = {
            tokio::pin!(reading);
            let run = async {
                // The command may leave a process running that holds the pipes open: its own end counts.
                tokio::select! {
                    status = child.wait() => {
                        let _ = timeout(Duration::from_millis(100), &mut reading).await;
                        status
                    }
                    () = &mut reading => child.wait().await,
                }
            };
            match limit.filter(|limit| !limit.is_zero()) {
                None => Ok(run.await),
                Some(limit) => timeout(limit, run).await.map_err(|_| limit),
            }
        };
        match status {
            Ok(status) => {
                let exit_code = status.map_err(doing)?.code().unwrap_or(137);
                Ok(ExecOutput { stdout: out, stderr: err, exit_code })
            }
            Err(limit) => {
                // It kills all processes of the command, then exits.
                if let Some(number) = child.id().and_then(|number| i32::try_from(number).ok()) {
                    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(number), Signal::SIGTERM);
                    let _ = timeout(GONE_AFTER_KILL, child.wait()).await;
                }
                Err(Error::DeadlineExceeded(format!("the command took longer than {limit:?}")))
            }
        }
    }
}

/// Reads to the end, and returns the beginning.
async fn keep(from: Option<impl tokio::io::AsyncRead + Unpin>, into: &mut Vec<u8>) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; 8 << 10];
    while let Ok(length) = from.read(&mut buffer).await
        && length > 0
    {
        let left = LONGEST_OUTPUT.saturating_sub(into.len());
        into.extend(&buffer[..length.min(left)]);
    }
}

/// Removes the cgroup of a container that has exited, before the exit is reported. The container may be retained for
/// long, for its logs, and v1 lets no group have less cpu than a child group may have: its pod could not be shrunk.
async fn leave_group(entry: &ContainerEntry) {
    let group = entry.group.clone();
    let deleted = tokio::task::spawn_blocking(move || group.delete()).await;
    if let Ok(Err(error)) = deleted {
        tracing::warn!(container = %entry.record.id, %error, "cannot remove the cgroup of a container that has ended");
    }
}

/// Removes a container's cgroup, with all that is in it, and its folder.
pub(super) fn clear(folder: &Path, group: &crate::cgroup::Group) -> Result<()> {
    group.delete()?;
    remove_tree(folder).map_err(|error| Error::io(format!("removing {}", folder.display()), &error))
}

/// A signal by its name, with or without `SIG`, or by its number.
fn signal_named(name: &str) -> Result<Signal> {
    let upper = name.to_ascii_uppercase();
    let whole = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    let by_number = || name.parse::<i32>().ok().and_then(|number| Signal::try_from(number).ok());
    let by_name = whole.parse::<Signal>().ok();
    by_name.or_else(by_number).ok_or_else(|| Error::InvalidArgument(format!("unknown signal {name:?}")))
}
