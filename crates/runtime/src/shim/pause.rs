//! The first process of a process namespace that several containers share.
//!
//! It holds the PID namespace and reaps orphans. The containers in the namespace can see it, and one that may trace
//! processes could enter its root. So it has none: its root is empty, its other namespaces are
//! the pod's, and it has no rights.

use std::path::Path;
use std::process::ExitCode;

use jiff::Timestamp;
use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl::set_no_new_privs;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Gid, Uid, pipe2, pivot_root, setgroups, setresgid, setresuid};

use super::failure::{Doing as _, Result, fail, namespace};
use super::files::{StartReport, Started, store};
use super::init::start_over;
use super::mount::{CLOSED, Mounted, READ_ONLY};
use super::supervise::start_of;
use super::{STARTED, capability};
use crate::rootfs::RootFs;
use crate::sys;

/// Its user: the same as Kubernetes' own pause image.
const USER: u32 = 65535;
/// The namespaces of a pod that are held in its folder, by their names there.
const SHARED: [(&str, CloneFlags); 3] =
    [("net", CloneFlags::CLONE_NEWNET), ("ipc", CloneFlags::CLONE_NEWIPC), ("uts", CloneFlags::CLONE_NEWUTS)];

/// Leaves a process behind that holds a new process namespace, and writes down which.
pub(super) fn run(folder: &Path) -> ExitCode {
    let report = match start(folder) {
        Ok(started) => StartReport::Started { started, warnings: Vec::new() },
        Err(failure) => StartReport::Failed(failure.to_string()),
    };
    print!("{}", serde_json::to_string(&report).unwrap_or_default());
    ExitCode::SUCCESS
}

fn start(folder: &Path) -> Result<Started> {
    let shared: Vec<_> = SHARED.iter().filter(|(name, _)| folder.join(name).exists()).collect();
    unshare(CloneFlags::CLONE_NEWPID).doing("making a process namespace")?;
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).doing("making a pipe")?;
    match sys::SingleThreaded::check().and_then(sys::SingleThreaded::fork).doing("forking")? {
        ForkResult::Child => {
            drop(reader);
            let ready = start_over().and_then(|()| {
                let null = std::fs::File::options().read(true).write(true).open("/dev/null");
                let null = null.doing("opening /dev/null")?;
                nix::unistd::dup2_stdin(&null).doing("leaving standard input")?;
                nix::unistd::dup2_stdout(&null).doing("leaving standard output")?;
                nix::unistd::dup2_stderr(&null).doing("leaving standard error")?;
                drop(null);
                for (name, kind) in shared {
                    setns(namespace(&folder.join(name))?, *kind).doing("entering the pod's namespaces")?;
                }
                leave(folder)
            });
            if let Err(failure) = ready {
                // Short enough for the pipe to take it whole.
                let _ = nix::unistd::write(&writer, failure.to_string().as_bytes());
                std::process::exit(1);
            }
            drop(writer);
            wait_for_children()
        }
        ForkResult::Parent { child } => {
            drop(writer);
            // Closed when it is ready; else it has the error.
            let mut why = [0; 512];
            let length = nix::unistd::read(&reader, &mut why).doing("waiting for it")?;
            if length > 0 {
                return fail("holding a process namespace", String::from_utf8_lossy(&why[..length]));
            }
            let started = Started {
                pid: child.as_raw(),
                pid_start: start_of(child).unwrap_or(0),
                at: Timestamp::now(),
                user: None,
            };
            store(&folder.join(STARTED), &started, false).doing("writing down the start")?;
            Ok(started)
        }
    }
}

/// Gives up the node's files and all rights.
fn leave(folder: &Path) -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWCGROUP).doing("making namespaces")?;
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).doing("leaving the node's mounts")?;
    // The folder is its mount point for a moment, in a mount namespace of its own.
    let empty = Mounted::new("tmpfs", &[("nr_inodes", "1")], CLOSED | READ_ONLY)?;
    empty.attach(RootFs::open(folder).doing("opening the pod's folder")?, "the pod's folder")?;
    rustix::process::fchdir(&empty).doing("going to the empty root")?;
    pivot_root(".", ".").doing("changing the root")?;
    umount2(".", MntFlags::MNT_DETACH).doing("leaving the old root")?;
    nix::unistd::chdir("/").doing("going to the root")?;
    capability::bound(0)?;
    let (user, group) = (Uid::from_raw(USER), Gid::from_raw(USER));
    setgroups(&[]).doing("leaving groups")?;
    setresgid(group, group, group).doing("changing the group")?;
    setresuid(user, user, user).doing("changing the user")?;
    capability::set(0)?;
    set_no_new_privs().doing("giving up new privileges")
}

fn wait_for_children() -> ! {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    let _ = signals.thread_block();
    loop {
        while matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(status) if status != WaitStatus::StillAlive)
        {
        }
        if signals.wait().is_err() {
            std::process::exit(1);
        }
    }
}
