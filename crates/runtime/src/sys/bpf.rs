//! Programs that decide which devices the processes of a cgroup may use.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

const PROG_LOAD: libc::c_long = 5;
const PROG_ATTACH: libc::c_long = 8;
const PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const ATTACH_TYPE_CGROUP_DEVICE: u32 = 6;
/// Others may attach programs too, below as well; a device has to pass all of them.
const ALLOW_MULTI: u32 = 2;

/// The beginning of the kernel's `union bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C)]
struct LoadAttr {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
}

/// The beginning of the kernel's `union bpf_attr` for `BPF_PROG_ATTACH`.
#[repr(C)]
struct AttachAttr {
    target_fd: u32,
    attach_bpf_fd: u32,
    attach_type: u32,
    attach_flags: u32,
}

/// Loads a program of type `BPF_PROG_TYPE_CGROUP_DEVICE`; each number is an instruction as the kernel has it.
pub(crate) fn load_device_program(instructions: &[u64]) -> io::Result<OwnedFd> {
    let mut prog_name = [0; 16];
    prog_name[..13].copy_from_slice(b"plumb_devices");
    let attr = LoadAttr {
        prog_type: PROG_TYPE_CGROUP_DEVICE,
        insn_cnt: u32::try_from(instructions.len()).map_err(io::Error::other)?,
        insns: instructions.as_ptr().addr() as u64,
        license: c"Apache-2.0".as_ptr().addr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
        prog_name,
    };
    // SAFETY: `attr` has the kernel's layout and the size that is given, and what it points to outlives the call; the
    // kernel copies and verifies the instructions.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, PROG_LOAD, &raw const attr, size_of::<LoadAttr>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel just opened it for us, with close-on-exec set; there is no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches a program to a cgroup, given by its open directory, until the cgroup is removed.
pub(crate) fn attach_device_program(cgroup: impl AsFd, program: &OwnedFd) -> io::Result<()> {
    let raw = |fd: RawFd| u32::try_from(fd).map_err(io::Error::other);
    let attr = AttachAttr {
        target_fd: raw(cgroup.as_fd().as_raw_fd())?,
        attach_bpf_fd: raw(program.as_raw_fd())?,
        attach_type: ATTACH_TYPE_CGROUP_DEVICE,
        attach_flags: ALLOW_MULTI,
    };
    // SAFETY: `attr` has the kernel's layout and the size that is given, and outlives the call.
    let answer =
        unsafe { libc::syscall(libc::SYS_bpf, PROG_ATTACH, &raw const attr, size_of::<AttachAttr>()) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
