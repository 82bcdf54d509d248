//! The process that outlives the owner of a cluster just long enough to remove the cluster.
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

/// The owner writes this to the pipe when the logs need not be kept.
pub(crate) const DISCARD: &str = "discard\n";
/// The path of a Unix socket has at most 107 bytes; the sockets are in the cluster's folder.
const LONGEST_FOLDER: usize = 90;

/// What the monitor starts, as the owner passes it on the command line.
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

/// Starts a cluster, and removes it when the owner closes its pipe.
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
        // The slot of that cluster stays taken; this cluster takes another.
        emit(&Event::Step(format!("could not remove what a dead cluster left: {}", full_text(&error))));
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

/// A descriptor from which the signals that terminate a process are read, so that the cluster is removed first.
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

/// The cluster's first process: process 1 of its namespaces, or the launcher if namespaces are not permitted.
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
    // A control plane needs no namespaces; without them the launcher ends its processes when the monitor ends.
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

/// Whether this process may make namespaces. It tries with a UTS namespace, which changes nothing.
fn may_make_namespaces() -> bool {
    unshare(CloneFlags::CLONE_NEWUTS).is_ok()
}

/// Runs `spawn` so that it starts the first process of a new PID namespace; later processes start in the current one
/// again.
fn in_new_pid_namespace<T>(spawn: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let path = Path::new("/proc/self/ns/pid");
    let own = File::open(path).doing("open", path)?;
    unshare(CloneFlags::CLONE_NEWPID).map_err(system("make a PID namespace"))?;
    let spawned = spawn();
    setns(own, CloneFlags::CLONE_NEWPID).map_err(system("return to the own PID namespace"))?;
    spawned
}

/// Passes on the events of the cluster until the cluster ends, the owner closes its pipe, or a signal arrives. Returns
/// whether the owner wrote [`DISCARD`].
fn watch(cluster: &mut First, signals: &SignalFd) -> bool {
    let stdin = io::stdin();
    let mut received = Vec::new();
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
                Ok(0) | Err(_) => return received == DISCARD.as_bytes(),
                Ok(length) if received.len() < DISCARD.len() => received.extend_from_slice(&buffer[..length]),
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
    // When the owner has ended, standard input is closed, which `watch` notices.
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}

/// Kills the cluster and waits until its processes have ended. Without namespaces all are in the process group of the
/// first.
fn end(mut cluster: First, instance: &Instance) -> Result<(), Error> {
    if let Some(first) = instance.first {
        first.kill(&instance.dir);
    }
    // An error means that the process has ended already.
    let _ = cluster.process.kill();
    cluster.process.wait().map_err(|source| Error::System { doing: "wait for the cluster", source })?;
    Ok(())
}
