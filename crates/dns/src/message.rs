//! DNS messages (RFC 1035): decoding of queries, encoding of responses, and iteration over the records of a message.

mod query;
mod records;
mod response;

pub(crate) use query::{Query, Rejected};
pub(crate) use records::{Record, Section, records};
pub(crate) use response::{Owner, Response, adapt, write_opt, write_pointer};

/// A message or a name does not conform to RFC 1035.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed message")]
pub(crate) struct Malformed;

/// The length of a header.
pub(crate) const HEADER: usize = 12;
/// The size of a response that every UDP client can receive.
pub(crate) const CLASSIC_PAYLOAD: usize = 512;
/// The maximum size of a response over UDP, as recommended by DNS flag day 2020: it fits a packet with the minimum MTU of IPv6.
pub(crate) const MAX_PAYLOAD: u16 = 1232;
/// The class of the internet.
pub(crate) const CLASS_IN: u16 = 1;

/// Bits of the flags.
pub(crate) mod flag {
    pub(crate) const RESPONSE: u16 = 0x8000;
    pub(crate) const OPCODE: u16 = 0x7800;
    pub(crate) const AUTHORITATIVE: u16 = 0x0400;
    pub(crate) const TRUNCATED: u16 = 0x0200;
    pub(crate) const RECURSION_DESIRED: u16 = 0x0100;
    pub(crate) const RECURSION_AVAILABLE: u16 = 0x0080;
    pub(crate) const AUTHENTIC: u16 = 0x0020;
    pub(crate) const CHECKING_DISABLED: u16 = 0x0010;
    pub(crate) const CODE: u16 = 0x000f;
}

/// The outcome of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    NoError,
    FormatError,
    ServerFailure,
    NameError,
    NotImplemented,
    Refused,
    BadVersion,
}

impl Code {
    pub(crate) const ALL: [Self; 7] = [
        Self::NoError,
        Self::FormatError,
        Self::ServerFailure,
        Self::NameError,
        Self::NotImplemented,
        Self::Refused,
        Self::BadVersion,
    ];

    /// The number of the code. That of `BadVersion` has bits that are encoded in the OPT record.
    pub(crate) fn number(self) -> u16 {
        match self {
            Self::NoError => 0,
            Self::FormatError => 1,
            Self::ServerFailure => 2,
            Self::NameError => 3,
            Self::NotImplemented => 4,
            Self::Refused => 5,
            Self::BadVersion => 16,
        }
    }

    /// The name of the code in metrics, as in CoreDNS.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::NoError => "NOERROR",
            Self::FormatError => "FORMERR",
            Self::ServerFailure => "SERVFAIL",
            Self::NameError => "NXDOMAIN",
            Self::NotImplemented => "NOTIMP",
            Self::Refused => "REFUSED",
            Self::BadVersion => "BADVERS",
        }
    }
}

/// The 16-bit number at a position.
pub(crate) fn number16(message: &[u8], at: usize) -> Result<u16, Malformed> {
    let bytes = message.get(at..).and_then(|rest| rest.first_chunk()).ok_or(Malformed)?;
    Ok(u16::from_be_bytes(*bytes))
}

/// The 32-bit number at a position.
pub(crate) fn number32(message: &[u8], at: usize) -> Result<u32, Malformed> {
    let bytes = message.get(at..).and_then(|rest| rest.first_chunk()).ok_or(Malformed)?;
    Ok(u32::from_be_bytes(*bytes))
}

/// Entry points of tests that decode arbitrary bytes.
pub mod fuzz {
    /// Decodes a message as a query, and walks over its records.
    pub fn decode(message: &[u8]) {
        let _ = super::Query::read(message);
        let _ = super::records(message).map(|all| all.map(|record| record.map(|found| found.ttl)).last());
    }
}
