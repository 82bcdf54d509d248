//! An untrusted root file system, in which paths are resolved by file descriptor: no symlink leads out of it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, mkdirat, mknodat, open, openat2, readlinkat};
use rustix::io::Errno;

/// How many symlinks that lead nowhere are followed for a file.
const MOST_LINKS: usize = 8;

/// The root directory of such a file system.
pub(crate) struct RootFs(OwnedFd);

impl AsFd for RootFs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl RootFs {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// Opens a path; symlinks are resolved as if this were the root.
    pub(crate) fn find(&self, path: impl AsRef<Path>) -> Result<OwnedFd, Errno> {
        self.open_at(path.as_ref(), OFlags::PATH, ResolveFlags::NO_MAGICLINKS)
    }

    /// Opens a path without symlinks in it; else [`Errno::LOOP`].
    pub(crate) fn find_without_symlinks(&self, path: impl AsRef<Path>) -> Result<OwnedFd, Errno> {
        self.open_at(path.as_ref(), OFlags::PATH, ResolveFlags::NO_SYMLINKS)
    }

    fn open_at(&self, path: &Path, flags: OFlags, how: ResolveFlags) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let how = how | ResolveFlags::IN_ROOT;
        // EAGAIN after a concurrent rename; retry.
        for _ in 0..8 {
            let found = openat2(&self.0, path, flags | OFlags::CLOEXEC, Mode::empty(), how);
            if !matches!(found, Err(Errno::AGAIN)) {
                return found;
            }
        }
        Err(Errno::AGAIN)
    }

    /// Opens a directory; it and its parents are created if they are missing.
    pub(crate) fn make_folder(&self, path: &Path) -> io::Result<OwnedFd> {
        // Mostly it is there.
        if let Ok(found) = openat2(
            &self.0,
            if path.as_os_str().is_empty() { Path::new(".") } else { path },
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
        ) {
            return Ok(found);
        }
        let mut walked = PathBuf::new();
        let mut here = self.find("/")?;
        for part in path.components() {
            match part {
                Component::Normal(part) => {
                    walked.push(part);
                    here = match self.find(&walked) {
                        Err(Errno::NOENT) => {
                            match mkdirat(&here, part, Mode::from_raw_mode(0o755)) {
                                Ok(()) | Err(Errno::EXIST) => {}
                                Err(errno) => return Err(errno.into()),
                            }
                            self.find(&walked)?
                        }
                        found => found?,
                    };
                }
                Component::ParentDir => {
                    walked.pop();
                    here = self.find(&walked)?;
                }
                _ => {}
            }
        }
        Ok(here)
    }

    /// The existing file, or a new empty one with all directories that lead to it. A symlink that leads nowhere is
    /// followed:
    /// images have them for files that are made when a machine starts.
    pub(crate) fn make_file(&self, path: &Path) -> io::Result<OwnedFd> {
        let mut path = path.to_owned();
        for _ in 0..MOST_LINKS {
            match self.find(&path) {
                Err(Errno::NOENT) => {}
                found => return Ok(found?),
            }
            let above = path.parent().unwrap_or(Path::new("/")).to_owned();
            let folder = self.make_folder(&above)?;
            let Some(name) = path.file_name() else { break };
            match readlinkat(&folder, name, Vec::new()) {
                Ok(target) => path = above.join(OsStr::from_bytes(target.as_bytes())),
                Err(Errno::NOENT | Errno::INVAL) => {
                    // Made and not opened: opening a file that was put there meanwhile might block forever.
                    match mknodat(&folder, name, FileType::RegularFile, Mode::from_raw_mode(0o644), 0) {
                        Ok(()) | Err(Errno::EXIST) => return Ok(self.find(&path)?),
                        Err(errno) => return Err(errno.into()),
                    }
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(Errno::LOOP.into())
    }
}

/// A path to an open file, for calls that take paths.
pub(crate) fn path_of(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}
