//! The first process of a process namespace that several containers share.
//!
//! It is there so that the namespace is: it does nothing but take leave of orphans.

use std::path::Path;
use std::process::ExitCode;

use jiff::Timestamp;
use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, pipe2};

use super::STARTED;
use super::failure::{Doing as _, Result};
use super::files::{Report, Started, store};
use super::init::start_over;
use super::supervise::start_of;
use crate::sys;

/// Leaves a process behind that holds a new process namespace, and writes down which.
pub(super) fn run(folder: &Path) -> ExitCode {
    let report = match start(folder) {
        Ok(started) => Report::Started { started, warnings: Vec::new() },
        Err(failure) => Report::Failed(failure.to_string()),
    };
    print!("{}", serde_json::to_string(&report).unwrap_or_default());
    ExitCode::SUCCESS
}

fn start(folder: &Path) -> Result<Started> {
    unshare(CloneFlags::CLONE_NEWPID).doing("making a process namespace")?;
    let (hear, say) = pipe2(OFlag::O_CLOEXEC).doing("making a pipe")?;
    match sys::fork_alone().doing("forking")? {
        ForkResult::Child => {
            drop(hear);
            let ready = start_over().and_then(|()| {
                let null = std::fs::File::options().read(true).write(true).open("/dev/null");
                let null = null.doing("opening /dev/null")?;
                nix::unistd::dup2_stdin(&null).doing("leaving standard input")?;
                nix::unistd::dup2_stdout(&null).doing("leaving standard output")?;
                nix::unistd::dup2_stderr(&null).doing("leaving standard error")?;
                nix::unistd::chdir("/").doing("leaving the folder")
            });
            if ready.is_err() {
                std::process::exit(1);
            }
            drop(say);
            hold()
        }
        ForkResult::Parent { child } => {
            drop(say);
            // Closed when it is ready, or gone.
            let _ = nix::unistd::read(&hear, &mut [0]);
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

fn hold() -> ! {
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
