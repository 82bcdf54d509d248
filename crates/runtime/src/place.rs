//! Places in a root file system that we don't trust: no link in it leads out of it.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, open, openat, openat2};
use rustix::io::Errno;

/// The root of such a file system.
pub(crate) struct Place(OwnedFd);

impl Place {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// What is there, links followed as if this were the root.
    pub(crate) fn find(&self, path: impl AsRef<Path>) -> Result<OwnedFd, Errno> {
        let path = path.as_ref();
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        // Refused while somebody moves things about; then it is worth another try.
        for _ in 0..8 {
            let found = openat2(&self.0, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), how);
            if !matches!(found, Err(Errno::AGAIN)) {
                return found;
            }
        }
        Err(Errno::AGAIN)
    }

    /// The folder there, made with all that lead to it where they are missing.
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

    /// What is there, or an empty file, made with all folders that lead to it.
    pub(crate) fn make_file(&self, path: &Path) -> io::Result<OwnedFd> {
        match self.find(path) {
            Err(Errno::NOENT) => {}
            found => return Ok(found?),
        }
        let folder = self.make_folder(path.parent().unwrap_or(Path::new("/")))?;
        if let Some(name) = path.file_name() {
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(&folder, name, flags, Mode::from_raw_mode(0o644))?;
        }
        Ok(self.find(path)?)
    }
}

/// A path that leads to what is open, for calls that take paths.
pub(crate) fn path_of(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Opens something for its path only.
pub(crate) fn outside(path: &Path) -> Result<OwnedFd, Errno> {
    openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}
