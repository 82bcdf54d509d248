//! Opening of a store: recovery from the files in its directory, with all checksums verified.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
    sync::Arc,
};

use super::{
    Log, Tail, UNFINISHED, checkpoint_name,
    frame::{self, FILE_HEADER, Found, Reader},
    log_name, write_checkpoint,
};
use crate::{
    Damage, Disk, DiskFile, OpenError, Options, Recovery, Revision, Snapshot,
    archive::{self, ArchiveError},
    codec::{DecodeError, Decoder},
    disk::Sequential,
    transformer::ValueReader,
};

const FORMAT_FILE: &str = "FORMAT";
const FORMAT: &str = "plumb-store 1";
/// The prefix of the format in all versions.
const FORMAT_OF_ANY_VERSION: &str = "plumb-store ";

/// Whether a directory contains a store, of any version. Creates and locks nothing.
pub fn is_store(directory: impl AsRef<Path>) -> bool {
    let mut found = Vec::new();
    let read = File::open(directory.as_ref().join(FORMAT_FILE))
        .and_then(|file| file.take(256).read_to_end(&mut found));
    read.is_ok() && found.starts_with(FORMAT_OF_ANY_VERSION.as_bytes())
}

/// The names of the files of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    Log(Revision),
    Checkpoint(Revision),
}

impl Name {
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (kind, digits) = name.split_once('-')?;
        let revision = digits.parse().ok()?;
        let parsed = match kind {
            "log" => Self::Log(revision),
            "checkpoint" => Self::Checkpoint(revision),
            _ => return None,
        };
        (parsed.to_string() == name).then_some(parsed)
    }

    pub(super) fn revision(self) -> Revision {
        let (Self::Log(revision) | Self::Checkpoint(revision)) = self;
        revision
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&match self {
            Self::Log(base) => log_name(*base),
            Self::Checkpoint(revision) => checkpoint_name(*revision),
        })
    }
}

/// Adds the action and the file to an error.
fn failed(disk: &dyn Disk, action: &'static str, name: &str) -> impl FnOnce(io::Error) -> OpenError + use<> {
    let file = disk.describe(name);
    move |source| OpenError::Io { action, file, source }
}

impl Log {
    /// Opens the log on a disk, or creates one on an empty disk. Returns the recovered state too.
    pub(crate) fn open(disk: Arc<dyn Disk>, options: &Options) -> Result<(Self, Recovery), OpenError> {
        prepare(disk.as_ref())?;
        let names = disk.names().map_err(failed(disk.as_ref(), "list", ""))?;
        let names: Vec<Name> = names.iter().filter_map(|name| Name::parse(name)).collect();
        let newest =
            names.iter().filter(|name| matches!(name, Name::Checkpoint(_))).map(|name| name.revision()).max();
        let mut values = ValueReader::new(options.transformer.as_deref());
        let (mut recovery, checkpoint) = match newest {
            Some(revision) => load(disk.as_ref(), revision, options.history, &mut values)?,
            None => (Recovery::new(0, options.history), 0),
        };
        let start = newest.unwrap_or(0);
        let mut bases: Vec<Revision> = names
            .iter()
            .filter(|name| matches!(name, Name::Log(base) if *base >= start))
            .map(|n| n.revision())
            .collect();
        bases.sort_unstable();
        let mut tail = None;
        let mut older = 0;
        for (at, base) in bases.iter().enumerate() {
            if *base != recovery.revision() {
                break;
            }
            let last = at + 1 == bases.len();
            let log = replay(disk.as_ref(), *base, last, &mut recovery, &mut values)?;
            older += tail.replace(log).map_or(0, |log: Tail| log.offset);
        }
        let complete = bases.last() == tail.as_ref().map(|log| log.base).as_ref();
        let Some(tail) = tail.filter(|_| complete) else {
            let what = format!("the log after revision {} is missing", recovery.revision());
            let file = disk.describe(&log_name(recovery.revision()));
            return Err(Damage { file, offset: 0, what }.into());
        };
        // These are left over from a crash after a checkpoint, before the files that it supersedes were removed.
        for name in names.iter().filter(|name| name.revision() < start) {
            let name = name.to_string();
            disk.remove(&name).map_err(failed(disk.as_ref(), "remove", &name))?;
        }
        let log = Self {
            disk,
            tail,
            older,
            frame: Vec::new(),
            min_bytes: options.checkpoint,
            checkpoint,
            running: None,
            is_stale: values.is_stale,
            transformer: options.transformer.clone(),
        };
        Ok((log, recovery))
    }

    /// Whether a value in the files is stored otherwise than the transformer would store it now.
    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Writes all objects to a new checkpoint, as the transformer stores them now, and removes the files before it: also those
    /// with values that were replaced or deleted later. The files are in the same order as with any checkpoint, so that a
    /// crash meanwhile loses nothing, and the next start repeats it.
    pub(crate) fn rewrite(&mut self, durable: &Snapshot) -> Result<(), OpenError> {
        let disk = self.disk.as_ref();
        let revision = durable.revision;
        if self.tail.base < revision {
            self.tail = Tail::create(disk, revision).map_err(io::Error::from).map_err(failed(
                disk,
                "create",
                &log_name(revision),
            ))?;
        }
        self.checkpoint = write_checkpoint(disk, durable, self.transformer.as_deref(), &|| true)
            .map_err(failed(disk, "write", &checkpoint_name(revision)))?;
        self.older = 0;
        self.is_stale = false;
        tracing::info!(
            objects = durable.len(),
            revision,
            "rewrote all objects, since some were stored in another form than now"
        );
        Ok(())
    }
}

/// Ensures that the disk has a store with a supported format, and removes unfinished files.
fn prepare(disk: &dyn Disk) -> Result<(), OpenError> {
    let names = disk.names().map_err(failed(disk, "list", ""))?;
    let (unfinished, names): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|name| name.ends_with(UNFINISHED));
    if !names.iter().any(|name| name == FORMAT_FILE) {
        // A crash during the first start leaves at most an empty log.
        if let Some(other) = names.iter().find(|name| **name != log_name(0)) {
            return Err(OpenError::NotAStore { file: disk.describe(other) });
        }
        let mut values = ValueReader::new(None);
        if !names.is_empty()
            && replay(disk, 0, true, &mut Recovery::new(0, 0), &mut values)?.offset > FILE_HEADER as u64
        {
            let what = "it is missing, although there is a log with writes".into();
            return Err(Damage { file: disk.describe(FORMAT_FILE), offset: 0, what }.into());
        }
        Tail::create(disk, 0).map_err(io::Error::from).map_err(failed(disk, "create", &log_name(0)))?;
        return name_format(disk);
    }
    let mut found = String::new();
    let file = disk.open(FORMAT_FILE).map_err(failed(disk, "open", FORMAT_FILE))?;
    let mut start = Sequential { file, offset: 0 }.take(256);
    let read = start.read_to_string(&mut found);
    match read {
        Err(error) if error.kind() != io::ErrorKind::InvalidData => {
            return Err(failed(disk, "read", FORMAT_FILE)(error));
        }
        _ if found.trim_end() != FORMAT => {
            return Err(OpenError::Format { file: disk.describe(FORMAT_FILE), found, known: FORMAT });
        }
        _ => {}
    }
    for name in unfinished.iter().filter(|name| Name::parse(name.trim_end_matches(UNFINISHED)).is_some()) {
        disk.remove(name).map_err(failed(disk, "remove", name))?;
    }
    Ok(())
}

fn name_format(disk: &dyn Disk) -> Result<(), OpenError> {
    let write = || {
        let unfinished = format!("{FORMAT_FILE}{UNFINISHED}");
        let file = disk.create(&unfinished)?;
        file.write_all_at(format!("{FORMAT}\n").as_bytes(), 0)?;
        file.sync()?;
        disk.rename(&unfinished, FORMAT_FILE)?;
        disk.sync()
    };
    write().map_err(failed(disk, "write", FORMAT_FILE))
}

/// Creates a store on an empty disk from a recovered state, whose values are stored as they are.
pub(crate) fn create(disk: &dyn Disk, known: Recovery) -> Result<(), OpenError> {
    let snapshot = known.finish();
    let name = checkpoint_name(snapshot.revision);
    write_checkpoint(disk, &snapshot, None, &|| true).map_err(failed(disk, "write", &name))?;
    let name = log_name(snapshot.revision);
    Tail::create(disk, snapshot.revision).map_err(io::Error::from).map_err(failed(disk, "create", &name))?;
    name_format(disk)
}

fn load(
    disk: &dyn Disk,
    revision: Revision,
    history: usize,
    values: &mut ValueReader<'_>,
) -> Result<(Recovery, u64), OpenError> {
    let name = checkpoint_name(revision);
    let file = disk.open(&name).map_err(failed(disk, "open", &name))?;
    let size = file.size().map_err(failed(disk, "read", &name))?;
    let mut input = BufReader::with_capacity(256 << 10, Sequential { file, offset: 0 });
    match archive::read(&mut input, &disk.describe(&name), history, values) {
        Ok(recovery) if recovery.revision() == revision => Ok((recovery, size)),
        Ok(other) => {
            let what = format!("it has revision {}", other.revision());
            Err(Damage { file: disk.describe(&name), offset: 0, what }.into())
        }
        Err(ArchiveError::Damaged(damage)) => Err(damage.into()),
        Err(ArchiveError::Transform(error)) => Err(error.into()),
        Err(ArchiveError::Io(error)) => Err(failed(disk, "read", &name)(error)),
    }
}

/// Overwrites a torn frame with zeros. The header comes last, so that after a crash meanwhile the next start still recognises
/// the frame as torn.
fn blank(file: &dyn DiskFile, offset: u64, until: u64) -> io::Result<()> {
    let body = until.min(offset + frame::HEADER as u64);
    for (from, to) in [(body, until), (offset, body)] {
        file.write_all_at(&vec![0; usize::try_from(to - from).unwrap_or(0)], from)?;
        file.sync()?;
    }
    Ok(())
}

/// Replays one log. Only the last one may end in a torn batch.
fn replay(
    disk: &dyn Disk,
    base: Revision,
    last: bool,
    recovery: &mut Recovery,
    values: &mut ValueReader<'_>,
) -> Result<Tail, OpenError> {
    let name = log_name(base);
    let damage = |offset: u64, what: String| Damage { file: disk.describe(&name), offset, what };
    let unreadable = |error| failed(disk, "read", &name)(error);
    let file = disk.open(&name).map_err(failed(disk, "open", &name))?;
    let mut reader = Reader::new(file).map_err(unreadable)?;
    if !reader.check_header(base).map_err(unreadable)? {
        return Err(damage(0, "the header of the log is wrong".into()).into());
    }
    let id = frame::file_header(base).1;
    let mut offset = FILE_HEADER as u64;
    let mut torn = None;
    loop {
        match reader.find(offset, id).map_err(unreadable)? {
            Found::End => break,
            Found::Torn { until } if last => {
                torn = Some(until);
                break;
            }
            Found::Torn { .. } => {
                return Err(
                    damage(offset, "a batch is truncated, although there is a later log".into()).into()
                );
            }
            Found::Damaged(what) => return Err(damage(offset, what.into()).into()),
            Found::Frame { header, payload, next } => {
                let mut decoder = Decoder(payload);
                for (revision, _) in (header.first..).zip(0..header.events) {
                    let record = decoder.record(values).map_err(|error| match error {
                        DecodeError::Malformed(what) => damage(offset, what.0.into()).into(),
                        DecodeError::Transform(error) => OpenError::from(error),
                    })?;
                    recovery.replay(revision, record).map_err(|error| damage(offset, error.to_string()))?;
                }
                if !decoder.is_empty() {
                    return Err(damage(offset, "a batch has more bytes than events".into()).into());
                }
                offset = next;
            }
        }
    }
    let filled = reader.size.max(offset);
    let file = reader.into_file();
    if let Some(until) = torn {
        tracing::warn!(
            file = disk.describe(&name),
            offset,
            bytes = until - offset,
            "removed a truncated batch, which was never acknowledged"
        );
        blank(file.as_ref(), offset, until).map_err(failed(disk, "repair", &name))?;
    }
    Ok(Tail { base, name, file, id, offset, filled })
}
