//! A file that is rotated when it is large, as upstream's (lumberjack): `audit.log` becomes `audit-2026-01-02T03-04-05.678.log`.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;

use super::backups::{Action, Backups, directory};
use super::{Clock, LogOptions, count};

/// Only the user that runs the server may read what others did.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// The file that lines are appended to, and the rotated ones beside it.
pub(super) struct RotatingFile {
    options: LogOptions,
    clock: Clock,
    file: File,
    /// The bytes of the file.
    size: u64,
    /// Whether the last rotation failed, which is logged once.
    stuck: bool,
    /// Compresses rotated files, one thread at a time.
    compression: Option<JoinHandle<()>>,
}

impl RotatingFile {
    pub(super) fn open(options: LogOptions, clock: Clock) -> io::Result<Self> {
        let directory = directory(&options.path);
        if !directory.exists() {
            DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
        }
        let file = append(&options.path)?;
        let size = file.metadata()?.len();
        Ok(Self { options, clock, file, size, stuck: false, compression: None })
    }

    /// Writes lines, and rotates the file between two of them. Else the number of lines that were lost, and why.
    pub(super) fn write(&mut self, mut lines: &[u8]) -> Result<(), (u64, io::Error)> {
        while !lines.is_empty() {
            let is_full = self.size > 0 && !self.fits(first_line(lines));
            // A file that cannot be rotated grows on: that is better than events that are lost.
            let end = if is_full && !self.rotate() { lines.len() } else { self.fitting(lines) };
            let (now, later) = lines.split_at(end);
            if let Err(error) = self.file.write_all(now) {
                // What was written of the lines is removed, so that none is there in part.
                let _ = self.file.set_len(self.size);
                return Err((count(lines), error));
            }
            self.size += now.len() as u64;
            lines = later;
        }
        Ok(())
    }

    /// Waits until rotated files are compressed.
    pub(super) fn close(self) {
        if let Some(compression) = self.compression {
            join(compression);
        }
    }

    fn fits(&self, bytes: usize) -> bool {
        self.options.max_size == 0 || self.size + bytes as u64 <= self.options.max_size
    }

    /// How many bytes are written to the current file: whole lines that fit, but at least one.
    fn fitting(&self, lines: &[u8]) -> usize {
        if self.fits(lines.len()) {
            return lines.len();
        }
        let mut end = first_line(lines);
        while end < lines.len() {
            let next = end + first_line(&lines[end..]);
            if !self.fits(next) {
                break;
            }
            end = next;
        }
        end
    }

    /// Renames the file and begins a new one. Returns whether that succeeded.
    fn rotate(&mut self) -> bool {
        let backups = Backups::new(&self.options.path);
        let now = (self.clock)();
        if let Err(error) = self.replace(&backups.free_path(now)) {
            if !std::mem::replace(&mut self.stuck, true) {
                let path = self.options.path.display();
                tracing::error!(%error, %path, "cannot rotate the audit log: it grows on");
            }
            return false;
        }
        self.stuck = false;
        if let Err(error) = self.clean_up(&backups, now) {
            let path = self.options.path.display();
            tracing::error!(%error, %path, "cannot remove or compress rotated audit logs");
        }
        true
    }

    fn replace(&mut self, backup: &Path) -> io::Result<()> {
        fs::rename(&self.options.path, backup)?;
        let new = append(&self.options.path).inspect_err(|_| {
            // The open file goes on under its own name.
            let _ = fs::rename(backup, &self.options.path);
        })?;
        (self.file, self.size) = (new, 0);
        Ok(())
    }

    fn clean_up(&mut self, backups: &Backups, now: Timestamp) -> io::Result<()> {
        let mut compressed = Vec::new();
        for action in backups.plan(now, &self.options)? {
            match action {
                Action::Remove(path) => fs::remove_file(path)?,
                Action::Compress(path) => compressed.push(path),
            }
        }
        // What is left out while another thread compresses is found at the next rotation.
        if !compressed.is_empty() && self.compression.as_ref().is_none_or(JoinHandle::is_finished) {
            let work = move || compressed.iter().for_each(|path| compress(path));
            let thread = thread::Builder::new().name("audit-compress".to_owned());
            if let Some(finished) = self.compression.replace(thread.spawn(work)?) {
                join(finished);
            }
        }
        Ok(())
    }
}

/// The length of the first line, with its newline.
fn first_line(lines: &[u8]) -> usize {
    lines.iter().position(|byte| *byte == b'\n').map_or(lines.len(), |end| end + 1)
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(FILE_MODE).open(path)
}

/// Replaces a rotated file by a compressed one.
fn compress(path: &Path) {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    let target = PathBuf::from(name);
    let compressed = try_compress(path, &target).and_then(|()| fs::remove_file(path));
    if let Err(error) = compressed {
        tracing::error!(%error, path = %path.display(), "cannot compress a rotated audit log");
        let _ = fs::remove_file(target);
    }
}

fn try_compress(path: &Path, target: &Path) -> io::Result<()> {
    let mut source = File::open(path)?;
    let target = OpenOptions::new().create(true).write(true).truncate(true).mode(FILE_MODE).open(target)?;
    let mut encoder = GzEncoder::new(target, Compression::default());
    io::copy(&mut source, &mut encoder)?;
    encoder.finish()?.sync_all()
}

fn join(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        tracing::error!("the thread that compresses audit logs panicked");
    }
}
