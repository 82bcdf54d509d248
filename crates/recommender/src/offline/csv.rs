//! Samples in CSV: `time,container,resource,value`.
//!
//! - `time`: RFC 3339 (`2026-01-01T00:00:00Z`), or seconds since 1970 (`1767225600`, `1767225600.5`).
//! - `container`: its name.
//! - `resource`: `cpu` (the value is in cores), `memory` (in bytes), or `oom` (the container was OOM-killed; the value is its
//!   memory request then, in bytes).
//!
//! A header is optional. With one, the columns may be in any order, there may be others, which are ignored, and a
//! column `pod` distinguishes the replicas of a container. Fields may be quoted. Empty lines and lines that start with
//! `#` are skipped.
//!
//! The reader has one buffer of a fixed size, so that files of any length are read in the same memory.

mod line;
mod value;

use std::io::{self, Read};
use std::ops::Range;

use memchr::memchr;

use crate::Time;
use line::Fields;

/// The longest line that is read, in bytes.
pub const MAX_LINE: usize = 64 * 1024;

/// How much is read at once.
const BUFFER: usize = 1024 * 1024;

/// One row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row<'a> {
    /// The number of its line, from 1.
    pub line: u64,
    /// When it was measured.
    pub at: Time,
    /// The pod; empty where the file does not say.
    pub pod: &'a str,
    /// The container.
    pub container: &'a str,
    /// What was measured.
    pub measurement: Measurement,
}

/// What a row says about a container.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measurement {
    /// It used so many cores.
    Cpu(f64),
    /// It used so many bytes.
    Memory(f64),
    /// It was OOM-killed, and had requested so many bytes.
    Oom(f64),
}

/// Why rows cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CsvError {
    /// A line is wrong.
    #[error("line {line}: {problem}")]
    Row {
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        problem: Problem,
    },
    /// The input cannot be read.
    #[error("line {line}: reading")]
    Read {
        /// The number of the line that was being read.
        line: u64,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It has another number of fields than there are columns.
    #[error("{found} fields instead of {expected}")]
    Fields {
        /// How many there are.
        found: usize,
        /// How many there should be.
        expected: usize,
    },
    /// The header does not name a column that is needed.
    #[error("the header lacks the column {0:?}")]
    Header(&'static str),
    /// The time is of neither form.
    #[error("{0:?} is no time: neither RFC 3339 nor seconds since 1970")]
    Time(String),
    /// The time is too far away; often it is in milliseconds.
    #[error("the time {0:?} is not between 1677 and 2262; numbers are seconds since 1970")]
    TimeRange(String),
    /// There is no name of a container.
    #[error("no container")]
    Container,
    /// The resource is another one.
    #[error("the resource {0:?} is none of cpu, memory and oom")]
    Resource(String),
    /// The value is no number that could be measured.
    #[error("the value {0:?} is no finite number of 0 or more")]
    Value(String),
    /// A quoted field has no end, or goes on after it.
    #[error("a quote that is not closed at the end of its field")]
    Quote,
    /// The line is too long.
    #[error("the line is longer than {MAX_LINE} bytes")]
    TooLong,
    /// The line is not text.
    #[error("the line is not UTF-8")]
    Utf8,
}

/// Which field of a row is which.
#[derive(Clone, Copy, Debug)]
struct Columns {
    time: usize,
    container: usize,
    resource: usize,
    value: usize,
    pod: Option<usize>,
    /// How many fields a row has.
    count: usize,
}

/// The columns of a file without a header.
const COLUMNS: Columns = Columns { time: 0, container: 1, resource: 2, value: 3, pod: None, count: 4 };

impl Columns {
    /// The columns that a header names; none if the line is no header but a row.
    fn of_header(line: &str, fields: &Fields) -> Result<Option<Self>, Problem> {
        let names: Vec<String> = fields.iter(line).map(str::to_ascii_lowercase).collect();
        let position = |name: &str| names.iter().position(|found| found == name);
        let time = position("time").or_else(|| position("timestamp"));
        if time.is_none() && position("value").is_none() {
            return Ok(None);
        }
        let needed = |name| position(name).ok_or(Problem::Header(name));
        Ok(Some(Self {
            time: time.ok_or(Problem::Header("time"))?,
            container: needed("container")?,
            resource: needed("resource")?,
            value: needed("value")?,
            pod: position("pod"),
            count: names.len(),
        }))
    }
}

/// Reads rows one after the other.
#[derive(Debug)]
pub struct SampleReader<R> {
    input: R,
    buffer: Box<[u8]>,
    /// The part of the buffer that was filled and not used yet.
    unused: Range<usize>,
    at_end: bool,
    /// The number of the last line, from 1.
    line: u64,
    consumed: u64,
    columns: Option<Columns>,
    fields: Fields,
}

impl<R: Read> SampleReader<R> {
    /// A reader at the start of its input.
    pub fn new(input: R) -> Self {
        Self {
            input,
            buffer: vec![0; BUFFER].into_boxed_slice(),
            unused: 0..0,
            at_end: false,
            line: 0,
            consumed: 0,
            columns: None,
            fields: Fields::default(),
        }
    }

    /// How many bytes the rows so far took.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    /// The next row; none at the end.
    pub fn next_row(&mut self) -> Result<Option<Row<'_>>, CsvError> {
        while let Some(line) = self.next_line()? {
            let number = self.line;
            let wrong = |problem| CsvError::Row { line: number, problem };
            if let Some(columns) = self.split(line.clone()).map_err(wrong)? {
                return self.row(line, columns).map(Some).map_err(wrong);
            }
        }
        Ok(None)
    }

    /// Splits a line into fields; none if it is not a row.
    fn split(&mut self, line: Range<usize>) -> Result<Option<Columns>, Problem> {
        let line = std::str::from_utf8(&self.buffer[line]).map_err(|_| Problem::Utf8)?;
        let line = if self.line == 1 { line.trim_start_matches('\u{feff}') } else { line };
        if line.is_empty() || line.starts_with('#') {
            return Ok(None);
        }
        self.fields.split(line)?;
        let columns = if let Some(columns) = self.columns {
            columns
        } else {
            let header = Columns::of_header(line, &self.fields)?;
            self.columns = Some(header.unwrap_or(COLUMNS));
            if header.is_some() {
                return Ok(None);
            }
            COLUMNS
        };
        let (found, expected) = (self.fields.len(), columns.count);
        if found == expected { Ok(Some(columns)) } else { Err(Problem::Fields { found, expected }) }
    }

    /// The row that a line which was split holds.
    fn row(&self, line: Range<usize>, columns: Columns) -> Result<Row<'_>, Problem> {
        let line = std::str::from_utf8(&self.buffer[line]).map_err(|_| Problem::Utf8)?;
        let line = if self.line == 1 { line.trim_start_matches('\u{feff}') } else { line };
        let field = |column| self.fields.get(line, column);
        let container = field(columns.container);
        if container.is_empty() {
            return Err(Problem::Container);
        }
        Ok(Row {
            line: self.line,
            at: value::time(field(columns.time))?,
            pod: columns.pod.map_or("", field),
            container,
            measurement: value::measurement(field(columns.resource), field(columns.value))?,
        })
    }

    /// The place of the next line in the buffer, without white space around it.
    fn next_line(&mut self) -> Result<Option<Range<usize>>, CsvError> {
        let mut searched = 0;
        loop {
            let unused = &self.buffer[self.unused.clone()];
            let (length, used) = match memchr(b'\n', &unused[searched..]) {
                Some(at) => (searched + at, searched + at + 1),
                None if self.at_end && unused.is_empty() => return Ok(None),
                None if self.at_end => (unused.len(), unused.len()),
                None if unused.len() > MAX_LINE => (unused.len(), unused.len()),
                None => {
                    searched = unused.len();
                    self.fill()?;
                    continue;
                }
            };
            self.line += 1;
            if length > MAX_LINE {
                return Err(CsvError::Row { line: self.line, problem: Problem::TooLong });
            }
            let start = self.unused.start;
            self.unused.start += used;
            self.consumed += used as u64;
            let text = &self.buffer[start..start + length];
            let leading = text.len() - text.trim_ascii_start().len();
            let trimmed = text.trim_ascii().len();
            return Ok(Some(start + leading..start + leading + trimmed));
        }
    }

    /// Reads more behind what is unused, which moves to the start of the buffer if there is no space behind it.
    fn fill(&mut self) -> Result<(), CsvError> {
        if self.unused.end == self.buffer.len() || self.unused.is_empty() {
            self.buffer.copy_within(self.unused.clone(), 0);
            self.unused = 0..self.unused.len();
        }
        let read = loop {
            match self.input.read(&mut self.buffer[self.unused.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        let read = read.map_err(|source| CsvError::Read { line: self.line + 1, source })?;
        self.at_end = read == 0;
        self.unused.end += read;
        Ok(())
    }
}
