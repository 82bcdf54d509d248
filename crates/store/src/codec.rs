//! The encoding of objects on disk. Integers are little-endian; strings and values are prefixed with their length.

use crate::{
    Attributes, Event, Key, MAX_OVERHEAD, MAX_VALUE, Object, TransformError, Transformer,
    journal::Record,
    transformer::{ValueReader, to_storage},
};

const PUT: u8 = 1;
const DELETE: u8 = 2;

/// The bytes are truncated or invalid, though their checksum is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Why an object or a record cannot be decoded.
#[derive(Debug)]
pub(crate) enum DecodeError {
    Malformed(Malformed),
    Transform(TransformError),
}

impl From<Malformed> for DecodeError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl From<TransformError> for DecodeError {
    fn from(error: TransformError) -> Self {
        Self::Transform(error)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "keys and attributes are at most 1024 bytes long")]
fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

#[expect(clippy::cast_possible_truncation, reason = "at most 16 attributes, and values of at most 16 MiB")]
pub(crate) fn put_object(
    out: &mut Vec<u8>,
    object: &Object,
    transformer: Option<&dyn Transformer>,
) -> Result<(), TransformError> {
    let value = to_storage(transformer, object)?;
    put_text(out, object.key.as_str());
    for number in [object.create_revision, object.mod_revision, object.version] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.push(object.attributes.iter().len() as u8);
    for (name, value) in object.attributes.iter() {
        put_text(out, name);
        put_text(out, value);
    }
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    out.extend_from_slice(&value);
    Ok(())
}

pub(crate) fn put_event(
    out: &mut Vec<u8>,
    event: &Event,
    transformer: Option<&dyn Transformer>,
) -> Result<(), TransformError> {
    if let Some(object) = event.current() {
        out.push(PUT);
        put_object(out, object, transformer)?;
    } else {
        out.push(DELETE);
        put_text(out, event.key().as_str());
    }
    Ok(())
}

/// The bytes that are left to decode.
pub(crate) struct Decoder<'a>(pub(crate) &'a [u8]);

impl<'a> Decoder<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed("ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed("ends too early"))?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Result<&'a str, Malformed> {
        let length = u16::from_le_bytes(self.array()?);
        str::from_utf8(self.take(length.into())?).map_err(|_| Malformed("a text is not UTF-8"))
    }

    fn key(&mut self) -> Result<Key, Malformed> {
        Key::new(self.text()?).map_err(|_| Malformed("a key is malformed"))
    }

    pub(crate) fn object(&mut self, values: &mut ValueReader<'_>) -> Result<Object, DecodeError> {
        let key = self.key()?;
        let create_revision = self.u64()?;
        let mod_revision = self.u64()?;
        let version = self.u64()?;
        let [count] = self.array()?;
        let attributes: Result<Attributes, Malformed> =
            (0..count).map(|_| Ok((self.text()?, self.text()?))).collect();
        let length = self.u32()? as usize;
        if length > MAX_VALUE + MAX_OVERHEAD {
            return Err(Malformed("a value is too large").into());
        }
        let value = values.read(&key, self.take(length)?)?;
        Ok(Object { key, value, attributes: attributes?, create_revision, mod_revision, version })
    }

    pub(crate) fn record(&mut self, values: &mut ValueReader<'_>) -> Result<Record, DecodeError> {
        match self.array()? {
            [PUT] => self.object(values).map(Record::Put),
            [DELETE] => Ok(Record::Delete(self.key()?)),
            _ => Err(Malformed("an unknown kind of record").into()),
        }
    }
}
