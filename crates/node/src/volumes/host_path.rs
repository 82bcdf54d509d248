//! `hostPath` volumes, and their type checks.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::HostPathVolumeSource;

use super::error::HostPathError;

/// The path, once it is of the requested type.
pub(super) fn ready(source: &HostPathVolumeSource) -> Result<PathBuf, HostPathError> {
    let failed = |error: io::Error| HostPathError::Io { path: source.path.clone(), error };
    let path = PathBuf::from(&source.path);
    // Mounts on the way to the path are followed; `..` is not.
    if !path.is_absolute() || source.path.split('/').any(|part| part == "..") {
        return Err(HostPathError::Invalid(source.path.clone()));
    }
    let found = match fs::metadata(&path) {
        Ok(found) => Some(found.file_type()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    let is = |holds: bool, expected: &'static str| {
        if holds { Ok(()) } else { Err(HostPathError::Type { path: source.path.clone(), expected }) }
    };
    match (source.type_.as_deref().unwrap_or_default(), found) {
        // As container runtimes do for a path without a type.
        ("" | "DirectoryOrCreate", None) => {
            let made = DirBuilder::new().recursive(true).mode(0o755).create(&path);
            made.map_err(failed)?;
        }
        ("", Some(_)) => {}
        ("Directory" | "DirectoryOrCreate", found) => {
            is(found.is_some_and(|found| found.is_dir()), "a directory")?;
        }
        ("FileOrCreate", None) => make_file(&path).map_err(failed)?,
        ("File" | "FileOrCreate", found) => is(found.is_some_and(|found| found.is_file()), "a file")?,
        ("Socket", found) => is(found.is_some_and(|found| found.is_socket()), "a socket file")?,
        ("CharDevice", found) => is(found.is_some_and(|found| found.is_char_device()), "a character device")?,
        ("BlockDevice", found) => is(found.is_some_and(|found| found.is_block_device()), "a block device")?,
        (other, _) => return Err(HostPathError::UnknownType(other.to_owned())),
    }
    Ok(path)
}

fn make_file(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o644).open(path).map(drop)
}
