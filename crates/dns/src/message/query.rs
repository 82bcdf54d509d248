//! Decoding of queries.

use super::{
    CLASS_IN, CLASSIC_PAYLOAD, Code, HEADER, MAX_PAYLOAD, Malformed, Section, flag, number16, records,
};
use crate::name::LookupName;
use crate::zone::RecordType;

/// The capabilities of a client in an OPT record (RFC 6891).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edns {
    /// The maximum size of a response over UDP.
    pub(crate) payload: u16,
    /// Whether the client wants DNSSEC records.
    pub(crate) dnssec: bool,
}

/// A query with one question.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) id: u16,
    pub(crate) flags: u16,
    /// The bytes of the question. The case of its name must be preserved, since clients may randomize it (0x20).
    pub(crate) question: Box<[u8]>,
    pub(crate) name: LookupName,
    pub(crate) record_type: RecordType,
    pub(crate) class: u16,
    pub(crate) edns: Option<Edns>,
}

/// A message that cannot be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// No response is sent: the message is too short, or is a response, to which two servers would respond for ever.
    Silently,
    /// A response with this code is sent.
    With { id: u16, flags: u16, code: Code },
}

impl Query {
    /// Decodes a message.
    pub(crate) fn read(message: &[u8]) -> Result<Self, Rejected> {
        let header = |at| number16(message, at).map_err(|Malformed| Rejected::Silently);
        let id = header(0)?;
        let flags = header(2)?;
        if message.len() < HEADER || flags & flag::RESPONSE != 0 {
            return Err(Rejected::Silently);
        }
        if flags & flag::OPCODE != 0 {
            return Err(Rejected::With { id, flags, code: Code::NotImplemented });
        }
        Self::read_question(message, id, flags).map_err(|code| Rejected::With { id, flags, code })
    }

    fn read_question(message: &[u8], id: u16, flags: u16) -> Result<Self, Code> {
        let malformed = |Malformed| Code::FormatError;
        if number16(message, 4).map_err(malformed)? != 1 {
            return Err(Code::FormatError);
        }
        let name = LookupName::read(&message[HEADER..]).map_err(malformed)?;
        let end = HEADER + name.wire().len();
        let question = message.get(HEADER..end + 4).ok_or(Code::FormatError)?.into();
        let record_type = RecordType(number16(message, end).map_err(malformed)?);
        let class = number16(message, end + 2).map_err(malformed)?;
        let mut edns = None;
        for record in records(message).map_err(malformed)? {
            let record = record.map_err(malformed)?;
            if record.kind != RecordType::OPT || record.section != Section::Additional {
                continue;
            }
            // Several OPT records are an error (RFC 6891, section 6.1.1), and so is one with an owner other than the root.
            if edns.is_some() || record.start + 11 != record.data.start {
                return Err(Code::FormatError);
            }
            if record.ttl >> 16 & 0xff != 0 {
                return Err(Code::BadVersion);
            }
            edns = Some(Edns { payload: record.class, dnssec: record.ttl & 0x8000 != 0 });
        }
        Ok(Self { id, flags, question, name, record_type, class, edns })
    }

    /// A query for the target of an alias, with the type and the options of the original query.
    pub(crate) fn following(&self, name: LookupName) -> Self {
        let question = [name.wire(), &self.record_type.0.to_be_bytes(), &CLASS_IN.to_be_bytes()].concat();
        Self { question: question.into(), name, class: CLASS_IN, ..self.clone() }
    }

    /// The maximum size of a response over UDP that the client accepts.
    pub(crate) fn udp_limit(&self) -> usize {
        self.edns
            .map_or(CLASSIC_PAYLOAD, |edns| usize::from(edns.payload.min(MAX_PAYLOAD)).max(CLASSIC_PAYLOAD))
    }

    /// Whether the client wants DNSSEC records.
    pub(crate) fn wants_dnssec(&self) -> bool {
        self.edns.is_some_and(|edns| edns.dnssec)
    }
}
