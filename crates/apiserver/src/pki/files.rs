//! Small files that are complete or absent.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
};

/// Only the owner may read the file.
pub(crate) const PRIVATE: u32 = 0o600;
/// All users may read the file.
pub(crate) const PUBLIC: u32 = 0o644;

/// Far above the size of any certificate, kubeconfig or token file.
const MAX_SIZE: u64 = 16 << 20;

/// A file operation failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}", path.display())]
pub struct FileError {
    doing: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl FileError {
    /// The file or directory concerned.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn new(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self { doing, path: path.to_owned(), source }
    }
}

/// Creates a directory that only its owner may enter, and its parents. An existing one is unchanged.
pub(crate) fn private_directory(path: &Path) -> Result<(), FileError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(FileError::new("create directory", path))
}

/// The contents of a file, or `None` if there is none.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FileError::new("open", path)(error)),
    };
    let mut bytes = Vec::new();
    // One byte more than allowed distinguishes a longer file.
    let size = file.take(MAX_SIZE + 1).read_to_end(&mut bytes).map_err(FileError::new("read", path))?;
    if size as u64 > MAX_SIZE {
        let error = io::Error::new(io::ErrorKind::FileTooLarge, "larger than any such file");
        return Err(FileError::new("read", path)(error));
    }
    Ok(Some(bytes))
}

/// The content of a file that only its owner should be able to read; removes the permissions of other users. `None` if there
/// is no such file.
pub fn read_private(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    let mode = fs::metadata(path).map_err(FileError::new("examine", path))?.permissions().mode();
    if mode & 0o077 != 0 {
        tracing::warn!(
            file = %path.display(),
            mode = format_args!("{:o}", mode & 0o777),
            "others could read this secret; its mode is now 600"
        );
        fs::set_permissions(path, Permissions::from_mode(PRIVATE))
            .map_err(FileError::new("restrict", path))?;
    }
    Ok(Some(bytes))
}

/// Writes `text` to `path` atomically and durably: a reader, also after a crash, finds the old file or the new one. The new
/// file has the owner of the old one: root writes into the kubeconfigs of other users.
pub(crate) fn replace(path: &Path, text: &str, mode: u32) -> Result<(), FileError> {
    let temporary = beside(path, ".new");
    // A crash left it. Its permissions may be wrong, so that it is not overwritten.
    remove(&temporary)?;
    let owner = fs::metadata(path).ok().map(|old| (old.uid(), old.gid()));
    let written = write_new(&temporary, text, mode, owner).and_then(|()| {
        fs::rename(&temporary, path).map_err(FileError::new("replace", path))?;
        sync_parent(path)
    });
    if written.is_err() {
        // Best effort: the first error is returned, and the next attempt removes the file.
        drop(fs::remove_file(&temporary));
    }
    written
}

/// Removes a file, if it is there.
pub(crate) fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::new("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Creates a new file with `text`, durably. An existing file or link is an error.
pub(crate) fn create(path: &Path, text: &str, mode: u32) -> Result<(), FileError> {
    write_new(path, text, mode, None)?;
    sync_parent(path)
}

/// `path` with `suffix` at the end of its name.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn write_new(path: &Path, text: &str, mode: u32, owner: Option<(u32, u32)>) -> Result<(), FileError> {
    let create = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut file = create.map_err(FileError::new("create", path))?;
    // The mode at creation is cut by the process's umask; this one is exact.
    file.set_permissions(Permissions::from_mode(mode)).map_err(FileError::new("set the mode of", path))?;
    if let Some((user, group)) = owner {
        // Only root can change the owner; a file that another user replaces is that user's.
        drop(fchown(&file, Some(user), Some(group)));
    }
    file.write_all(text.as_bytes()).map_err(FileError::new("write", path))?;
    file.sync_all().map_err(FileError::new("sync", path))
}

/// Makes a rename in the directory of `path` durable.
fn sync_parent(path: &Path) -> Result<(), FileError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent).and_then(|directory| directory.sync_all()).map_err(FileError::new("sync", parent))
}
