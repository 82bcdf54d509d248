//! Attributes of mounts.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd as _};

use rustix::mount::{MountAttrFlags, MountPropagationFlags};

/// Sets attributes of the mount that is open, attached or not, and with `recursive` of all mounts below it. What is
/// set already stays. Needs Linux 5.12.
pub(crate) fn set_mount_attributes(
    mount: impl AsFd,
    attributes: MountAttrFlags,
    propagation: Option<MountPropagationFlags>,
    recursive: bool,
) -> io::Result<()> {
    let attr = libc::mount_attr {
        attr_set: attributes.bits().into(),
        attr_clr: 0,
        propagation: propagation.map_or(0, |propagation| propagation.bits().into()),
        userns_fd: 0,
    };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is an empty C string, `attr` is the kernel's structure of the size that is given; the kernel
    // only reads both, during the call.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
