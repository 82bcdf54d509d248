//! The files of the repository.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The directory of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The file at a path, or the files below it that have one of these extensions, sorted.
pub fn files(path: &Path, extensions: &[&str]) -> io::Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut all = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // cargo marks its build directories, such as that of the fuzz targets.
        if !entry.path().join("CACHEDIR.TAG").exists() {
            all.extend(files(&entry.path(), extensions)?);
        }
    }
    all.retain(|file| {
        file.extension().is_some_and(|own| extensions.iter().any(|extension| own == *extension))
    });
    all.sort();
    Ok(all)
}

/// The Rust files below a directory; none if there is no such directory.
pub fn sources(directory: &Path) -> io::Result<Vec<PathBuf>> {
    if directory.is_dir() { files(directory, &["rs"]) } else { Ok(Vec::new()) }
}
