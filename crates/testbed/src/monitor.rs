//! The process that outlives whoever asked for a cluster, just long enough to remove it.
//!
//! The owner holds a pipe to it. When the pipe closes, because the owner is done or because it was killed, the
//! monitor kills the cluster's process 1 and removes what has a name: cgroups, bridge, folder, slot. When the monitor
//! itself is killed, process 1 dies with it and `testbed clean` (or the next start) removes the rest.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use serde::{Deserialize, Serialize};

use crate::assets::Programs;
use crate::error::{Error, IoContext as _, full_text};
use crate::event::{Event, emit};
use crate::image::ProgramImage;
use crate::instance::Instance;
use crate::process::Process;
use crate::slot::Slot;
use crate::{cgroup, leftovers, link};

/// What the owner writes when it is done and the logs are of no interest.
pub(crate) const DISCARD: &str = "discard\n";
/// A socket's path has room for 107 bytes; ours is in the cluster's folder.
const LONGEST_FOLDER: usize = 90;

/// What is asked for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct InstanceSpec {
    pub(crate) dir: Option<PathBuf>,
    pub(crate) programs: Programs,
    pub(crate) apiserver_flags: Vec<String>,
    pub(crate) controllers_flags: Vec<String>,
    pub(crate) nodes: u8,
    pub(crate) images: Vec<ProgramImage>,
    pub(crate) kept_logs: PathBuf,
}

/// Keeps one cluster.
pub(crate) fn run(spec: &str) -> ExitCode {
    match monitor(spec) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            emit(&Event::Failed(full_text(&error)));
            ExitCode::FAILURE
        }
    }
}

fn monitor(spec: &str) -> Result<(), Error> {
    let spec: InstanceSpec =
        serde_json::from_str(spec).map_err(|source| Error::Encoding { what: "the instance spec", source })?;
    // Ctrl-C in the owner's terminal is for the owner.
    nix::unistd::setsid().map_err(system("leave the terminal"))?;
    let signals = blocked_signals()?;
    if let Err(error) = leftovers::clean() {
        // Its number stays taken; ours is another.
        emit(&Event::Step(format!("a dead cluster's leftovers resist: {}", full_text(&error))));
    }
    let mut slot = Slot::take()?;
    let mut instance = new_instance(&spec, slot.number())?;
    slot.record(&instance)?;
    emit(&Event::Placed { dir: instance.dir.clone(), slot: instance.slot });
    let discards_logs = match start(&instance) {
        Ok(mut cluster) => {
            instance.first = Process::of(cluster.process.id());
            slot.record(&instance)?;
            let discards_logs = watch(&mut cluster, &signals);
            end(cluster, &instance)?;
            discards_logs
        }
        Err(error) => {
            emit(&Event::Failed(full_text(&error)));
            false
        }
    };
    if !discards_logs {
        emit(&Event::LogsKept(leftovers::keep_logs(&instance, &spec.kept_logs)?));
    }
    leftovers::remove(&instance)?;
    slot.release()
}

fn system(doing: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::System { doing, source: errno.into() }
}

/// Signals that ask for an end arrive as something to read, so that the end is an orderly one.
fn blocked_signals() -> Result<SignalFd, Error> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block().map_err(system("block signals"))?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC).map_err(system("listen for signals"))
}

fn new_instance(spec: &InstanceSpec, slot: u8) -> Result<Instance, Error> {
    let dir = spec
        .dir
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join(format!("plumb-testbed-{slot}-{}", std::process::id())));
    let dir = std::path::absolute(&dir).doing("find", &dir)?;
    if dir.starts_with("/run") || dir.starts_with("/var/run") {
        return Err(Error::HiddenFolder(dir));
    }
    if dir.as_os_str().len() > LONGEST_FOLDER {
        return Err(io::Error::from(io::ErrorKind::InvalidFilename)).doing("put a socket into", &dir);
    }
    let dir_was_given = dir.is_dir();
    if dir_was_given && fs::read_dir(&dir).doing("list", &dir)?.next().is_some() {
        return Err(io::Error::from(io::ErrorKind::DirectoryNotEmpty)).doing("use", &dir);
    }
    Ok(Instance {
        slot,
        dir,
        dir_was_given,
        first: None,
        programs: spec.programs.clone(),
        apiserver_flags: spec.apiserver_flags.clone(),
        controllers_flags: spec.controllers_flags.clone(),
        nodes: spec.nodes,
        images: spec.images.clone(),
    })
}

/// The cluster's first process: process 1 of its namespaces, or the launcher where there may be none.
struct First {
    process: Child,
    output: ChildStdout,
}

fn start(instance: &Instance) -> Result<First, Error> {
    let logs = instance.logs();
    fs::create_dir_all(&logs).doing("create", &logs)?;
    instance.write()?;
    if let Some(runtime) = instance.programs.runtime() {
        cgroup::create(&instance.cgroup())?;
        for number in 2..=instance.nodes {
            cgroup::create(&instance.node_cgroup(number))?;
        }
        link::create(instance, &runtime.busybox)?;
    }
    let program = std::env::current_exe().doing("find", "the own program")?;
    let log = logs.join("testbed.log");
    let mut command = Command::new(&program);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(File::create(&log).doing("create", &log)?).process_group(0);
    // A control plane can do without namespaces; its launcher then ends its processes when the monitor is gone.
    let mut process = if instance.has_node() || may_make_namespaces() {
        command.arg("init").arg(&instance.dir);
        in_new_pid_namespace(|| command.spawn().doing("run", &program))?
    } else {
        command.arg("launch").arg("--lifeline").arg(&instance.dir);
        command.spawn().doing("run", &program)?
    };
    match process.stdout.take() {
        Some(output) => Ok(First { process, output }),
        None => Err(io::Error::from(io::ErrorKind::BrokenPipe)).doing("listen to", &program),
    }
}

/// Whether this process may make namespaces: asked by making one that changes nothing.
fn may_make_namespaces() -> bool {
    unshare(CloneFlags::CLONE_NEWUTS).is_ok()
}

/// Lets `spawn` start the first process of a new PID namespace; later ones are started in our own again.
fn in_new_pid_namespace<T>(spawn: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let path = Path::new("/proc/self/ns/pid");
    let own = File::open(path).doing("open", path)?;
    unshare(CloneFlags::CLONE_NEWPID).map_err(system("make a PID namespace"))?;
    let spawned = spawn();
    setns(own, CloneFlags::CLONE_NEWPID).map_err(system("return to the own PID namespace"))?;
    spawned
}

/// Passes on what the cluster says until it ends, the owner leaves, or a signal asks for the end. Whether the owner
/// said that the logs are of no interest.
fn watch(cluster: &mut First, signals: &SignalFd) -> bool {
    let stdin = io::stdin();
    let mut said = Vec::new();
    loop {
        let mut fds = [
            PollFd::new(stdin.as_fd(), PollFlags::POLLIN),
            PollFd::new(cluster.output.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            Err(_) => return false,
            Ok(_) => {}
        }
        let [owner, output, signal] = fds.map(|fd| fd.any().unwrap_or(true));
        let mut buffer = [0; 4096];
        if output {
            match cluster.output.read(&mut buffer) {
                Ok(0) | Err(_) => return false,
                Ok(length) => pass_on(&buffer[..length]),
            }
        }
        if owner {
            match nix::unistd::read(stdin.as_fd(), &mut buffer) {
                Ok(0) | Err(_) => return said == DISCARD.as_bytes(),
                Ok(length) if said.len() < DISCARD.len() => said.extend_from_slice(&buffer[..length]),
                Ok(_) => {}
            }
        }
        if signal {
            return false;
        }
    }
}

fn pass_on(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    // An owner that is gone shows on standard input.
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}

/// Kills the cluster and waits until it is dead. Where there is no namespace, all are in the group of the first.
fn end(mut cluster: First, instance: &Instance) -> Result<(), Error> {
    if let Some(first) = instance.first {
        first.kill(&instance.dir);
    }
    // Already dead is as good.
    let _ = cluster.process.kill();
    cluster.process.wait().map_err(|source| Error::System { doing: "wait for the cluster", source })?;
    Ok(())
}
