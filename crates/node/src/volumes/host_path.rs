//! What a volume that is a path of the machine must be.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::HostPathVolumeSource;

/// The path, once it is what was asked for.
pub(super) fn ready(source: &HostPathVolumeSource) -> Result<PathBuf, String> {
    let path = PathBuf::from(&source.path);
    // On the way to a path whatever is mounted there counts; nothing else may lead elsewhere.
    if !path.is_absolute() || source.path.split('/').any(|part| part == "..") {
        return Err(format!("invalid hostPath: {}", source.path));
    }
    let found = match fs::metadata(&path) {
        Ok(found) => Some(found.file_type()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(format!("{}: {error}", source.path)),
    };
    let is = |holds: bool, what: &str| {
        if holds { Ok(()) } else { Err(format!("hostPath type check failed: {} is not {what}", source.path)) }
    };
    match (source.type_.as_deref().unwrap_or_default(), found) {
        // As container runtimes do for a path of which nothing is said.
        ("" | "DirectoryOrCreate", None) => {
            let made = DirBuilder::new().recursive(true).mode(0o755).create(&path);
            made.map_err(|error| format!("{}: {error}", source.path))?;
        }
        ("", Some(_)) => {}
        ("Directory" | "DirectoryOrCreate", found) => {
            is(found.is_some_and(|found| found.is_dir()), "a directory")?;
        }
        ("FileOrCreate", None) => make_file(&path).map_err(|error| format!("{}: {error}", source.path))?,
        ("File" | "FileOrCreate", found) => is(found.is_some_and(|found| found.is_file()), "a file")?,
        ("Socket", found) => is(found.is_some_and(|found| found.is_socket()), "a socket file")?,
        ("CharDevice", found) => is(found.is_some_and(|found| found.is_char_device()), "a character device")?,
        ("BlockDevice", found) => is(found.is_some_and(|found| found.is_block_device()), "a block device")?,
        (other, _) => return Err(format!("{other} is an invalid volume type")),
    }
    Ok(path)
}

fn make_file(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o644).open(path).map(drop)
}
