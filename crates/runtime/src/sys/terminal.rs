//! Terminals.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, major, minor, open};

/// The device of the file that makes terminals.
const PTMX: (u32, u32) = (5, 2);

/// Opens a new terminal of the devpts whose `ptmx` this is: our end, which does not block, and the other one. A program
/// that has the other one finds it in that file system.
pub(crate) fn open_terminal(ptmx: &Path) -> io::Result<(OwnedFd, OwnedFd)> {
    // A container may have put anything in its place, which must neither block nor lead elsewhere.
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let ours = open(ptmx, flags, Mode::empty())?;
    let found = fstat(&ours)?;
    let device = (major(found.st_rdev), minor(found.st_rdev));
    if FileType::from_raw_mode(found.st_mode) != FileType::CharacterDevice || device != PTMX {
        return Err(io::Error::other(format!("{} makes no terminals", ptmx.display())));
    }
    let unlocked: libc::c_int = 0;
    // SAFETY: the kernel reads one int, which outlives the call.
    let answer = unsafe { libc::ioctl(ours.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the call touches no memory of ours.
    let other = unsafe { libc::ioctl(ours.as_raw_fd(), libc::TIOCGPTPEER, flags) };
    if other < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made this descriptor for us, and it has no other owner.
    Ok((ours, unsafe { OwnedFd::from_raw_fd(other) }))
}
