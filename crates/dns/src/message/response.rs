//! Writing responses.

use super::records::{read_name, skip_name};
use super::{CLASS_IN, Code, HEADER, MAX_PAYLOAD, Malformed, Query, Record, Section, flag, number16};
use crate::name::Name;
use crate::zone::RecordType;

/// The length of an OPT record without options.
const OPT: usize = 11;
/// A compressed name can point to what is before this position.
const MAX_POINTER: usize = 0x4000;

/// The owner of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner<'a> {
    /// The name in the message at a position: the question, the part of it from a label on, or an earlier record's.
    At(usize),
    /// A name.
    Name(&'a Name),
}

impl Owner<'_> {
    /// The name of the question, in the letters of the client.
    pub(crate) const QUESTION: Self = Self::At(HEADER);
}

/// A response that is being written. What does not fit is left out.
#[derive(Debug)]
pub(crate) struct Response {
    bytes: Vec<u8>,
    /// How long it may be, without the OPT record.
    limit: usize,
    counts: [u16; 3],
    flags: u16,
    code: Code,
    edns: bool,
    dnssec: bool,
}

impl Response {
    /// The response to a query, without records yet, of at most so many bytes.
    pub(crate) fn new(query: &Query, limit: usize) -> Self {
        let mut bytes = Vec::with_capacity(128);
        bytes.extend_from_slice(&query.id.to_be_bytes());
        bytes.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(&query.question);
        Self {
            bytes,
            limit: limit_of(query, limit),
            counts: [0; 3],
            flags: reply_flags(query.flags),
            code: Code::NoError,
            edns: query.edns.is_some(),
            dnssec: query.wants_dnssec(),
        }
    }

    /// The response to a message whose question could not be read.
    pub(crate) fn rejection(id: u16, flags: u16, code: Code) -> Vec<u8> {
        let response = Self {
            bytes: [&id.to_be_bytes()[..], &[0; 10]].concat(),
            limit: HEADER,
            counts: [0; 3],
            flags: reply_flags(flags) | flags & flag::OPCODE,
            code,
            // The upper bits of this code are in the OPT record.
            edns: code == Code::BadVersion,
            dnssec: false,
        };
        response.finish()
    }

    /// Sets the outcome.
    pub(crate) fn set_code(&mut self, code: Code) {
        self.code = code;
    }

    /// The outcome.
    pub(crate) fn code(&self) -> Code {
        self.code
    }

    /// Says that this server is the authority for the name.
    pub(crate) fn set_authoritative(&mut self) {
        self.flags |= flag::AUTHORITATIVE;
    }

    /// Says that records are missing: the client asks again over TCP.
    pub(crate) fn set_truncated(&mut self) {
        self.flags |= flag::TRUNCATED;
    }

    /// Where the next record starts.
    pub(crate) fn position(&self) -> usize {
        self.bytes.len()
    }

    /// Writes a record, whose data a function writes. Returns whether it fits.
    pub(crate) fn record(
        &mut self,
        section: Section,
        owner: Owner<'_>,
        record_type: RecordType,
        ttl: u32,
        data: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let start = self.bytes.len();
        write_owner(&mut self.bytes, owner);
        self.bytes.extend_from_slice(&record_type.0.to_be_bytes());
        self.bytes.extend_from_slice(&CLASS_IN.to_be_bytes());
        self.bytes.extend_from_slice(&ttl.to_be_bytes());
        let length = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        data(&mut self.bytes);
        let written = u16::try_from(self.bytes.len() - length - 2).ok();
        let count = self.counts[index(section)].checked_add(1);
        let fits = self.bytes.len() <= self.limit;
        let (Some(written), Some(count), true) = (written, count, fits) else {
            self.bytes.truncate(start);
            return false;
        };
        self.bytes[length..length + 2].copy_from_slice(&written.to_be_bytes());
        self.counts[index(section)] = count;
        true
    }

    /// Writes a record of another message, with its own TTL or another. Returns whether it fits.
    pub(crate) fn copy(&mut self, message: &[u8], record: &Record, ttl: u32) -> Result<bool, Malformed> {
        let owner = read_name(message, record.start)?;
        let data = uncompressed(message, record)?;
        let write = |bytes: &mut Vec<u8>| bytes.extend_from_slice(&data);
        Ok(self.record(record.section, Owner::Name(&owner), record.kind, ttl, write))
    }

    /// The message.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let number = self.code.number();
        let flags = self.flags | number & flag::CODE;
        if self.edns {
            write_opt(&mut self.bytes, number >> 4, self.dnssec);
            self.counts[2] = self.counts[2].saturating_add(1);
        }
        set_header(&mut self.bytes, flags, self.counts);
        self.bytes
    }
}

/// A message of another server, as the response to a query: with its id, its question and its EDNS, the TTLs less by the
/// seconds that the message has been kept, and without records that do not fit. The message has no OPT record and has the
/// question of the query, if in other letters.
pub(crate) fn adapt(message: &[u8], query: &Query, age: u32, limit: usize) -> Result<Vec<u8>, Malformed> {
    let limit = limit_of(query, limit);
    let end = HEADER + query.question.len();
    let mut flags = reply_flags(query.flags) | number16(message, 2)? & (flag::AUTHENTIC | flag::CODE);
    let mut bytes = message.to_vec();
    bytes.get_mut(..2).ok_or(Malformed)?.copy_from_slice(&query.id.to_be_bytes());
    bytes.get_mut(HEADER..end).ok_or(Malformed)?.copy_from_slice(&query.question);
    let mut counts = [0_u16; 3];
    let mut length = end;
    for record in super::records(message)? {
        let record = record?;
        if record.data.end > limit {
            // Without additional records a response is still whole.
            if record.section != Section::Additional {
                flags |= flag::TRUNCATED;
            }
            break;
        }
        let ttl = record.ttl.saturating_sub(age);
        bytes[record.ttl_at..record.ttl_at + 4].copy_from_slice(&ttl.to_be_bytes());
        counts[index(record.section)] += 1;
        length = record.data.end;
    }
    bytes.truncate(length);
    if query.edns.is_some() {
        write_opt(&mut bytes, 0, query.wants_dnssec());
        counts[2] = counts[2].saturating_add(1);
    }
    set_header(&mut bytes, flags, counts);
    Ok(bytes)
}

/// How long a response may be before its OPT record.
fn limit_of(query: &Query, limit: usize) -> usize {
    limit.saturating_sub(if query.edns.is_some() { OPT } else { 0 })
}

/// Writes the flags and how many records there are.
fn set_header(bytes: &mut [u8], flags: u16, counts: [u16; 3]) {
    bytes[2..4].copy_from_slice(&flags.to_be_bytes());
    for (at, count) in [6, 8, 10].into_iter().zip(counts) {
        bytes[at..at + 2].copy_from_slice(&count.to_be_bytes());
    }
}

/// The flags of a response to a query with these.
fn reply_flags(query: u16) -> u16 {
    let copied = query & (flag::RECURSION_DESIRED | flag::CHECKING_DISABLED);
    copied | flag::RESPONSE | flag::RECURSION_AVAILABLE
}

/// Writes an OPT record with the upper bits of the code.
pub(crate) fn write_opt(bytes: &mut Vec<u8>, code: u16, dnssec: bool) {
    bytes.push(0);
    bytes.extend_from_slice(&RecordType::OPT.0.to_be_bytes());
    bytes.extend_from_slice(&MAX_PAYLOAD.to_be_bytes());
    bytes.extend_from_slice(&[code.to_be_bytes()[1], 0, if dnssec { 0x80 } else { 0 }, 0, 0, 0]);
}

/// Writes a pointer to a name at a position.
pub(crate) fn write_pointer(bytes: &mut Vec<u8>, position: usize) {
    // Names that are pointed to are in the question or follow it closely.
    let position = u16::try_from(position.min(MAX_POINTER - 1)).unwrap_or_default();
    bytes.extend_from_slice(&(0xc000 | position).to_be_bytes());
}

fn write_owner(bytes: &mut Vec<u8>, owner: Owner<'_>) {
    match owner {
        Owner::At(position) if position < MAX_POINTER => write_pointer(bytes, position),
        // Only a response over TCP is so long.
        Owner::At(position) => {
            let name = read_name(bytes, position);
            bytes.extend_from_slice(name.as_ref().map_or(&[0], Name::wire));
        }
        Owner::Name(name) => bytes.extend_from_slice(name.wire()),
    }
}

/// The data of a record without compressed names. Only the types of RFC 1035 may have such (RFC 3597, section 4).
fn uncompressed(message: &[u8], record: &Record) -> Result<Vec<u8>, Malformed> {
    let data = message.get(record.data.clone()).ok_or(Malformed)?;
    let (before, names) = match record.kind {
        RecordType::CNAME | RecordType::NS | RecordType::PTR => (0, 1),
        RecordType::MX => (2, 1),
        RecordType::SRV => (6, 1),
        RecordType::SOA => (0, 2),
        _ => return Ok(data.to_vec()),
    };
    let mut written = data.get(..before).ok_or(Malformed)?.to_vec();
    let mut at = record.data.start + before;
    for _ in 0..names {
        written.extend_from_slice(read_name(message, at)?.wire());
        at = skip_name(message, at)?;
    }
    written.extend_from_slice(message.get(at..record.data.end).ok_or(Malformed)?);
    Ok(written)
}

fn index(section: Section) -> usize {
    match section {
        Section::Answer => 0,
        Section::Authority => 1,
        Section::Additional => 2,
    }
}
