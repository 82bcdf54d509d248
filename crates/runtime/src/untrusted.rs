//! Files that a container may have replaced or filled: reading them, and removing trees of them.
//!
//! A container may put anything where a file is expected: a link to a file of the machine, a FIFO that blocks the process that
//! opens it, a device whose opening does something, a file without end. So such a file is opened without following a
//! link at its end, looked at before it is opened for reading, read only if it is a regular file, and only up to a
//! bound. All of this blocks on the disk: async code calls it through `spawn_blocking`.

mod remove;

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat, openat2};

pub use remove::remove_tree;

/// Opens a regular file for reading. The folder that it is in is trusted, its name in there is not.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let found = openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    check_regular(&found)?;
    // Only now that it is known to be no device and no FIFO; its name may lead elsewhere by now.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(open(format!("/proc/self/fd/{}", found.as_raw_fd()), flags, Mode::empty())?.into())
}

/// Opens a regular file for reading that is below a folder of which a container has written every part: links lead no
/// further than to what is below the folder, which is their root, too. For a process that cannot trust its `/proc`.
pub fn open_regular_in(root: impl AsFd, path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = openat2(root, path, flags, Mode::empty(), how)?;
    check_regular(&found)?;
    Ok(found.into())
}

fn check_regular(found: &OwnedFd) -> io::Result<()> {
    if FileType::from_raw_mode(fstat(found)?.st_mode) == FileType::RegularFile {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
}

/// Reads a whole file, unless it is longer than `most`.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_all(open_regular(path)?, most)
}

/// The same for a file that was opened by this module.
pub fn read_all(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= most) {
        return Ok(bytes);
    }
    Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {most} bytes")))
}

/// Reads the end of a file, at most this much of it.
pub fn read_end(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut file = open_regular(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode as NixMode;

    use super::*;

    #[test]
    fn only_regular_files_are_read_and_only_up_to_the_bound() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "0123456789").unwrap();
        assert_eq!(read(&at("file"), 10).unwrap(), b"0123456789");
        assert_eq!(read(&at("file"), 9).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read_end(&at("file"), 3).unwrap(), b"789");
        assert_eq!(read_end(&at("file"), 99).unwrap(), b"0123456789");

        symlink(at("file"), at("link")).unwrap();
        nix::unistd::mkfifo(&at("fifo"), NixMode::S_IRWXU).unwrap();
        fs::create_dir(at("folder")).unwrap();
        for name in ["link", "fifo", "folder"] {
            assert!(read(&at(name), 10).is_err(), "{name}");
            assert!(read_end(&at(name), 10).is_err(), "{name}");
        }
        assert!(read(Path::new("/dev/zero"), 10).is_err());
        assert_eq!(read(&at("none"), 10).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_below_a_root_is_found_without_leaving_it() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "secret").unwrap();
        let root = outside.path().join("root");
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(root.join("etc/real"), "real").unwrap();
        symlink("/etc/real", root.join("etc/passwd")).unwrap();
        symlink("../../secret", root.join("etc/up")).unwrap();
        symlink(outside.path().join("secret"), root.join("etc/absolute")).unwrap();
        nix::unistd::mkfifo(&root.join("etc/fifo"), NixMode::S_IRWXU).unwrap();
        let open = |path: &str| open_regular_in(File::open(&root).unwrap(), Path::new(path));
        assert_eq!(read_all(open("etc/passwd").unwrap(), 10).unwrap(), b"real");
        for path in ["etc/up", "etc/absolute", "etc/fifo", "etc"] {
            assert!(open(path).is_err(), "{path}");
        }
    }
}
