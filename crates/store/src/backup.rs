//! Backup of a store into one stream, and restore from it.

use std::{
    fs,
    io::{self, BufReader, BufWriter, Read, Write},
    path::Path,
};

use crate::{
    Directory, OpenError, Recovery, Revision, Snapshot, Transformer,
    archive::{self, ArchiveError},
    log,
    transformer::ValueReader,
};

pub(crate) fn write(
    snapshot: &Snapshot,
    writer: impl Write,
    transformer: Option<&dyn Transformer>,
) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(256 << 10, writer);
    archive::write(snapshot, &mut out, transformer, &|| true)?;
    out.flush()
}

/// Restores a store from a backup into a directory that is empty or missing. Returns its revision.
///
/// If the backup is damaged or truncated, the directory does not become a store that could be opened. Transformed values are
/// restored as they are, so that no [`Transformer`] is needed.
pub fn restore(reader: impl Read, directory: impl AsRef<Path>) -> Result<Revision, OpenError> {
    let path = directory.as_ref();
    let failed = |action: &'static str, file: String| move |source| OpenError::Io { action, file, source };
    let is_empty = match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(failed("list", path.display().to_string())(error)),
    };
    if !is_empty {
        return Err(OpenError::NotEmpty(path.to_path_buf()));
    }
    let recovery = read(reader)?;
    let revision = recovery.revision();
    log::create(&Directory::lock(path)?, recovery)?;
    Ok(revision)
}

/// Verifies all checksums of a backup. Returns its revision.
pub fn verify(reader: impl Read) -> Result<Revision, OpenError> {
    read(reader).map(|recovery| recovery.revision())
}

fn read(reader: impl Read) -> Result<Recovery, OpenError> {
    let mut reader = BufReader::with_capacity(256 << 10, reader);
    match archive::read(&mut reader, "the backup", 0, &mut ValueReader::new(None)) {
        Ok(recovery) => Ok(recovery),
        Err(ArchiveError::Damaged(damage)) => Err(damage.into()),
        Err(ArchiveError::Transform(error)) => Err(error.into()),
        Err(ArchiveError::Io(source)) => {
            Err(OpenError::Io { action: "read", file: "the backup".into(), source })
        }
    }
}
