//! Cgroup files: small, and every mistake names the file.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use super::error::{CgroupError, Result};

pub(super) fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).map_err(|error| CgroupError::refused("reading", file, error))
}

/// Whether there is no such file. The kernel answers `ENODEV` for a group that was removed after the file was opened.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

/// The content of a file, or `None` if it does not exist.
pub(super) fn read_if_there(file: &Path) -> Result<Option<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(CgroupError::refused("reading", file, error)),
    }
}

/// Writes in one system call, as the kernel requires. The file is not created.
pub(super) fn write(file: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    let written = fs::OpenOptions::new().write(true).truncate(false).open(file);
    let written = written.and_then(|mut open| open.write_all(text.as_ref()));
    written.map_err(|error| CgroupError::refused("writing", file, error))
}

/// Writes if the file exists; returns whether it does.
pub(super) fn write_if_there(file: &Path, text: impl AsRef<[u8]>) -> Result<bool> {
    match write(file, text) {
        Ok(()) => Ok(true),
        Err(error) if error.is_missing() => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) fn number<T: std::str::FromStr>(file: &Path) -> Result<T> {
    let text = line(file).map_err(|error| CgroupError::refused("reading", file, error))?;
    text.trim().parse().map_err(|_| CgroupError::malformed(file, text))
}

pub(super) fn number_if_there<T: std::str::FromStr>(file: &Path) -> Result<Option<T>> {
    match line(file) {
        Ok(text) => text.trim().parse().map(Some).map_err(|_| CgroupError::malformed(file, text)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(CgroupError::refused("reading", file, error)),
    }
}

/// A file of one short line, which the kernel gives in one piece: limits are read many times for every resize, and
/// asking how long the file is and whether there is more costs more than reading it.
fn line(file: &Path) -> io::Result<String> {
    let mut bytes = [0; 64];
    let count = fs::File::open(file)?.read(&mut bytes)?;
    String::from_utf8(bytes.get(..count).unwrap_or_default().to_vec())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// The numbers of a file that holds a name and a number on each line.
pub(super) struct Keyed(String);

impl Keyed {
    pub(super) fn read(file: &Path) -> Result<Self> {
        read(file).map(Self)
    }

    pub(super) fn read_if_there(file: &Path) -> Result<Option<Self>> {
        Ok(read_if_there(file)?.map(Self))
    }

    /// The number under a name, zero if it is not there.
    pub(super) fn get(&self, name: &str) -> u64 {
        let found = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
    }
}
