//! The shim: a process for each container.
//!
//! It creates the container, is the parent of its first process, writes its log, and records its exit. It does not
//! depend on the agent, which may die, be upgraded and restart, and then finds it by its socket.
//!
//! ```text
//!   agent ── spawns ──▶ shim ── forks ──▶ the container's first process
//!     │                  │  ▲                 │ stdout, stderr
//!     └── shim.sock ─────┘  └─────────────────┘
//!                        └──▶ log, started.json, exit.json
//! ```
//!
//! A program becomes a shim by handing its arguments to [`main`] before it starts any thread. It has one thread
//! for all of its life, so that it may fork; it needs little memory, for there is one per container.

mod attach;
mod capability;
mod destination;
mod exec;
mod failure;
mod files;
mod hold;
mod identity;
mod init;
mod log;
mod mount;
mod pause;
mod protected;
mod protocol;
mod root;
mod seccomp;
mod spec;
mod supervise;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

pub(crate) use capability::resolve as resolve_capabilities;
pub(crate) use files::{Exit, StartReport, Started, load, store};
pub(crate) use protocol::{
    Kind, LONGEST_PIECE, PIECE_HEAD, Reply, Request, ShimCommand, ShimResponse, VERSION, frame, length,
    piece, piece_head,
};
pub(crate) use spec::{
    BindSpec, CgroupSpec, DeviceSpec, LogSpec, NamespaceSpec, OverlaySpec, PidSpec, ProcessSpec, Spec,
};
pub(crate) use supervise::is_running;

/// The names of the files in a container's directory.
pub(crate) const SPEC: &str = "spec.json";
pub(crate) const STARTED: &str = "started.json";
pub(crate) const EXIT: &str = "exit.json";
pub(crate) const SOCKET: &str = "shim.sock";
pub(crate) const LOCK: &str = "lock";
pub(crate) const ROOT: &str = "root";

/// Runs as a shim until its container has exited. `arguments` are those after the program's name and the subcommand:
///
/// - `run FOLDER`: makes and starts the container whose folder that is;
/// - `exec FOLDER COMMAND…`: runs a command in it, and `exec-tty` one with a terminal of the container. It writes the number of
///   the agent's end to standard output, and waits on standard input until the agent has it;
/// - `pause FOLDER`: holds a process namespace for several containers.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    // Executed by a file descriptor, it would have that one's number for a name.
    let _ = nix::sys::prctl::set_name(c"plumb-shim");
    // What runs in a container and has as many rights as we have left in the end could otherwise open what we have
    // open, while we are on the way there. Executing a program undoes this.
    let _ = nix::sys::prctl::set_dumpable(false);
    crate::descriptors::restore();
    let mut arguments = arguments.into_iter();
    let mode = arguments.next().unwrap_or_default();
    let folder = arguments.next().map(PathBuf::from);
    match (mode.to_str(), folder) {
        (Some("run"), Some(folder)) => supervise::run(&folder),
        (Some("exec"), Some(folder)) => exec::run(&folder, arguments, false),
        (Some("exec-tty"), Some(folder)) => exec::run(&folder, arguments, true),
        (Some("pause"), Some(folder)) => pause::run(&folder),
        _ => {
            eprintln!("a shim is started by the agent: run|exec|exec-tty|pause FOLDER");
            ExitCode::from(2)
        }
    }
}
