//! System calls that need `unsafe`.
//!
//! Forking and signal dispositions are for the shim, a process with one thread: there is no other thread whose locks or
//! memory could be in a state that these calls disturb. The rest are plain system calls.

#![expect(unsafe_code, reason = "these system calls have no safe wrapper")]

mod bpf;
mod mount;
mod terminal;

use std::io;

use nix::unistd::{ForkResult, fork};
use seccompiler::BpfProgram;

pub(crate) use bpf::{attach_device_program, load_device_program};
pub(crate) use mount::set_mount_attributes;
pub(crate) use terminal::open_terminal;

/// That this process has one thread, as seen while its own `/proc` was in sight. A shim never starts another one.
pub(crate) struct SingleThreaded(());

impl SingleThreaded {
    /// An error if there are more.
    pub(crate) fn check() -> io::Result<Self> {
        // A caller that breaks the rule fails at once, not once in a thousand starts.
        let threads = std::fs::read_dir("/proc/self/task")?.count();
        if threads != 1 {
            return Err(io::Error::other(format!("forking with {threads} threads")));
        }
        Ok(Self(()))
    }

    /// Forks.
    #[expect(clippy::unused_self, reason = "it is the proof that this may be done")]
    pub(crate) fn fork(self) -> io::Result<ForkResult> {
        // SAFETY: with one thread, the child's memory is in no other state than the parent's: no lock is held by a
        // thread that the child does not have, so it may allocate and call anything.
        unsafe { fork() }.map_err(io::Error::from)
    }
}

/// Gives every signal its usual effect back: what is ignored stays ignored across exec, and programs rely on being ended.
/// Rust's start-up ignores `SIGPIPE`; the parent of the agent may have had it ignore others, as `nohup` does.
pub(crate) fn restore_signals() {
    for number in 1..=libc::SIGRTMAX() {
        // SAFETY: the default disposition runs no code of ours. It is refused for those that cannot be ignored and for
        // two that the C library keeps for itself.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
}

/// Restricts the calling thread, and the programs that it executes, to the system calls that the filter allows.
///
/// `seccompiler::apply_filter` does the same but always gives up new privileges as well, which a container may
/// be allowed to have.
pub(crate) fn filter_system_calls(program: &BpfProgram) -> io::Result<()> {
    const SET_MODE_FILTER: libc::c_long = 1;
    let len = u16::try_from(program.len()).map_err(|_| io::Error::other("a filter that long"))?;
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast::<libc::sock_filter>().cast_mut() };
    // SAFETY: `program` points to `len` instructions in the kernel's layout, which outlive the call; the kernel
    // copies and checks them.
    let answer = unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, 0, &raw const program) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The page size of the kernel.
pub(crate) fn page_size() -> i64 {
    // SAFETY: the call touches no memory.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }
}

/// Marks every file descriptor but standard input, output and error as close-on-exec.
pub(crate) fn close_on_exec() -> io::Result<()> {
    // SAFETY: the call closes nothing now and touches no memory.
    let answer = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
