//! From a layer to files, with nothing left outside.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, chmodat, chownat, lsetxattr,
    makedev, mkdirat, mknodat, openat, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use tar::EntryType;

use crate::place::{Place, path_of};

/// Names a layer takes away begin with it.
const WHITEOUT: &[u8] = b".wh.";
/// Takes away all that lower layers have in a folder.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Other names that begin so are some tool's own.
const RESERVED: &[u8] = b".wh..wh.";

/// Unpacks a layer onto what is at `root`. Nothing is made, changed or removed outside, whatever the layer says:
/// links are followed as if `root` were the root.
pub(super) fn unpack(layer: impl Read, root: &Path) -> io::Result<u64> {
    let mut unpacking =
        Unpacking { place: Place::open(root)?, made: HashSet::new(), folders: BTreeMap::new(), size: 0 };
    let mut archive = tar::Archive::new(layer);
    archive.set_ignore_zeros(false);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry.path_bytes().into_owned();
        unpacking.entry(&mut entry, &name).map_err(|error| {
            io::Error::new(error.kind(), format!("unpacking {:?}: {error}", String::from_utf8_lossy(&name)))
        })?;
    }
    unpacking.finish()
}

struct Unpacking {
    place: Place,
    /// What this layer made itself: not taken away when it makes a folder opaque.
    made: HashSet<PathBuf>,
    /// Times of folders are set in the end, for making files in them changes them.
    folders: BTreeMap<PathBuf, Timestamps>,
    size: u64,
}

impl Unpacking {
    fn entry<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>, name: &[u8]) -> io::Result<()> {
        let kind = entry.header().entry_type();
        if matches!(
            kind,
            EntryType::XGlobalHeader | EntryType::XHeader | EntryType::GNULongName | EntryType::GNULongLink
        ) {
            return Ok(());
        }
        let path = inside(name)?;
        let Some(file_name) = path.file_name() else {
            // The root itself: its rights matter, there is nothing to make.
            let root = self.place.find("/")?;
            return self.attributes(entry, &root, OsStr::new("."), &path, kind);
        };
        let above = path.parent().unwrap_or(Path::new(""));
        let folder = self.place.make_folder(above)?;
        if file_name.as_bytes() == OPAQUE {
            return self.clear(&folder, above);
        }
        if file_name.as_bytes().starts_with(RESERVED) {
            return Ok(());
        }
        if let Some(hidden) = file_name.as_bytes().strip_prefix(WHITEOUT) {
            let hidden = inside(hidden)?;
            let Some(hidden) = hidden.file_name() else { return Err(escapes()) };
            return remove(&folder, hidden);
        }
        self.make(entry, kind, &folder, file_name)?;
        self.made.insert(path.clone());
        if !kind.is_hard_link() {
            self.attributes(entry, &folder, file_name, &path, kind)?;
        }
        Ok(())
    }

    fn make<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        kind: EntryType,
        folder: &OwnedFd,
        name: &OsStr,
    ) -> io::Result<()> {
        let there = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(FileType::from_raw_mode(stat.st_mode)),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(errno.into()),
        };
        match there {
            Some(FileType::Directory) if kind.is_dir() => return Ok(()),
            Some(_) => remove(folder, name)?,
            None => {}
        }
        match kind {
            EntryType::Directory => mkdirat(folder, name, Mode::from_raw_mode(0o755))?,
            EntryType::Symlink => {
                let target = entry.link_name_bytes().ok_or_else(|| io::Error::other("a link to nowhere"))?;
                symlinkat(OsStr::from_bytes(&target), folder, name)?;
            }
            EntryType::Link => {
                let target = entry.link_name_bytes().ok_or_else(|| io::Error::other("a link to nowhere"))?;
                let target = inside(&target)?;
                let Some(target_name) = target.file_name() else { return Err(escapes()) };
                let above = target.parent().unwrap_or(Path::new(""));
                let from = self.place.find(above)?;
                rustix::fs::linkat(from, target_name, folder, name, AtFlags::empty())?;
            }
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                let header = entry.header();
                let device =
                    makedev(header.device_major()?.unwrap_or(0), header.device_minor()?.unwrap_or(0));
                let file_type = match kind {
                    EntryType::Char => FileType::CharacterDevice,
                    EntryType::Block => FileType::BlockDevice,
                    _ => FileType::Fifo,
                };
                mknodat(folder, name, file_type, Mode::from_raw_mode(0o600), device)?;
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let flags =
                    OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = openat(folder, name, flags, Mode::from_raw_mode(0o600))?;
                self.size += io::copy(entry, &mut std::fs::File::from(file))?;
            }
            other => return Err(io::Error::other(format!("an entry of kind {other:?}"))),
        }
        Ok(())
    }

    fn attributes<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        folder: &OwnedFd,
        name: &OsStr,
        path: &Path,
        kind: EntryType,
    ) -> io::Result<()> {
        let header = entry.header().clone();
        // Some tools leave numbers out that they don't care about.
        let (uid, gid) = (owner(header.uid().unwrap_or(0))?, owner(header.gid().unwrap_or(0))?);
        chownat(folder, name, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::SYMLINK_NOFOLLOW)?;
        if !kind.is_symlink() {
            // After the owner: changing that takes set-user bits away.
            chmodat(
                folder,
                name,
                Mode::from_raw_mode(header.mode().unwrap_or(0o644) & 0o7777),
                AtFlags::empty(),
            )?;
        }
        self.extended(entry, folder, name)?;
        let seconds = i64::try_from(header.mtime().unwrap_or(0)).unwrap_or(0);
        let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        if kind.is_dir() {
            self.folders.insert(path.to_owned(), times);
        } else {
            utimensat(folder, name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    /// File capabilities and the like. Those that this file system has no room for are left out.
    #[expect(clippy::unused_self, reason = "one of several steps of the same kind")]
    fn extended<R: Read>(
        &self,
        entry: &mut tar::Entry<'_, R>,
        folder: &OwnedFd,
        name: &OsStr,
    ) -> io::Result<()> {
        let Some(extensions) = entry.pax_extensions()? else { return Ok(()) };
        for extension in extensions {
            let extension = extension?;
            let Some(attribute) = extension.key_bytes().strip_prefix(b"SCHILY.xattr.") else { continue };
            // Overlay's own marks are not the layer's to set.
            if attribute.starts_with(b"trusted.") {
                continue;
            }
            let at = path_of(folder).join(name);
            match lsetxattr(&at, OsStr::from_bytes(attribute), extension.value_bytes(), XattrFlags::empty()) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::PERM) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Takes away what lower layers have in a folder.
    fn clear(&self, folder: &OwnedFd, path: &Path) -> io::Result<()> {
        for entry in std::fs::read_dir(path_of(folder))? {
            let name = entry?.file_name();
            if !self.made.contains(&path.join(&name)) {
                remove(folder, &name)?;
            }
        }
        Ok(())
    }

    fn finish(self) -> io::Result<u64> {
        for (path, times) in &self.folders {
            // Taken away again by the same layer, perhaps.
            if let Ok(folder) = self.place.find(path) {
                let folder = path_of(&folder);
                utimensat(rustix::fs::CWD, &folder, times, AtFlags::empty())?;
            }
        }
        Ok(self.size)
    }
}

fn escapes() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the path leads out of the image")
}

/// A path of the layer without a leading slash; one that climbs is refused.
fn inside(name: &[u8]) -> io::Result<PathBuf> {
    let path = PathBuf::from(OsString::from_vec(name.to_vec()));
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => plain.push(part),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err(escapes()),
        }
    }
    Ok(plain)
}

fn owner(id: u64) -> io::Result<u32> {
    u32::try_from(id)
        .ok()
        .filter(|id| *id != u32::MAX)
        .ok_or_else(|| io::Error::other("an owner that cannot be"))
}

/// Removes what is there, with all that is in it, links themselves and not what they lead to.
fn remove(folder: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match unlinkat(folder.as_fd(), name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => std::fs::remove_dir_all(path_of(folder).join(name)),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

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
            // As somebody would who means harm: the crate itself refuses such names.
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
            // Refused or done inside, both are well.
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
