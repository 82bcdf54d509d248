//! From a forked shim to a container's first process.

use std::ffi::CString;
use std::fs;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl::{set_no_new_privs, set_pdeathsig};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, execve};
use serde::{Deserialize, Serialize};

use super::failure::namespace;
use super::failure::{Doing as _, Failure, Result, fail};
use super::identity::Identity;
use super::root::{self, Sources};
use super::spec::{ProcessSpec, Spec};
use super::{capability, seccomp};
use crate::rootfs::RootFs;
use crate::sys;

/// The messages of the forked process to the shim before it executes the program. The end of the messages means that
/// it has.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum InitMessage {
    Warning(String),
    User(u32, u32, Vec<u32>),
    Failed(String),
}

/// The pipe to the shim.
pub(super) struct InitPipe(pub(super) fs::File);

impl InitPipe {
    pub(super) fn send(&mut self, message: &InitMessage) {
        let mut text = serde_json::to_vec(message).unwrap_or_default();
        text.push(b'\n');
        // The shim may have exited.
        let _ = self.0.write_all(&text);
    }
}

/// The descriptors of standard input, output and error.
pub(super) struct Stdio {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    pub(super) is_terminal: bool,
}

/// Becomes the container's first process; only returns if that failed.
pub(super) fn become_container(spec: &Spec, root: &Path, stdio: &Stdio, pipe: &mut InitPipe) -> Failure {
    match prepare(spec, root, stdio, pipe).and_then(|home| execute::<Never>(&spec.process, &home)) {
        Ok(never) => match never {},
        Err(failure) => failure,
    }
}

enum Never {}

fn prepare(spec: &Spec, root: &Path, stdio: &Stdio, pipe: &mut InitPipe) -> Result<String> {
    start_over()?;
    join(open_cgroups(&spec.cgroup.join_files)?)?;
    set_oom_score(&spec.process, pipe)?;
    let sources = Sources::open(spec)?;
    let shared = [
        (&spec.namespaces.net, CloneFlags::CLONE_NEWNET),
        (&spec.namespaces.ipc, CloneFlags::CLONE_NEWIPC),
        (&spec.namespaces.uts, CloneFlags::CLONE_NEWUTS),
    ];
    for (path, kind) in shared {
        if let Some(path) = path {
            setns(namespace(path)?, kind).doing(format_args!("entering the namespace {}", path.display()))?;
        }
    }
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWCGROUP).doing("making namespaces")?;
    root::enter(spec, sources, root)?;
    connect(stdio)?;
    let identity = Identity::of(&spec.process)?;
    pipe.send(&InitMessage::User(identity.uid, identity.gid, identity.groups.clone()));
    let home = identity.home.clone();
    restrict(&spec.process, &identity, true)?;
    Ok(home)
}

/// A fresh session, with signals as programs expect them.
pub(super) fn start_over() -> Result<()> {
    nix::unistd::setsid().doing("starting a session")?;
    SigSet::empty().thread_set_mask().doing("letting signals through")?;
    sys::restore_signals();
    Ok(())
}

/// Opens the files by which a process joins cgroups.
pub(super) fn open_cgroups(files: &[PathBuf]) -> Result<Vec<(fs::File, &Path)>> {
    let open = |path: &PathBuf| fs::OpenOptions::new().write(true).open(path);
    let mut opened = Vec::with_capacity(files.len());
    for path in files {
        let file = open(path).doing(format_args!("opening the cgroup file {}", path.display()))?;
        opened.push((file, path.as_path()));
    }
    Ok(opened)
}

pub(super) fn join(files: Vec<(fs::File, &Path)>) -> Result<()> {
    for (mut file, path) in files {
        file.write_all(b"0").doing(format_args!("joining the cgroup by {}", path.display()))?;
    }
    Ok(())
}

/// Lowering it below what the shim was started with takes a right that we may not have; then it stays.
fn set_oom_score(process: &ProcessSpec, pipe: &mut InitPipe) -> Result<()> {
    const FILE: &str = "/proc/self/oom_score_adj";
    let Some(score) = process.oom_score_adj else { return Ok(()) };
    match fs::write(FILE, score.to_string()) {
        Err(error) if error.raw_os_error() == Some(Errno::EACCES as i32) => {
            let kept = fs::read_to_string(FILE).unwrap_or_default();
            pipe.send(&InitMessage::Warning(format!(
                "oom_score_adj stays at {} instead of {score}: {error}",
                kept.trim()
            )));
            Ok(())
        }
        done => done.doing("setting oom_score_adj"),
    }
}

pub(super) fn connect(stdio: &Stdio) -> Result<()> {
    if stdio.is_terminal {
        rustix::process::ioctl_tiocsctty(&stdio.stdin).doing("taking the terminal")?;
    }
    dup2_stdin(&stdio.stdin).doing("connecting standard input")?;
    dup2_stdout(&stdio.stdout).doing("connecting standard output")?;
    dup2_stderr(&stdio.stderr).doing("connecting standard error")
}

/// Drops all privileges that the container shall not have. No step that needs them comes after.
pub(super) fn restrict(process: &ProcessSpec, identity: &Identity, dies_with_shim: bool) -> Result<()> {
    for limit in &process.rlimits {
        let Some(kind) = rlimit(&limit.name) else {
            return fail("setting limits", format_args!("unknown limit {:?}", limit.name));
        };
        setrlimit(kind, limit.soft, limit.hard).doing(format_args!("setting {}", limit.name))?;
    }
    enter_working_directory(if process.cwd.is_empty() { "/" } else { &process.cwd })?;
    // All of ours are closed anyway; a library's may not be.
    sys::close_on_exec().doing("closing files")?;
    let filter = process.seccomp.then(|| seccomp::program(process.capabilities)).transpose()?;
    capability::bound(process.capabilities)?;
    if let Some(filter) = filter.as_ref().filter(|_| !process.no_new_privs) {
        // Before the capabilities are dropped: without `no_new_privs` a filter needs `CAP_SYS_ADMIN`.
        sys::filter_system_calls(filter).doing("filtering system calls")?;
    }
    identity.assume()?;
    capability::set(process.capabilities)?;
    if dies_with_shim {
        // Changing the user undoes this, so not before.
        set_pdeathsig(Signal::SIGKILL).doing("dying with the shim")?;
    }
    if process.no_new_privs {
        set_no_new_privs().doing("giving up new privileges")?;
        if let Some(filter) = &filter {
            sys::filter_system_calls(filter).doing("filtering system calls")?;
        }
    }
    Ok(())
}

/// Goes to a directory of the container, which is made if it is missing. A path such as `/proc/self/fd/3` could lead to
/// what we have open, which is outside, so such links of procfs are not followed, and where it led is looked at.
fn enter_working_directory(path: &str) -> Result<()> {
    let root = RootFs::open(Path::new("/")).doing("opening the root")?;
    let made =
        root.make_folder(Path::new(path)).doing(format_args!("making the working directory {path}"))?;
    rustix::process::fchdir(&made).doing(format_args!("going to the working directory {path}"))?;
    let at = nix::unistd::getcwd().doing(format_args!("finding the working directory {path}"))?;
    if !at.is_absolute() {
        return fail(format_args!("going to the working directory {path}"), "it is outside of the container");
    }
    Ok(())
}

fn rlimit(name: &str) -> Option<Resource> {
    Some(match name.strip_prefix("RLIMIT_").unwrap_or(name) {
        "AS" => Resource::RLIMIT_AS,
        "CORE" => Resource::RLIMIT_CORE,
        "CPU" => Resource::RLIMIT_CPU,
        "DATA" => Resource::RLIMIT_DATA,
        "FSIZE" => Resource::RLIMIT_FSIZE,
        "LOCKS" => Resource::RLIMIT_LOCKS,
        "MEMLOCK" => Resource::RLIMIT_MEMLOCK,
        "MSGQUEUE" => Resource::RLIMIT_MSGQUEUE,
        "NICE" => Resource::RLIMIT_NICE,
        "NOFILE" => Resource::RLIMIT_NOFILE,
        "NPROC" => Resource::RLIMIT_NPROC,
        "RSS" => Resource::RLIMIT_RSS,
        "RTPRIO" => Resource::RLIMIT_RTPRIO,
        "RTTIME" => Resource::RLIMIT_RTTIME,
        "SIGPENDING" => Resource::RLIMIT_SIGPENDING,
        "STACK" => Resource::RLIMIT_STACK,
        _ => return None,
    })
}

/// Runs the program.
pub(super) fn execute<T>(process: &ProcessSpec, home: &str) -> Result<T> {
    let mut env = process.env.clone();
    if !env.iter().any(|variable| variable.starts_with("HOME=")) {
        env.push(format!("HOME={home}"));
    }
    let strings = |strings: &[String]| {
        strings.iter().map(|s| CString::new(s.as_bytes())).collect::<Result<Vec<_>, _>>()
    };
    let (Ok(args), Ok(variables)) = (strings(&process.args), strings(&env)) else {
        return fail("running the program", "an argument or variable has a zero byte in it");
    };
    let Some(program) = process.args.first().filter(|program| !program.is_empty()) else {
        return fail("running the program", "no command specified");
    };
    let path = env.iter().find_map(|variable| variable.strip_prefix("PATH=")).unwrap_or("");
    let candidates: Vec<String> = if program.contains('/') {
        vec![program.clone()]
    } else {
        path.split(':')
            .map(|folder| format!("{}/{program}", if folder.is_empty() { "." } else { folder }))
            .collect()
    };
    let mut refusal = Errno::ENOENT;
    for candidate in candidates {
        let Ok(candidate) = CString::new(candidate) else { continue };
        let Err(errno) = execve(&candidate, &args, &variables);
        // Something that is there but must not be run says more than something that is not there.
        if !matches!(errno, Errno::ENOENT | Errno::ENOTDIR) {
            refusal = errno;
        }
    }
    match refusal {
        Errno::ENOENT if !program.contains('/') => {
            fail(format_args!("running {program:?}"), "executable file not found in $PATH")
        }
        errno => Err(errno).doing(format_args!("running {program:?}")),
    }
}
