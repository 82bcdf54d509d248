//! Iteration over the records of a message.

use std::ops::Range;

use super::{HEADER, Malformed, number16, number32};
use crate::name::Name;
use crate::zone::RecordType;

/// The maximum number of compression pointers in a name. No server writes as many.
const MAX_POINTERS: usize = 32;

/// The section of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Answer,
    Authority,
    Additional,
}

/// A record, with its positions in the message.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) section: Section,
    /// The position of the record, which is that of its owner.
    pub(crate) start: usize,
    pub(crate) kind: RecordType,
    pub(crate) class: u16,
    /// The position of the TTL.
    pub(crate) ttl_at: usize,
    pub(crate) ttl: u32,
    /// The position of the data.
    pub(crate) data: Range<usize>,
}

/// Iterates over the records of a message. The iterator ends after an error.
pub(crate) fn records(message: &[u8]) -> Result<Records<'_>, Malformed> {
    let mut at = HEADER;
    for _ in 0..number16(message, 4)? {
        at = skip_name(message, at)? + 4;
    }
    if at > message.len() {
        return Err(Malformed);
    }
    let left = [number16(message, 6)?, number16(message, 8)?, number16(message, 10)?];
    Ok(Records { message, at, left })
}

/// The iterator of [`records`].
#[derive(Debug)]
pub(crate) struct Records<'a> {
    message: &'a [u8],
    at: usize,
    left: [u16; 3],
}

impl Iterator for Records<'_> {
    type Item = Result<Record, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let section = self.left.iter().position(|left| *left > 0)?;
        self.left[section] -= 1;
        let section = [Section::Answer, Section::Authority, Section::Additional][section];
        let record = read(self.message, self.at, section);
        match &record {
            Ok(record) => self.at = record.data.end,
            Err(Malformed) => self.left = [0; 3],
        }
        Some(record)
    }
}

fn read(message: &[u8], start: usize, section: Section) -> Result<Record, Malformed> {
    let at = skip_name(message, start)?;
    let data = at + 10..at + 10 + usize::from(number16(message, at + 8)?);
    if data.end > message.len() {
        return Err(Malformed);
    }
    Ok(Record {
        section,
        start,
        kind: RecordType(number16(message, at)?),
        class: number16(message, at + 2)?,
        ttl_at: at + 4,
        ttl: number32(message, at + 4)?,
        data,
    })
}

/// The end of the name at a position.
pub(crate) fn skip_name(message: &[u8], mut at: usize) -> Result<usize, Malformed> {
    // Each iteration advances by at least one byte, so the loop ends at the end of the message.
    loop {
        match *message.get(at).ok_or(Malformed)? {
            0 => return Ok(at + 1),
            length @ 1..=63 => at += 1 + usize::from(length),
            0xc0.. => return if at + 2 <= message.len() { Ok(at + 2) } else { Err(Malformed) },
            _ => return Err(Malformed),
        }
    }
}

/// Decodes the name at a position, which may be compressed.
pub(crate) fn read_name(message: &[u8], mut at: usize) -> Result<Name, Malformed> {
    let mut labels: Vec<&[u8]> = Vec::new();
    let mut pointers = 0;
    // A label has at least two bytes, so a name of 255 bytes has at most 127 labels.
    while labels.len() <= 127 {
        match *message.get(at).ok_or(Malformed)? {
            0 => return Name::from_labels(labels, &[0]).ok_or(Malformed),
            length @ 1..=63 => {
                let end = at + 1 + usize::from(length);
                labels.push(message.get(at + 1..end).ok_or(Malformed)?);
                at = end;
            }
            0xc0.. => {
                let target = usize::from(number16(message, at)? & 0x3fff);
                pointers += 1;
                if target >= at || pointers > MAX_POINTERS {
                    return Err(Malformed);
                }
                at = target;
            }
            _ => return Err(Malformed),
        }
    }
    Err(Malformed)
}
