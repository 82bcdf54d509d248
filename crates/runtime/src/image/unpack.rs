//! From a layer to files, all of them below one root.
//!
//! Every path is resolved by the kernel with `openat2` as if `root` were the root of the file system, and whatever is
//! made is owned, closed and dated by its file descriptor. So no link that a layer makes leads out, and no change of
//! ownership follows a link.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, chownat, fchmod, fchown,
    fsetxattr, futimens, linkat, mkdirat, mknodat, openat, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::change::{Change, DEEPEST, Planned, id, plan};
use super::entries::{Entries, Entry, Stream, refused};
use crate::rootfs::{RootFs, path_of};

/// The size of a layer, as [`scan`] found it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Scanned {
    pub(super) entries: u64,
    /// All names together: they are held in memory while a layer is unpacked.
    pub(super) name_bytes: u64,
}

/// Reads a layer as it will be unpacked, and changes nothing. `most` is how many entries it may have.
pub(super) fn scan(layer: impl Read, most: u64) -> io::Result<Scanned> {
    let mut scanned = Scanned::default();
    each(layer, |_, entry| {
        plan(entry)?;
        scanned.entries += 1;
        scanned.name_bytes += entry.name.len() as u64;
        if scanned.entries > most { Err(super::limits::OverLimit::Entries(most).into()) } else { Ok(()) }
    })?;
    Ok(scanned)
}

/// Unpacks a layer onto what is at `root`. Nothing is made, changed or removed outside, whatever the layer says:
/// links are followed as if `root` were the root. Answers the bytes of all files.
pub(super) fn unpack(layer: impl Read, root: &Path) -> io::Result<u64> {
    let place = RootFs::open(root)?;
    let base = depth_of(&place.find("/")?)?;
    let mut unpacking =
        Unpacking { place, base, made: HashSet::new(), directories: BTreeMap::new(), size: 0 };
    each(layer, |data, entry| unpacking.entry(data, entry))?;
    unpacking.finish()
}

fn each<R: Read>(
    layer: R,
    mut take: impl FnMut(&mut Entries<Stream<R>>, &Entry) -> io::Result<()>,
) -> io::Result<()> {
    let mut entries = Entries::new(Stream(layer));
    while let Some(entry) = entries.next()? {
        take(&mut entries, &entry).map_err(|error| {
            let name: String = String::from_utf8_lossy(&entry.name).chars().take(200).collect();
            io::Error::new(error.kind(), format!("{name:?}: {error}"))
        })?;
    }
    Ok(())
}

struct Unpacking {
    place: RootFs,
    /// How deep the root itself is.
    base: usize,
    /// What this layer made itself: not removed when it makes a directory opaque.
    made: HashSet<PathBuf>,
    /// Times of directories are set in the end, for making files in them changes them.
    directories: BTreeMap<PathBuf, Timestamps>,
    size: u64,
}

impl Unpacking {
    fn entry(&mut self, data: &mut impl Read, entry: &Entry) -> io::Result<()> {
        let Planned { parent, name, change } = plan(entry)?;
        if change == Change::Ignored {
            return Ok(());
        }
        let above = self.place.make_folder(&parent)?;
        // Through links, paths could become deeper than any single one of them.
        if depth_of(&above)? > self.base + DEEPEST {
            return Err(refused(format!("a path through links that is deeper than {DEEPEST} directories")));
        }
        match &change {
            Change::Opaque => return self.clear(&above, &parent),
            Change::Whiteout(hidden) => return remove(&above, hidden),
            Change::Root => {}
            _ => {
                let there = match statat(&above, &name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => Some(FileType::from_raw_mode(stat.st_mode)),
                    Err(Errno::NOENT) => None,
                    Err(errno) => return Err(errno.into()),
                };
                let stays = there == Some(FileType::Directory) && change == Change::Directory;
                if there.is_some() && !stays {
                    remove(&above, &name)?;
                }
                self.made.insert(parent.join(&name));
            }
        }
        let mode = Mode::from_raw_mode(entry.mode);
        let times = times(entry);
        match change {
            Change::File => {
                let flags =
                    OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let mut file = File::from(openat(&above, &name, flags, Mode::from_raw_mode(0o600))?);
                self.size += io::copy(data, &mut file)?;
                attributes(&file, entry, mode)?;
                futimens(&file, &times)?;
            }
            Change::Directory | Change::Root => {
                if change == Change::Directory {
                    match mkdirat(&above, &name, Mode::from_raw_mode(0o700)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                }
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let directory = openat(&above, &name, flags, Mode::empty())?;
                attributes(&directory, entry, mode)?;
                self.directories.insert(parent.join(&name), times);
            }
            Change::Symlink(target) => {
                symlinkat(&target, &above, &name)?;
                let (uid, gid) = owner(entry)?;
                chownat(&above, &name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
                utimensat(&above, &name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Change::HardLink { parent, name: target } => {
                let from = self.place.find(parent)?;
                // Without AT_SYMLINK_FOLLOW: a link to a symbolic link is a second name of that one.
                linkat(from, &target, &above, &name, AtFlags::empty())?;
            }
            Change::Fifo => {
                mknodat(&above, &name, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
                let fifo =
                    openat(&above, &name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
                let (uid, gid) = owner(entry)?;
                chownat(&fifo, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
                rustix::fs::chmod(path_of(&fifo), mode)?;
                utimensat(&above, &name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Change::Device => {
                tracing::debug!(name = %name.display(), "skipped a device file of an image");
            }
            Change::Opaque | Change::Whiteout(_) | Change::Ignored => {}
        }
        Ok(())
    }

    /// Removes what lower layers have in a directory.
    fn clear(&self, directory: &OwnedFd, path: &Path) -> io::Result<()> {
        for entry in fs::read_dir(path_of(directory))? {
            let name = entry?.file_name();
            if !self.made.contains(&path.join(&name)) {
                remove(directory, &name)?;
            }
        }
        Ok(())
    }

    fn finish(self) -> io::Result<u64> {
        for (path, times) in &self.directories {
            // The same layer may have removed it again, or have put something else there.
            let Ok(directory) = self.place.find(path) else { continue };
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            if let Ok(directory) = openat(&directory, ".", flags, Mode::empty()) {
                futimens(&directory, times)?;
            }
        }
        Ok(self.size)
    }
}

fn owner(entry: &Entry) -> io::Result<(Uid, Gid)> {
    Ok((Uid::from_raw(id(entry.uid)?), Gid::from_raw(id(entry.gid)?)))
}

fn times(entry: &Entry) -> Timestamps {
    let time = Timespec { tv_sec: entry.mtime, tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}

/// Owner, mode and extended attributes of what is open.
fn attributes(of: impl AsFd, entry: &Entry, mode: Mode) -> io::Result<()> {
    let (uid, gid) = owner(entry)?;
    fchown(&of, Some(uid), Some(gid))?;
    // After the owner: changing that takes set-user bits away.
    fchmod(&of, mode)?;
    for (attribute, value) in entry.xattrs.iter().filter(|(attribute, _)| is_taken(attribute)) {
        match fsetxattr(&of, OsStr::from_bytes(attribute), value, XattrFlags::empty()) {
            // Those that this file system cannot hold are left out.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// The attributes that a layer may set: file capabilities, access control lists, and what programs put there. The
/// overlay's own marks and labels of the machine's security modules are not a layer's to set.
fn is_taken(attribute: &[u8]) -> bool {
    const TAKEN: [&[u8]; 3] =
        [b"security.capability", b"system.posix_acl_access", b"system.posix_acl_default"];
    TAKEN.contains(&attribute)
        || (attribute.starts_with(b"user.") && !attribute.starts_with(b"user.overlay."))
}

/// The depth of a directory in the file system, after links are resolved.
fn depth_of(directory: &OwnedFd) -> io::Result<usize> {
    Ok(fs::read_link(path_of(directory))?.components().count())
}

/// Removes a path and everything below it; links are removed, not followed.
fn remove(directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => fs::remove_dir_all(path_of(directory).join(name)),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use tar::EntryType;

    use super::*;

    fn tar(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (kind, name, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(if kind.is_dir() { 0o750 } else { 0o640 });
            header.set_uid(rustix::process::getuid().as_raw().into());
            header.set_gid(rustix::process::getgid().as_raw().into());
            header.set_mtime(1_000_000);
            // As an attacker would: the crate itself refuses such names.
            let bytes = name.as_bytes();
            header.as_old_mut().name[..bytes.len()].copy_from_slice(bytes);
            let data = if kind.is_file() { content.as_bytes() } else { b"" };
            if !kind.is_file() && !content.is_empty() {
                header.as_old_mut().linkname[..content.len()].copy_from_slice(content.as_bytes());
            }
            header.set_size(data.len() as u64);
            header.set_cksum();
            builder.append(&header, data).unwrap();
        }
        builder.into_inner().unwrap()
    }

    const FILE: EntryType = EntryType::Regular;
    const DIR: EntryType = EntryType::Directory;
    const LINK: EntryType = EntryType::Symlink;
    const HARD: EntryType = EntryType::Link;

    #[test]
    fn files_folders_and_links_are_made_as_they_were() {
        let root = tempfile::tempdir().unwrap();
        let layer = tar(&[
            (DIR, "a/", ""),
            (FILE, "a/b", "hello"),
            (LINK, "l", "a/b"),
            (HARD, "h", "a/b"),
            (FILE, "x/y/z", "deep"),
        ]);
        assert_eq!(unpack(&layer[..], root.path()).unwrap(), 9);
        assert_eq!(fs::read_to_string(root.path().join("l")).unwrap(), "hello");
        assert_eq!(fs::metadata(root.path().join("h")).unwrap().nlink(), 2);
        assert_eq!(fs::metadata(root.path().join("a")).unwrap().permissions().mode() & 0o7777, 0o750);
        assert_eq!(fs::metadata(root.path().join("a")).unwrap().mtime(), 1_000_000);
        assert_eq!(fs::read_to_string(root.path().join("x/y/z")).unwrap(), "deep");
    }

    #[test]
    fn nothing_leaves_the_folder() {
        let outside = tempfile::tempdir().unwrap();
        let target = outside.path().join("victim");
        fs::write(&target, "untouched").unwrap();
        let target_text = target.to_string_lossy().into_owned();
        let outside_text = outside.path().to_string_lossy().into_owned();
        let attempts = [
            vec![(FILE, "../victim", "hit")],
            vec![(FILE, "a/../../victim", "hit")],
            vec![(LINK, "d", outside_text.as_str()), (FILE, "d/victim", "hit")],
            vec![(LINK, "d", "../../../../../../../../tmp"), (FILE, "d/victim", "hit")],
            vec![(LINK, "f", target_text.as_str()), (FILE, "f", "hit")],
            vec![(HARD, "f", target_text.as_str()), (FILE, "f", "hit")],
            vec![(LINK, "d", outside_text.as_str()), (FILE, "d/.wh.victim", "")],
            vec![(LINK, "d", outside_text.as_str()), (FILE, "d/.wh..wh..opq", "")],
            vec![(FILE, ".wh...", "")],
        ];
        for attempt in attempts {
            let root = tempfile::tempdir().unwrap();
            // Both are safe: it is refused, or done inside of the root.
            let _ = unpack(&tar(&attempt)[..], root.path());
            assert_eq!(fs::read_to_string(&target).unwrap(), "untouched", "{attempt:?}");
            assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1, "{attempt:?}");
        }
    }

    #[test]
    fn a_layer_takes_away_what_it_marks() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("keep/old")).unwrap();
        fs::create_dir_all(at("gone/deep")).unwrap();
        fs::write(at("file"), "").unwrap();
        symlink("/nowhere", at("link")).unwrap();
        let layer = tar(&[
            (FILE, "keep/new", "n"),
            (FILE, "keep/.wh..wh..opq", ""),
            (FILE, ".wh.gone", ""),
            (FILE, ".wh.file", ""),
            (FILE, ".wh.link", ""),
            (FILE, ".wh.never", ""),
        ]);
        unpack(&layer[..], root.path()).unwrap();
        let left: Vec<_> =
            fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["keep"]);
        assert!(at("keep/new").exists() && !at("keep/old").exists());
    }

    #[test]
    fn a_file_replaces_a_folder_and_the_other_way_round() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        fs::write(root.path().join("c"), "").unwrap();
        unpack(&tar(&[(FILE, "a", "file"), (DIR, "c", "")])[..], root.path()).unwrap();
        assert!(root.path().join("a").is_file() && root.path().join("c").is_dir());
    }
}
