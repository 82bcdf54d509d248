//! Removing a tree of folders that a container made.
//!
//! Such a tree may be deeper than any stack, any path and any table of open files. So it is not walked down: what is in
//! a folder below the top is moved up into the top until nothing has anything in it. At most two folders are open at a
//! time, whatever the tree is like. Nothing that is mounted in there is entered, moved or removed.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, RenameFlags, ResolveFlags, openat, openat2, renameat_with, unlinkat,
};
use rustix::io::Errno;

/// What a folder is called that was moved up: no container has seen the name before.
const MOVED: &str = ".removing-";

/// Removes a folder with everything in it. Fails, and leaves the rest, where something is mounted below. What is gone
/// already is fine.
pub fn remove_tree(folder: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a folder that can be removed"));
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = match openat(CWD, parent, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    let name = CString::new(name.as_encoded_bytes())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = match openat(&parent, &name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        // It is no folder.
        Err(Errno::NOTDIR | Errno::LOOP) => return Ok(unlinkat(&parent, &name, AtFlags::empty())?),
        opened => opened?,
    };
    empty(&top)?;
    match unlinkat(&parent, &name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Removes everything in a folder.
fn empty(top: &OwnedFd) -> io::Result<()> {
    let mut moved = 0_u64;
    loop {
        // A folder that is read while names come and go may show some of them or not: it is read anew until nothing is
        // left. Each round removes or moves up all that it finds, so there are no more rounds than the tree is deep.
        let mut found = false;
        for name in names(top)? {
            found = true;
            if !unlink(top, &name)? {
                flatten(top, &name, &mut moved)?;
            }
        }
        if !found {
            return Ok(());
        }
    }
}

/// Removes what is not a folder, or an empty one. False if it is a folder with something in it.
fn unlink(folder: &OwnedFd, name: &CStr) -> io::Result<bool> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(named(name, errno)),
    }
    match unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(errno) => Err(named(name, errno)),
    }
}

/// Removes a folder, and moves the folders in it that are not empty up.
fn flatten(top: &OwnedFd, name: &CStr, moved: &mut u64) -> io::Result<()> {
    let folder = match open_folder(top, name) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened.map_err(|errno| named(name, errno))?,
    };
    for inner in names(&folder)? {
        if unlink(&folder, &inner)? {
            continue;
        }
        loop {
            let up = CString::new(format!("{MOVED}{moved}"))?;
            *moved += 1;
            match renameat_with(&folder, &inner, top, &up, RenameFlags::NOREPLACE) {
                // Left over from a removal that was broken off.
                Err(Errno::EXIST) => {}
                Ok(()) | Err(Errno::NOENT) => break,
                Err(errno) => return Err(named(&inner, errno)),
            }
        }
    }
    match unlinkat(top, name, AtFlags::REMOVEDIR) {
        // What came meanwhile is seen in the next round.
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
        Err(errno) => Err(named(name, errno)),
    }
}

/// Opens a folder to read it; not if something is mounted there.
fn open_folder(at: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    openat2(at, name, flags, Mode::empty(), how)
}

/// The names in a folder, a bounded number of them.
fn names(folder: &OwnedFd) -> io::Result<Vec<CString>> {
    const AT_ONCE: usize = 4096;
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
        if names.len() == AT_ONCE {
            break;
        }
    }
    Ok(names)
}

fn named(name: &CStr, errno: Errno) -> io::Error {
    let error = io::Error::from(errno);
    io::Error::new(error.kind(), format!("{}: {error}", name.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::mkdirat;

    use super::*;

    #[test]
    fn a_tree_of_any_width_is_removed_and_links_are_not_followed() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), "").unwrap();
        let top = outside.path().join("top");
        for number in 0..50 {
            fs::create_dir_all(top.join(format!("a{number}/b/c/d"))).unwrap();
            fs::write(top.join(format!("a{number}/b/file")), "x").unwrap();
        }
        for number in 0..5000 {
            fs::write(top.join(format!("a0/{number}")), "").unwrap();
        }
        fs::create_dir_all(top.join(".removing-0/x/y")).unwrap();
        symlink(outside.path(), top.join("a1/b/link")).unwrap();
        remove_tree(&top).unwrap();
        assert!(!top.exists() && outside.path().join("kept").exists());
        remove_tree(&top).unwrap();
        fs::write(&top, "a file").unwrap();
        remove_tree(&top).unwrap();
        assert!(!top.exists());
    }

    /// Deeper than paths may be long, than a thread's stack has frames for, and than files may be open.
    #[test]
    fn a_tree_of_any_depth_is_removed() {
        let outside = tempfile::tempdir().unwrap();
        let top = outside.path().join("top");
        fs::create_dir(&top).unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut here = openat(CWD, &top, flags, Mode::empty()).unwrap();
        for _ in 0..20_000 {
            mkdirat(&here, "d", Mode::RWXU).unwrap();
            here = openat(&here, "d", flags, Mode::empty()).unwrap();
        }
        drop(here);
        remove_tree(&top).unwrap();
        assert!(!top.exists());
    }
}
