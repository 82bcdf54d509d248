//! A container's log, in the CRI's format: time, stream, whole (`F`) or part (`P`) of a line, text.
//!
//! Lines that cannot be written, on a full disk for example, are dropped and counted: the container does not block,
//! and the shim does not grow. The next line that can be written is preceded by the number of missing lines.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use jiff::Timestamp;

use super::spec::LogSpec;
use crate::log_rotation::move_aside;

/// A line that is longer is written in parts of this size.
pub(super) const LONGEST_PART: usize = 16 << 10;

/// The file, moved aside when it has grown large.
pub(super) struct Log {
    spec: LogSpec,
    file: Option<File>,
    size: u64,
    /// So that a line and what precedes it goes out in one write. Empty between two calls.
    buffer: Vec<u8>,
    /// How many lines are in it.
    buffered: u64,
    /// Lines that could not be written, and are lost.
    dropped: Dropped,
}

/// The lines that could not be written since the last successful write.
#[derive(Default)]
struct Dropped {
    lines: u64,
    /// The last error.
    why: String,
}

/// One of the two streams that lead into it.
pub(super) struct Stream {
    name: &'static str,
    /// The data since the last end of line.
    rest: Vec<u8>,
}

impl Stream {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, rest: Vec::new() }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }
}

impl Log {
    pub(super) fn open(spec: LogSpec) -> io::Result<Self> {
        let mut log =
            Self { spec, file: None, size: 0, buffer: Vec::new(), buffered: 0, dropped: Dropped::default() };
        log.reopen()?;
        Ok(log)
    }

    /// Reopens the file by its name, after the old one was moved.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        // A FIFO or a link in its place is not a log.
        options.append(true).create(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(&self.spec.path)?;
        self.size = file.metadata()?.len();
        self.file = Some(file);
        Ok(())
    }

    /// Takes what came over a stream.
    pub(super) fn take(&mut self, stream: &mut Stream, mut bytes: &[u8], now: Timestamp) -> io::Result<()> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, after) = (&bytes[..end], &bytes[end + 1..]);
            if stream.rest.is_empty() {
                self.parts(stream.name, line, true, now);
            } else {
                let mut whole = std::mem::take(&mut stream.rest);
                whole.extend_from_slice(line);
                self.parts(stream.name, &whole, true, now);
            }
            bytes = after;
        }
        stream.rest.extend_from_slice(bytes);
        if stream.rest.len() >= LONGEST_PART {
            let long = std::mem::take(&mut stream.rest);
            let whole_parts = long.len() - long.len() % LONGEST_PART;
            self.parts(stream.name, &long[..whole_parts], false, now);
            stream.rest = long[whole_parts..].to_vec();
        }
        self.flush(now)
    }

    /// A stream has ended: data without an end of line is a partial line.
    pub(super) fn end(&mut self, stream: &mut Stream, now: Timestamp) -> io::Result<()> {
        let rest = std::mem::take(&mut stream.rest);
        if !rest.is_empty() {
            self.parts(stream.name, &rest, false, now);
        }
        self.flush(now)
    }

    fn parts(&mut self, stream: &str, line: &[u8], ends: bool, now: Timestamp) {
        let mut parts = line.chunks(LONGEST_PART).peekable();
        if parts.peek().is_none() {
            self.line(stream, b"", b'F', now);
        }
        while let Some(part) = parts.next() {
            let tag = if ends && parts.peek().is_none() { b'F' } else { b'P' };
            self.line(stream, part, tag, now);
        }
    }

    fn line(&mut self, stream: &str, text: &[u8], tag: u8, now: Timestamp) {
        // Writing into memory does not fail.
        let _ = write!(self.buffer, "{now:.9} {stream} ");
        self.buffer.extend([tag, b' ']);
        self.buffer.extend(text);
        self.buffer.push(b'\n');
        self.buffered += 1;
    }

    /// Writes the buffer, or drops it.
    fn flush(&mut self, now: Timestamp) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let buffer = std::mem::take(&mut self.buffer);
        let lines = std::mem::take(&mut self.buffered);
        let written = self.note_dropped(now).and_then(|()| self.append(&buffer));
        self.buffer = buffer;
        self.buffer.clear();
        self.buffer.shrink_to(LONGEST_PART);
        if let Err(error) = written {
            self.dropped.lines = self.dropped.lines.saturating_add(lines);
            self.dropped.why = error.to_string();
            return Err(error);
        }
        if self.spec.max_size > 0 && self.size >= self.spec.max_size {
            self.rotate(now)?;
        }
        Ok(())
    }

    /// Writes how many lines are missing, if some are.
    fn note_dropped(&mut self, now: Timestamp) -> io::Result<()> {
        if self.dropped.lines == 0 {
            return Ok(());
        }
        let Dropped { lines, why } = &self.dropped;
        let note =
            format!("{now:.9} stderr F plumb: {lines} lines of this log could not be written: {why}\n");
        self.append(note.as_bytes())?;
        self.dropped = Dropped::default();
        Ok(())
    }

    /// Appends all of this to the file, or nothing.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            self.reopen()?;
        }
        let Some(file) = &mut self.file else { return Err(io::ErrorKind::NotFound.into()) };
        if let Err(error) = file.write_all(bytes) {
            // Half a line would garble the next one.
            if file.metadata().is_ok_and(|found| found.len() > self.size) {
                let _ = file.set_len(self.size);
            }
            return Err(error);
        }
        self.size += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Ok(())
    }

    /// Moves the file aside, under the name that the kubelet gives it, and forgets the oldest ones.
    fn rotate(&mut self, now: Timestamp) -> io::Result<()> {
        self.file = None;
        let path = self.spec.path.clone();
        move_aside(&path, self.spec.max_files, now)?;
        self.reopen()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::log_rotation::rotated;

    fn log(folder: &Path, max_size: u64) -> Log {
        Log::open(LogSpec { path: folder.join("0.log"), max_size, max_files: 3 }).unwrap()
    }

    fn text(folder: &Path) -> String {
        fs::read_to_string(folder.join("0.log")).unwrap()
    }

    #[test]
    fn lines_come_whole_however_they_arrive_and_the_last_one_is_partial_without_its_newline() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = log(folder.path(), 0);
        let mut stream = Stream::new("stdout");
        for piece in ["one\ntw", "o", "\n\nthr", "ee"] {
            log.take(&mut stream, piece.as_bytes(), Timestamp::UNIX_EPOCH).unwrap();
        }
        log.end(&mut stream, Timestamp::UNIX_EPOCH).unwrap();
        let at = "1970-01-01T00:00:00.000000000Z stdout F";
        let last = "1970-01-01T00:00:00.000000000Z stdout P three";
        assert_eq!(text(folder.path()), format!("{at} one\n{at} two\n{at} \n{last}\n"));
    }

    #[test]
    fn log_lines_that_cannot_be_written_are_dropped_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("logs");
        fs::create_dir(&folder).unwrap();
        let mut log = log(&folder, 100);
        let mut stream = Stream::new("stdout");
        // A full disk fails in another way, but fails as well: the log is moved aside, and no other one can be made.
        fs::remove_dir_all(&folder).unwrap();
        log.file = None;
        for _ in 0..1000 {
            assert!(log.take(&mut stream, b"one\ntwo\nthr", Timestamp::UNIX_EPOCH).is_err());
            assert!(log.take(&mut stream, b"ee\n", Timestamp::UNIX_EPOCH).is_err());
        }
        assert!(log.buffer.is_empty() && log.buffer.capacity() <= LONGEST_PART, "{}", log.buffer.capacity());
        fs::create_dir(&folder).unwrap();
        log.spec.max_size = 0;
        log.take(&mut stream, b"again\n", Timestamp::UNIX_EPOCH).unwrap();
        log.take(&mut stream, b"and on\n", Timestamp::UNIX_EPOCH).unwrap();
        let at = "1970-01-01T00:00:00.000000000Z";
        let said = text(&folder);
        let (note, rest) = said.split_once('\n').unwrap();
        assert!(
            note.starts_with(&format!("{at} stderr F plumb: 3000 lines of this log could not")),
            "{note}"
        );
        assert_eq!(rest, format!("{at} stdout F again\n{at} stdout F and on\n"));
    }

    #[test]
    fn a_long_line_comes_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = log(folder.path(), 0);
        let mut stream = Stream::new("stderr");
        let line = "x".repeat(LONGEST_PART * 2 + 10);
        log.take(&mut stream, format!("{line}\n").as_bytes(), Timestamp::UNIX_EPOCH).unwrap();
        let text = text(folder.path());
        let tags: Vec<_> = text.lines().map(|line| line.split(' ').nth(2).unwrap()).collect();
        assert_eq!(tags, ["P", "P", "F"]);
        let joined: String = text.lines().map(|line| line.split(' ').nth(3).unwrap()).collect();
        assert_eq!(joined, line);
    }

    #[test]
    fn a_large_file_is_moved_aside_and_the_oldest_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = log(folder.path(), 100);
        let mut stream = Stream::new("stdout");
        for number in 0..40 {
            log.take(&mut stream, format!("line {number}\n").as_bytes(), Timestamp::UNIX_EPOCH).unwrap();
        }
        let files = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(files, 3);
        let last = rotated(&folder.path().join("0.log")).unwrap().pop().unwrap();
        assert!(fs::read_to_string(last).unwrap().contains("line 3"));
    }
}
