//! A container's log, in the CRI's format: time, stream, whole (`F`) or part (`P`) of a line, text.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::spec::LogSpec;

/// A line that is longer is written in parts of this size.
pub(super) const LONGEST_PART: usize = 16 << 10;

/// The file, moved aside when it has grown large.
pub(super) struct Log {
    spec: LogSpec,
    file: Option<File>,
    size: u64,
    /// So that a line and what precedes it goes out in one write.
    buffer: Vec<u8>,
}

/// One of the two streams that lead into it.
pub(super) struct Stream {
    name: &'static str,
    /// What came since the last end of line.
    rest: Vec<u8>,
}

impl Stream {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, rest: Vec::new() }
    }
}

impl Log {
    pub(super) fn open(spec: LogSpec) -> io::Result<Self> {
        let mut log = Self { spec, file: None, size: 0, buffer: Vec::new() };
        log.reopen()?;
        Ok(log)
    }

    /// Opens the file by its name, whoever moved the old one.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        let file = OpenOptions::new().append(true).create(true).open(&self.spec.path)?;
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

    /// A stream has ended: what came without an end of line is a line all the same.
    pub(super) fn end(&mut self, stream: &mut Stream, now: Timestamp) -> io::Result<()> {
        let rest = std::mem::take(&mut stream.rest);
        if !rest.is_empty() {
            self.parts(stream.name, &rest, true, now);
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
    }

    fn flush(&mut self, now: Timestamp) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        if self.file.is_none() {
            self.reopen()?;
        }
        if let Some(file) = &mut self.file {
            file.write_all(&self.buffer)?;
        }
        self.size += u64::try_from(self.buffer.len()).unwrap_or(u64::MAX);
        self.buffer.clear();
        self.buffer.shrink_to(LONGEST_PART);
        if self.spec.max_size > 0 && self.size >= self.spec.max_size {
            self.rotate(now)?;
        }
        Ok(())
    }

    /// Moves the file aside, under the name that the kubelet gives it, and forgets the oldest ones.
    fn rotate(&mut self, now: Timestamp) -> io::Result<()> {
        self.file = None;
        let path = self.spec.path.clone();
        let at = now.strftime("%Y%m%d-%H%M%S").to_string();
        let mut aside = suffixed(&path, &at);
        // Later ones sort after earlier ones, also within a second.
        let newest = rotated(&path)?.pop();
        let mut more = 1;
        while newest.as_ref().is_some_and(|newest| *newest >= aside) && more < 1000 {
            aside = suffixed(&path, &format!("{at}.{more:03}"));
            more += 1;
        }
        fs::rename(&path, &aside)?;
        let keep = usize::try_from(self.spec.max_files.max(1) - 1).unwrap_or(usize::MAX);
        let old = rotated(&path)?;
        for oldest in old.iter().take(old.len().saturating_sub(keep)) {
            fs::remove_file(oldest)?;
        }
        self.reopen()
    }
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}

/// The files that were moved aside, the oldest first.
fn rotated(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(Vec::new()) };
    let prefix = format!("{}.", name.to_string_lossy());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(folder: &Path, max_size: u64) -> Log {
        Log::open(LogSpec { path: folder.join("0.log"), max_size, max_files: 3 }).unwrap()
    }

    fn text(folder: &Path) -> String {
        fs::read_to_string(folder.join("0.log")).unwrap()
    }

    #[test]
    fn lines_come_whole_however_they_arrive() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = log(folder.path(), 0);
        let mut stream = Stream::new("stdout");
        for piece in ["one\ntw", "o", "\n\nthr", "ee"] {
            log.take(&mut stream, piece.as_bytes(), Timestamp::UNIX_EPOCH).unwrap();
        }
        log.end(&mut stream, Timestamp::UNIX_EPOCH).unwrap();
        let at = "1970-01-01T00:00:00.000000000Z stdout F";
        assert_eq!(text(folder.path()), format!("{at} one\n{at} two\n{at} \n{at} three\n"));
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
