//! Files that change all at once, or not at all.
//!
//! ```text
//!   volume/
//!     ..files.0/          the files as they are
//!     ..data -> ..files.0
//!     name -> ..data/name
//! ```
//!
//! New files are written into a new directory, and a rename replaces `..data` atomically. A process that has opened the
//! old directory still sees the old files; none sees a mix.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown, lchown, symlink,
};
use std::path::{Component, Path, PathBuf};

use plumb_runtime::untrusted;

use super::error::PathError;
use super::owner::{Owner, READ_ONLY};

const DATA: &str = "..data";
const NEXT: &str = "..data_tmp";

/// The content, mode and owner of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct File {
    pub(super) data: Vec<u8>,
    pub(super) mode: u32,
    pub(super) user: Option<u32>,
}

/// Files by their path in the volume.
pub(super) type Files = BTreeMap<PathBuf, File>;

/// A path that stays in the volume and does not collide with the links of the volume itself.
pub(super) fn checked(path: &str) -> Result<PathBuf, PathError> {
    if path.is_empty() {
        return Err(PathError::Empty(String::new()));
    }
    if path.starts_with('/') {
        return Err(PathError::Absolute(path.to_owned()));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(PathError::Parent(path.to_owned()));
    }
    if path.starts_with("..") {
        return Err(PathError::Dots(path.to_owned()));
    }
    let parts = Path::new(path).components().filter(|part| matches!(part, Component::Normal(_)));
    let clean: PathBuf = parts.collect();
    if clean.as_os_str().is_empty() {
        return Err(PathError::Empty(path.to_owned()));
    }
    Ok(clean)
}

/// Whether files were written to a volume before.
pub(super) fn are_written(volume: &Path) -> bool {
    fs::symlink_metadata(volume.join(DATA)).is_ok()
}

/// Writes these files to a volume, unless it has them already.
pub(super) fn write(volume: &Path, files: &Files, owner: Owner) -> io::Result<()> {
    let old = match fs::read_link(volume.join(DATA)) {
        Ok(old) => Some(volume.join(old)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if !old.as_ref().is_some_and(|old| holds(old, files)) {
        let fresh = fresh_folder(volume)?;
        let filled = fill(&fresh, files, owner).and_then(|()| switch_data_link(volume, &fresh));
        if let Err(error) = filled {
            // The old files stay.
            let _ = fs::remove_dir_all(&fresh);
            return Err(error);
        }
    }
    link(volume, files, owner)?;
    let current = fs::read_link(volume.join(DATA))?;
    forget_others(volume, current.as_os_str())
}

/// Whether a directory has these files and no others. A file that cannot be read counts as different.
fn holds(folder: &Path, files: &Files) -> bool {
    let mut found = BTreeSet::new();
    let all_same = files.iter().all(|(path, file)| {
        found.insert(path.clone());
        let path = folder.join(path);
        let length = u64::try_from(file.data.len()).unwrap_or(u64::MAX);
        untrusted::read(&path, length).is_ok_and(|data| data == file.data)
    });
    all_same && list(folder, Path::new("")).is_ok_and(|paths| paths == found)
}

/// The files below a directory.
fn list(folder: &Path, below: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            found.append(&mut list(folder, &path)?);
        } else {
            found.insert(path);
        }
    }
    Ok(found)
}

/// A new directory, with a name that is not used.
fn fresh_folder(volume: &Path) -> io::Result<PathBuf> {
    for number in 0..=u32::from(u16::MAX) {
        let folder = volume.join(format!("..files.{number}"));
        match DirBuilder::new().mode(0o755).create(&folder) {
            Ok(()) => {
                // Set explicitly: the umask of the process does not apply.
                fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
                return Ok(folder);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn fill(folder: &Path, files: &Files, owner: Owner) -> io::Result<()> {
    for (path, file) in files {
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        made.write_all(&file.data)?;
        if file.user.is_some() {
            fchown(&made, file.user, None)?;
        }
        made.set_permissions(Permissions::from_mode(file.mode & 0o777))?;
    }
    owner.take(folder, READ_ONLY)
}

fn switch_data_link(volume: &Path, folder: &Path) -> io::Result<()> {
    let next = volume.join(NEXT);
    match fs::remove_file(&next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    symlink(folder.file_name().unwrap_or_default(), &next)?;
    fs::rename(&next, volume.join(DATA))
}

/// Links to visible entries only.
fn link(volume: &Path, files: &Files, owner: Owner) -> io::Result<()> {
    let wanted: BTreeSet<OsString> =
        files.keys().filter_map(|path| Some(path.components().next()?.as_os_str().to_owned())).collect();
    for name in &wanted {
        let link = volume.join(name);
        match symlink(Path::new(DATA).join(name), &link) {
            Ok(()) => owner.group().map_or(Ok(()), |group| lchown(&link, None, Some(group)))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    for entry in fs::read_dir(volume)? {
        let entry = entry?;
        let ours = fs::read_link(entry.path()).is_ok_and(|to| to.starts_with(DATA));
        if ours && !wanted.contains(&entry.file_name()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Removes directories of replaced files, also unfinished ones.
fn forget_others(volume: &Path, current: &std::ffi::OsStr) -> io::Result<()> {
    for entry in fs::read_dir(volume)? {
        let entry = entry?;
        let name = entry.file_name();
        let old = name.as_encoded_bytes().starts_with(b"..") && name != current;
        if old && entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[(&str, &str)]) -> Files {
        let file = |data: &str| File { data: data.into(), mode: 0o644, user: None };
        all.iter().map(|(path, data)| (PathBuf::from(path), file(data))).collect()
    }

    fn observed(volume: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(volume)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.starts_with(".."))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn readers_see_the_files_that_were_written_last() {
        let volume = tempfile::tempdir().unwrap();
        let volume = volume.path();
        write(volume, &files(&[("a", "1"), ("d/b", "2"), ("d/c", "3")]), Owner::default()).unwrap();
        assert_eq!(observed(volume), ["a", "d"]);
        assert_eq!(fs::read_to_string(volume.join("d/c")).unwrap(), "3");
        let first = fs::read_link(volume.join(DATA)).unwrap();

        write(volume, &files(&[("a", "1"), ("d/b", "2"), ("d/c", "3")]), Owner::default()).unwrap();
        assert_eq!(fs::read_link(volume.join(DATA)).unwrap(), first, "nothing changed");

        write(volume, &files(&[("a", "9"), ("e", "4")]), Owner::default()).unwrap();
        assert_eq!(observed(volume), ["a", "e"]);
        assert_eq!(fs::read_to_string(volume.join("a")).unwrap(), "9");
        assert!(!volume.join(first).exists());

        write(volume, &Files::new(), Owner::default()).unwrap();
        assert!(observed(volume).is_empty());
    }

    #[test]
    fn leftovers_of_an_interrupted_write_are_removed() {
        let volume = tempfile::tempdir().unwrap();
        let volume = volume.path();
        fs::create_dir(volume.join("..files.0")).unwrap();
        symlink("..nowhere", volume.join(NEXT)).unwrap();
        fs::create_dir(volume.join("nested")).unwrap();
        write(volume, &files(&[("a", "1")]), Owner::default()).unwrap();
        assert_eq!(observed(volume), ["a", "nested"]);
        assert!(!volume.join("..files.0").exists());
        assert!(fs::symlink_metadata(volume.join(NEXT)).is_err());
    }

    #[test]
    fn paths_stay_in_the_volume() {
        assert_eq!(checked("a//b/./c").unwrap(), Path::new("a/b/c"));
        for path in ["", "/a", "a/../b", "..", "../a", "..a", "./", "a/.."] {
            assert!(checked(path).is_err(), "{path}");
        }
    }
}
