//! The wire format of protobuf: tags, varints, lengths.

use super::Cause;

pub(super) const VARINT: u8 = 0;
pub(super) const FIXED64: u8 = 1;
pub(super) const BYTES: u8 = 2;
const GROUP: u8 = 3;
const GROUP_END: u8 = 4;
const FIXED32: u8 = 5;

/// The maximum nesting depth of groups in unknown fields.
const GROUP_DEPTH: usize = 16;

/// Reads fields from the front of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Reads the number and the wire type of the next field; `None` at the end.
    pub(super) fn tag(&mut self) -> Result<Option<(u32, u8)>, Cause> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| Cause::FieldNumber)?;
        if number == 0 {
            return Err(Cause::FieldNumber);
        }
        // The mask leaves three bits, so the cast loses nothing.
        Ok(Some((number, (tag & 7) as u8)))
    }

    pub(super) fn varint(&mut self) -> Result<u64, Cause> {
        let mut value = 0u64;
        for (index, byte) in self.rest.iter().enumerate() {
            if index == 9 && *byte > 1 {
                return Err(Cause::Overflow);
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(Cause::Truncated)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Cause> {
        let length = usize::try_from(self.varint()?).map_err(|_| Cause::Truncated)?;
        self.take(length)
    }

    pub(super) fn fixed64(&mut self) -> Result<u64, Cause> {
        let bytes = self.take(8)?;
        Ok(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Cause> {
        let (head, rest) = self.rest.split_at_checked(length).ok_or(Cause::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    /// Skips an unknown field.
    pub(super) fn skip(&mut self, wire: u8) -> Result<(), Cause> {
        self.skip_at(wire, GROUP_DEPTH)
    }

    fn skip_at(&mut self, wire: u8, depth: usize) -> Result<(), Cause> {
        match wire {
            VARINT => self.varint().map(drop),
            FIXED64 => self.take(8).map(drop),
            BYTES => self.bytes().map(drop),
            FIXED32 => self.take(4).map(drop),
            GROUP if depth > 0 => loop {
                match self.tag()? {
                    None => return Err(Cause::Truncated),
                    Some((_, GROUP_END)) => return Ok(()),
                    Some((_, inner)) => self.skip_at(inner, depth - 1)?,
                }
            },
            other => Err(Cause::WireType(other)),
        }
    }

    pub(super) fn is_empty(self) -> bool {
        self.rest.is_empty()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        // The low seven bits, with the continuation bit.
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn put_tag(out: &mut Vec<u8>, number: u32, wire: u8) {
    put_varint(out, u64::from(number) << 3 | u64::from(wire));
}

pub(super) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_tag(out, number, BYTES);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends an integer field. Protobuf encodes a negative integer in ten bytes.
pub(super) fn put_int(out: &mut Vec<u8>, number: u32, value: i64) {
    put_tag(out, number, VARINT);
    put_varint(out, value.cast_unsigned());
}
