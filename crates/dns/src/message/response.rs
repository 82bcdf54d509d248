//! Encoding of responses.

use super::records::{read_name, skip_name};
use super::{CLASS_IN, Code, HEADER, MAX_PAYLOAD, Malformed, Query, Record, Section, flag, number16};
use crate::name::Name;
use crate::zone::RecordType;

/// The length of an OPT record without options.
const OPT: usize = 11;
/// The position before which the targets of compression pointers must be.
const MAX_POINTER: usize = 0x4000;

/// The owner of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner<'a> {
    /// The name at a position of the message: the question, a suffix of it, or the name of an earlier record.
    At(usize),
    /// A name.
    Name(&'a Name),
}

impl Owner<'_> {
    /// The name of the question, with the client's case.
    pub(crate) const QUESTION: Self = Self::At(HEADER);
}

/// A response under construction. Records that do not fit are omitted.
#[derive(Debug)]
pub(crate) struct Response {
    bytes: Vec<u8>,
    /// The maximum length, without the OPT record.
    limit: usize,
    counts: [u16; 3],
    flags: u16,
    code: Code,
    edns: bool,
    dnssec: bool,
}

impl Response {
    /// Creates the response to a query without records, with a maximum length.
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

    /// Encodes the response to a message whose question cannot be decoded.
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

    /// Sets the flag that this server is authoritative for the name.
    pub(crate) fn set_authoritative(&mut self) {
        self.flags |= flag::AUTHORITATIVE;
    }

    /// Sets the flag that records are missing, so that the client retries over TCP.
    pub(crate) fn set_truncated(&mut self) {
        self.flags |= flag::TRUNCATED;
    }

    /// The position of the next record.
    pub(crate) fn position(&self) -> usize {
        self.bytes.len()
    }

    /// Writes a record, whose data the closure writes. Returns whether it fits.
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

    /// Copies a record of another message, with a new TTL. Returns whether it fits.
    pub(crate) fn copy(&mut self, message: &[u8], record: &Record, ttl: u32) -> Result<bool, Malformed> {
        let owner = read_name(message, record.start)?;
        let data = uncompressed(message, record)?;
        let write = |bytes: &mut Vec<u8>| bytes.extend_from_slice(&data);
        Ok(self.record(record.section, Owner::Name(&owner), record.kind, ttl, write))
    }

    /// Completes the message.
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

/// Adapts a message of another server to a query: sets its id, its question and its OPT record, subtracts the age of the message
/// from the TTLs, and omits records that do not fit. The message must have no OPT record, and the question of the query except
/// for case.
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
            // A response without additional records is still complete.
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

/// The maximum length of a response before its OPT record.
fn limit_of(query: &Query, limit: usize) -> usize {
    limit.saturating_sub(if query.edns.is_some() { OPT } else { 0 })
}

/// Writes the flags and the numbers of records.
fn set_header(bytes: &mut [u8], flags: u16, counts: [u16; 3]) {
    bytes[2..4].copy_from_slice(&flags.to_be_bytes());
    for (at, count) in [6, 8, 10].into_iter().zip(counts) {
        bytes[at..at + 2].copy_from_slice(&count.to_be_bytes());
    }
}

/// The flags of a response to a query with flags.
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

/// Writes a compression pointer to the name at a position.
pub(crate) fn write_pointer(bytes: &mut Vec<u8>, position: usize) {
    // The targets are in the question or shortly after it, so the limit is never reached.
    let position = u16::try_from(position.min(MAX_POINTER - 1)).unwrap_or_default();
    bytes.extend_from_slice(&(0xc000 | position).to_be_bytes());
}

fn write_owner(bytes: &mut Vec<u8>, owner: Owner<'_>) {
    match owner {
        Owner::At(position) if position < MAX_POINTER => write_pointer(bytes, position),
        // Only responses over TCP are this long.
        Owner::At(position) => {
            let name = read_name(bytes, position);
            bytes.extend_from_slice(name.as_ref().map_or(&[0], Name::wire));
        }
        Owner::Name(name) => bytes.extend_from_slice(name.wire()),
    }
}

/// The data of a record with names decompressed. Only the types of RFC 1035 may have compressed names (RFC 3597, section 4).
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
