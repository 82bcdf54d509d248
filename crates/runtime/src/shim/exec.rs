//! A command in a container that runs.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, dup2_stderr, dup2_stdin, dup2_stdout};

use super::failure::{Doing as _, Failure, Result, fail};
use super::files::{Started, load};
use super::identity::Identity;
use super::init::{execute, join, open_cgroups, restrict, start_over};
use super::spec::{PidSpec, ProcessSpec, Spec};
use super::supervise::start_of;
use super::{SPEC, STARTED};
use crate::sys;

/// The exit code of a command that could not be run, as shells have it.
const NOT_RUN: u8 = 127;
/// The directory of a container's terminals.
const PTMX: &str = "/dev/pts/ptmx";

/// Runs a command in the container whose folder this is. Standard input, output and error are the command's, unless it
/// gets a terminal.
pub(super) fn run(folder: &Path, command: impl Iterator<Item = OsString>, terminal: bool) -> ExitCode {
    let command: Vec<String> = command.map(|argument| argument.to_string_lossy().into_owned()).collect();
    match start(folder, command, terminal) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(NOT_RUN)
        }
    }
}

fn start(folder: &Path, command: Vec<String>, terminal: bool) -> Result<u8> {
    let spec: Spec = load(&folder.join(SPEC)).doing("reading what runs")?;
    let started: Started = load(&folder.join(STARTED)).doing("reading what runs")?;
    let target = Pid::from_raw(started.pid);
    let namespaces = open_namespaces(target)?;
    // Only after they were opened: from then on no other process may use them.
    if start_of(target) != Some(started.pid_start) {
        return fail("entering the container", "it has ended");
    }
    if !matches!(spec.namespaces.pid, PidSpec::Host) {
        let pid = File::open(format!("/proc/{target}/ns/pid")).doing("opening a namespace")?;
        setns(pid, CloneFlags::CLONE_NEWPID).doing("entering the process namespace")?;
    }
    let cgroups = open_cgroups(&spec.cgroup.join_files)?;
    let single_threaded = sys::SingleThreaded::check().doing("forking")?;
    // All before forking: only the forked process is in the pid namespace, and a process that is in there and may trace
    // it must not find the node's files by way of it.
    for (namespace, kind) in namespaces {
        setns(namespace, kind).doing("entering the container")?;
    }
    if terminal {
        connect_terminal()?;
    }
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    signals.add(Signal::SIGTERM);
    signals.thread_block().doing("holding signals back")?;
    match single_threaded.fork().doing("forking")? {
        ForkResult::Child => {
            let joined = join(cgroups);
            let failure = match joined {
                Ok(()) => become_command(spec.process, command, terminal),
                Err(failure) => failure,
            };
            eprintln!("{failure}");
            std::process::exit(i32::from(NOT_RUN))
        }
        ForkResult::Parent { child } => {
            drop(cgroups);
            wait(child, &signals)
        }
    }
}

/// Waits for the command. On a termination request, kills the command and all processes of its session.
fn wait(child: Pid, signals: &SigSet) -> Result<u8> {
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, code)) => return Ok(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
            Ok(WaitStatus::Signaled(_, signal, _)) => {
                return Ok(u8::try_from(128 + signal as i32).unwrap_or(u8::MAX));
            }
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno).doing("waiting for the command"),
        }
        if signals.wait().doing("waiting for the command")? == Signal::SIGTERM {
            let _ = killpg(child, Signal::SIGKILL);
            let _ = kill(child, Signal::SIGKILL);
        }
    }
}

fn open_namespaces(target: Pid) -> Result<Vec<(OwnedFd, CloneFlags)>> {
    // The file system last: with it the machine's own files are out of sight.
    let kinds = [
        ("cgroup", CloneFlags::CLONE_NEWCGROUP),
        ("net", CloneFlags::CLONE_NEWNET),
        ("ipc", CloneFlags::CLONE_NEWIPC),
        ("uts", CloneFlags::CLONE_NEWUTS),
        ("mnt", CloneFlags::CLONE_NEWNS),
    ];
    let mut opened = Vec::with_capacity(kinds.len());
    for (name, kind) in kinds {
        let path = PathBuf::from(format!("/proc/{target}/ns/{name}"));
        let file = File::open(&path).doing(format_args!("opening the namespace {}", path.display()))?;
        opened.push((OwnedFd::from(file), kind));
    }
    Ok(opened)
}

fn become_command(mut process: ProcessSpec, command: Vec<String>, terminal: bool) -> Failure {
    process.args = command;
    if terminal && !process.env.iter().any(|variable| variable.starts_with("TERM=")) {
        process.env.push("TERM=xterm".to_owned());
    }
    let enter = || -> Result<String> {
        start_over()?;
        let identity = Identity::of(&process)?;
        if terminal {
            take_terminal(&identity)?;
        }
        // A client that stops waiting kills our parent.
        restrict(&process, &identity, true)?;
        Ok(identity.home)
    };
    match enter().and_then(|home| execute::<Failure>(&process, &home)) {
        Ok(failure) | Err(failure) => failure,
    }
}

/// Makes a terminal in the container, whose programs then find it by its name. The agent takes its end by its number, and
/// answers; from then on the other end is standard input, output and error.
fn connect_terminal() -> Result<()> {
    let (ours, other) = sys::open_terminal(Path::new(PTMX)).doing("making a terminal")?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", ours.as_raw_fd()).and_then(|()| out.flush()).doing("offering the terminal")?;
    std::io::stdin().read_exact(&mut [0]).doing("waiting for the agent to take the terminal")?;
    dup2_stdin(&other).doing("connecting the terminal")?;
    dup2_stdout(&other).doing("connecting the terminal")?;
    dup2_stderr(&other).doing("connecting the terminal")
}

/// Makes the terminal on standard input that of the session, and of the user.
fn take_terminal(identity: &Identity) -> Result<()> {
    let stdin = std::io::stdin();
    rustix::process::ioctl_tiocsctty(&stdin).doing("taking the terminal")?;
    let (user, none) = (Some(nix::unistd::Uid::from_raw(identity.uid)), None);
    nix::unistd::fchown(&stdin, user, none).doing("giving the terminal to the user")
}
