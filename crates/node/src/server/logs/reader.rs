//! Reading a log, from the requested line on, across rotations.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use jiff::Timestamp;
use plumb_runtime::untrusted::open_regular;

use super::options::Options;
use crate::log_line::LogLine;

/// About how many bytes are read at once.
const PIECE: usize = 64 << 10;
/// The longest line of a log, with its time and tags: 16 KiB and some. A longer one is invalid.
const LONGEST_LINE: u64 = 64 << 10;

/// A log that is being read.
#[derive(Debug)]
pub(super) struct Reader {
    path: PathBuf,
    options: Options,
    file: BufReader<File>,
    inode: u64,
    /// How many bytes may still be returned.
    left: u64,
    /// Lines before this time are skipped; after the first later one, none is.
    seeking: bool,
    /// Whether the last line continues in the next one.
    within: bool,
    /// The log was rotated, and the rest of the old file has yet to be read.
    replaced: bool,
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LogChunk {
    /// Some lines.
    Text(Vec<u8>),
    /// The end of the log for now.
    NoMore,
    /// The requested limit is reached.
    Over,
}

impl Reader {
    pub(super) fn open(path: PathBuf, options: Options) -> io::Result<Self> {
        let mut file = open_regular(&path)?;
        if let Some(lines) = options.tail {
            let start = start_of_tail(&mut file, lines)?;
            file.seek(SeekFrom::Start(start))?;
        }
        Ok(Self {
            inode: file.metadata()?.ino(),
            file: BufReader::new(file),
            path,
            left: options.limit.unwrap_or(u64::MAX),
            seeking: options.since.is_some(),
            options,
            within: false,
            replaced: false,
        })
    }

    /// Reads on.
    pub(super) fn read(&mut self) -> io::Result<LogChunk> {
        let mut text = Vec::new();
        let mut line = Vec::new();
        while text.len() < PIECE && self.left > 0 {
            line.clear();
            let read = self.file.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)?;
            if read == 0 || (line.last() != Some(&b'\n') && read < usize::try_from(LONGEST_LINE).unwrap_or(0))
            {
                // Not all of it is written yet.
                self.file.seek_relative(-i64::try_from(read).unwrap_or(0))?;
                if text.is_empty() && self.reopened()? {
                    continue;
                }
                break;
            }
            self.take(&line, &mut text);
        }
        if !text.is_empty() {
            return Ok(LogChunk::Text(text));
        }
        Ok(if self.left == 0 { LogChunk::Over } else { LogChunk::NoMore })
    }

    /// Adds a line, as far as the options select it.
    fn take(&mut self, line: &[u8], text: &mut Vec<u8>) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let Some(line) = LogLine::read(line) else { return };
        if self.seeking {
            let old = |time: &str| time.parse::<Timestamp>().ok() < self.options.since;
            if old(line.time) {
                return;
            }
            self.seeking = false;
        }
        if self.options.stream.is_some_and(|wanted| wanted != line.stream) {
            return;
        }
        let start = text.len();
        if self.options.timestamps && !self.within {
            text.extend_from_slice(line.time.as_bytes());
            text.push(b' ');
        }
        line.append_to(text);
        self.within = !line.ends;
        let fits = usize::try_from(self.left).unwrap_or(usize::MAX).min(text.len() - start);
        text.truncate(start + fits);
        self.left -= u64::try_from(fits).unwrap_or(0);
    }

    /// Continues with the new file after a rotation, if there is one. Returns whether there may be more to read.
    fn reopened(&mut self) -> io::Result<bool> {
        match fs::metadata(&self.path) {
            Ok(found) if found.ino() != self.inode => {}
            Ok(_) => return Ok(false),
            // The old file was renamed, and the new one does not exist yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
        if !self.replaced {
            // Its end may have moved between the last look and now; from now on it does not.
            self.replaced = true;
            return Ok(true);
        }
        let file = open_regular(&self.path)?;
        self.inode = file.metadata()?.ino();
        self.file = BufReader::new(file);
        self.replaced = false;
        Ok(true)
    }
}

/// Where the last lines of a file begin.
fn start_of_tail(file: &mut File, lines: u64) -> io::Result<u64> {
    const BLOCK: u64 = 16 << 10;
    let mut at = file.metadata()?.len();
    if lines == 0 {
        return Ok(at);
    }
    let mut found = 0;
    let mut last = true;
    let mut block = Vec::new();
    while at > 0 {
        let from = at.saturating_sub(BLOCK);
        file.seek(SeekFrom::Start(from))?;
        block.clear();
        file.by_ref().take(at - from).read_to_end(&mut block)?;
        for (offset, byte) in block.iter().enumerate().rev() {
            // The end of the last line does not begin another one.
            let ends_all = std::mem::take(&mut last);
            if *byte == b'\n' && !ends_all {
                found += 1;
                if found == lines {
                    return Ok(from + u64::try_from(offset).unwrap_or(0) + 1);
                }
            }
        }
        at = from;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write as _;
    use std::path::Path;

    use super::*;
    use crate::log_line::Stream;

    fn line(second: u32, stream: &str, tag: &str, text: &str) -> String {
        format!("2026-01-01T00:00:{second:02}Z {stream} {tag} {text}\n")
    }

    fn append(path: &Path, text: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// All that there is for now.
    fn all(reader: &mut Reader) -> String {
        let mut text = Vec::new();
        while let LogChunk::Text(piece) = reader.read().unwrap() {
            text.extend(piece);
        }
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn only_selected_lines_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        for second in 0..5 {
            append(
                &path,
                &line(second, if second == 3 { "stderr" } else { "stdout" }, "F", &format!("l{second}")),
            );
        }
        let second = |second: i64| {
            Some(
                "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap()
                    + jiff::SignedDuration::from_secs(second),
            )
        };
        let table = [
            (Options::default(), "l0\nl1\nl2\nl3\nl4\n"),
            (Options { tail: Some(2), ..Options::default() }, "l3\nl4\n"),
            (Options { tail: Some(0), ..Options::default() }, ""),
            (Options { tail: Some(99), ..Options::default() }, "l0\nl1\nl2\nl3\nl4\n"),
            (Options { since: second(3), ..Options::default() }, "l3\nl4\n"),
            (Options { limit: Some(4), ..Options::default() }, "l0\nl"),
            (Options { stream: Some(Stream::Stderr), ..Options::default() }, "l3\n"),
            (Options { tail: Some(1), timestamps: true, ..Options::default() }, "2026-01-01T00:00:04Z l4\n"),
        ];
        for (options, expected) in table {
            let mut reader = Reader::open(path.clone(), options.clone()).unwrap();
            assert_eq!(all(&mut reader), expected, "{options:?}");
        }
    }

    #[test]
    fn parts_of_a_line_are_one_line_and_a_line_in_the_making_waits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        append(
            &path,
            &(line(1, "stdout", "P", "a") + &line(2, "stdout", "F", "b") + "nonsense\n2026-01-01T00"),
        );
        let options = Options { timestamps: true, ..Options::default() };
        let mut reader = Reader::open(path.clone(), options).unwrap();
        assert_eq!(all(&mut reader), "2026-01-01T00:00:01Z ab\n");
        append(&path, ":00:03Z stdout F c\n");
        assert_eq!(all(&mut reader), "2026-01-01T00:00:03Z c\n");
    }

    #[test]
    fn reading_continues_in_the_file_that_replaces_a_rotated_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        append(&path, &line(1, "stdout", "F", "a"));
        let mut reader = Reader::open(path.clone(), Options::default()).unwrap();
        assert_eq!(all(&mut reader), "a\n");
        append(&path, &line(2, "stdout", "F", "b"));
        fs::rename(&path, folder.path().join("0.log.1")).unwrap();
        assert_eq!(all(&mut reader), "b\n", "nothing is lost of the old one");
        append(&path, &line(3, "stdout", "F", "c"));
        assert_eq!(all(&mut reader), "c\n");
        append(&path, &line(4, "stdout", "F", "d"));
        fs::rename(&path, folder.path().join("0.log.2")).unwrap();
        append(&path, &line(5, "stdout", "F", "e"));
        assert_eq!(all(&mut reader), "d\ne\n", "nor if the next one is there already");
    }

    #[test]
    fn a_tail_may_be_longer_than_a_block() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        let lines: Vec<String> =
            (0..3000).map(|number| line(1, "stdout", "F", &number.to_string())).collect();
        append(&path, &lines.concat());
        let mut reader = Reader::open(path, Options { tail: Some(2000), ..Options::default() }).unwrap();
        assert!(all(&mut reader).starts_with("1000\n"));
    }
}
