//! The program that becomes a shim, such that no container can write it.
//!
//! A container can have a shim that joins it execute `/proc/self/exe`, and keep that file open until it can be written
//! (CVE-2019-5736). So shims are not executed from where the program is installed, but from a read-only overlay that has
//! no upper layer and is mounted nowhere: no process can make that writable, and its pages are those of the installed file,
//! so it takes no memory. Where there can be no such overlay the program is copied into a sealed memfd, once per agent.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, memfd_create, open, openat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
};

use crate::descriptors;

/// A program that becomes a shim.
#[derive(Debug)]
pub(super) struct ShimProgram {
    path: PathBuf,
    name: OsString,
    arguments: Vec<String>,
    sealed: OwnedFd,
}

impl ShimProgram {
    /// Makes one of the installed program and the arguments that come before the shim's own. `empty` is a folder with
    /// nothing in it. An upgrade of the installed program has no effect until the next agent.
    pub(super) fn seal((path, arguments): (PathBuf, Vec<String>), empty: &Path) -> io::Result<Self> {
        let real = fs::canonicalize(&path)?;
        let name = path.file_name().unwrap_or_default().to_owned();
        let sealed = match in_overlay(&real, empty) {
            Ok(sealed) => sealed,
            Err(error) => {
                tracing::debug!(%error, "no overlay for the program of shims; it is copied into memory");
                in_memory(&real)?
            }
        };
        Ok(Self { path, name, arguments, sealed })
    }

    /// The path of the installed program.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A command that runs it. Must be spawned while this is kept.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(format!("/proc/self/fd/{}", self.sealed.as_raw_fd()));
        command.arg0(&self.name).args(&self.arguments);
        descriptors::pass_soft_limit(&mut command);
        command
    }
}

/// The program in an overlay of its folder over an empty one, for there have to be two.
fn in_overlay(program: &Path, empty: &Path) -> io::Result<OwnedFd> {
    let (Some(folder), Some(name)) = (program.parent(), program.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID;
    let path_only = OFlags::PATH | OFlags::CLOEXEC;
    let folder = open(folder, path_only | OFlags::DIRECTORY, Mode::empty())?;
    let empty = open(empty, path_only | OFlags::DIRECTORY, Mode::empty())?;
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    // By their numbers there is nothing to escape.
    let lower = format!("/proc/self/fd/{}:/proc/self/fd/{}", empty.as_raw_fd(), folder.as_raw_fd());
    fsconfig_set_string(&context, "lowerdir", lower)?;
    fsconfig_create(&context)?;
    let overlay = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    Ok(openat(&overlay, name, path_only | OFlags::NOFOLLOW, Mode::empty())?)
}

/// A copy of the program in memory that is sealed against changes.
fn in_memory(program: &Path) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let copy = memfd_create("plumb-shim", flags | MemfdFlags::EXEC).or_else(|errno| match errno {
        // The flag is newer than the call; without it the same was meant.
        rustix::io::Errno::INVAL => memfd_create("plumb-shim", flags),
        errno => Err(errno),
    })?;
    let mut copy = File::from(copy);
    io::copy(&mut File::open(program)?, &mut copy)?;
    // Opened for reading before it is sealed: what is open for writing cannot be executed.
    let path = format!("/proc/self/fd/{}", copy.as_raw_fd());
    let sealed = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    fcntl_add_seals(&copy, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(sealed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_runs_from_where_it_cannot_be_written() {
        let shell = fs::canonicalize("/bin/sh").unwrap();
        let empty = tempfile::tempdir().unwrap();
        for sealed in [in_overlay(&shell, empty.path()), in_memory(&shell)] {
            let sealed = match sealed {
                Ok(sealed) => sealed,
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    plumb_testkit::skip(plumb_testkit::ROOT, "mounts need root");
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            let path = format!("/proc/self/fd/{}", sealed.as_raw_fd());
            let program =
                ShimProgram { path: shell.clone(), name: "sh".into(), arguments: vec!["-c".into()], sealed };
            let output = program.command().arg("echo $0").output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), "sh\n");
            let written = File::options()
                .write(true)
                .open(path)
                .and_then(|mut file| io::Write::write_all(&mut file, b"#!"));
            assert!(written.is_err());
        }
    }
}
