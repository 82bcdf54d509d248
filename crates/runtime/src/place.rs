//! Places in a root file system that we don't trust: no link in it leads out of it.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, open, openat, openat2, statat,
};
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

    /// Whether a name at the root is a symbolic link.
    pub(crate) fn is_symlink(&self, name: &str) -> bool {
        statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink)
    }

    /// The content of a regular file. Nothing else is read, and nothing is opened that could block: what is there may
    /// be a pipe that is never written to, or a link to one of this process's own files.
    pub(crate) fn read(&self, path: &str, most: u64) -> io::Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let file = openat2(&self.0, path, flags, Mode::empty(), how)?;
        if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file"));
        }
        let mut content = Vec::new();
        File::from(file).take(most + 1).read_to_end(&mut content)?;
        if content.len() as u64 > most {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("it is larger than {most} bytes"),
            ));
        }
        Ok(content)
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
