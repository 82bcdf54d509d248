//! Process 1 of the cluster's own PID and mount namespaces.
//!
//! It starts the launcher, reaps orphans, and ends with it; the kernel then kills everything else in the
//! namespace and unmounts everything that was mounted in it. It cannot outlive the monitor.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, wait};

use crate::error::{Error, IoContext as _, full_text};
use crate::event::{Event, emit};
use crate::instance::Instance;

/// Sysctls that a kubelet changes for the whole machine; a copy is mounted over each in the cluster's namespace.
const KUBELET_SETTINGS: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

/// Runs process 1 for the cluster in `dir`.
pub(crate) fn run(dir: &Path) -> ExitCode {
    let entered = Instance::read(dir).and_then(|instance| set_up_namespaces(dir, instance.has_node()));
    match entered.and_then(|()| run_launcher(dir)) {
        Ok(code) => code,
        Err(error) => {
            emit(&Event::Failed(full_text(&error)));
            ExitCode::FAILURE
        }
    }
}

fn set_up_namespaces(dir: &Path, has_node: bool) -> Result<(), Error> {
    set_pdeathsig(Signal::SIGKILL).doing("set the parent death signal of process 1 of", dir)?;
    unshare(CloneFlags::CLONE_NEWNS).doing("make a mount namespace for", dir)?;
    let root = Path::new("/");
    let none: Option<&str> = None;
    mount(none, root, none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).doing("make private", root)?;
    // Inside, containers may share mounts with the kubelet as they do on any node.
    mount(none, root, none, MsFlags::MS_REC | MsFlags::MS_SHARED, none).doing("make shared", root)?;
    let proc = Path::new("/proc");
    mount(Some("proc"), proc, Some("proc"), MsFlags::empty(), none).doing("mount", proc)?;
    if !has_node {
        return Ok(());
    }
    // Shim sockets, mount points of namespaces and runc's state have fixed paths under /run.
    let run = Path::new("/run");
    mount(Some("tmpfs"), run, Some("tmpfs"), MsFlags::empty(), Some("mode=755")).doing("mount", run)?;
    // The CNI's result cache and the kubelet's log links have fixed paths, too.
    for lower in ["/var/lib", "/var/log"] {
        overlay(dir, Path::new(lower))?;
    }
    for setting in KUBELET_SETTINGS {
        bind_copy(dir, setting)?;
    }
    Ok(())
}

/// Mounts an overlay on `lower` whose upper layer is in the cluster's folder: files stay readable, and none is written.
fn overlay(dir: &Path, lower: &Path) -> Result<(), Error> {
    let folder = dir.join("overlay").join(lower.strip_prefix("/").unwrap_or(lower));
    let (upper, work) = (folder.join("upper"), folder.join("work"));
    for folder in [&upper, &work] {
        fs::create_dir_all(folder).doing("create", folder)?;
    }
    let options =
        format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    mount(Some("overlay"), lower, Some("overlay"), MsFlags::empty(), Some(options.as_str()))
        .doing("mount an overlay on", lower)
}

/// Mounts a copy of a sysctl over it, so that a write does not reach the kernel.
fn bind_copy(dir: &Path, setting: &str) -> Result<(), Error> {
    let real = PathBuf::from("/proc/sys").join(setting);
    let Ok(value) = fs::read(&real) else { return Ok(()) };
    let copy = dir.join("sysctl").join(setting.replace('/', "."));
    fs::create_dir_all(dir.join("sysctl")).doing("create", &copy)?;
    fs::write(&copy, value).doing("write", &copy)?;
    let none: Option<&str> = None;
    mount(Some(copy.as_path()), real.as_path(), none, MsFlags::MS_BIND, none)
        .doing("mount a copy over", &real)
}

/// Starts the launcher and reaps processes until the launcher ends.
fn run_launcher(dir: &Path) -> Result<ExitCode, Error> {
    let program = std::env::current_exe().doing("find", "the own program")?;
    // The monitor may have died before the death signal was set; then its end of this pipe is closed.
    thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    let launcher = Command::new(&program)
        .arg("launch")
        .arg(dir)
        .stdin(std::process::Stdio::null())
        .spawn()
        .doing("run", &program)?;
    loop {
        match wait().doing("wait for", &program)? {
            WaitStatus::Exited(pid, code) if is(pid, &launcher) => {
                return Ok(if code == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
            WaitStatus::Signaled(pid, signal, _) if is(pid, &launcher) => {
                emit(&Event::Failed(format!("the launcher was killed by {signal}")));
                return Ok(ExitCode::FAILURE);
            }
            _ => {}
        }
    }
}

fn is(pid: nix::unistd::Pid, child: &std::process::Child) -> bool {
    u32::try_from(pid.as_raw()) == Ok(child.id())
}
