use super::wire::{BYTES, Reader, put_bytes};
use super::{Cause, ProtobufError};

/// The magic bytes at the beginning of a body.
pub const MAGIC: [u8; 4] = *b"k8s\0";

/// The envelope of a body (`runtime.Unknown`): the kind, and its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// The API version, such as `apps/v1`; empty if the client omits it.
    pub api_version: &'a str,
    /// The kind, such as `Pod`; empty if the client omits it.
    pub kind: &'a str,
    /// The message of that kind.
    pub raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Decodes the envelope of a body, without the message in it.
    pub fn open(body: &'a [u8]) -> Result<Self, ProtobufError> {
        if body.is_empty() {
            return Err(ProtobufError::Empty);
        }
        let inside = body.strip_prefix(&MAGIC).ok_or(ProtobufError::NoMagic)?;
        let mut envelope = Self { api_version: "", kind: "", raw: &[] };
        read(Reader::new(inside), |number, bytes| match number {
            1 => read(Reader::new(bytes), |number, bytes| {
                match number {
                    1 => envelope.api_version = text(bytes)?,
                    2 => envelope.kind = text(bytes)?,
                    _ => {}
                }
                Ok(())
            }),
            2 => {
                envelope.raw = bytes;
                Ok(())
            }
            3 if !bytes.is_empty() => {
                Err(ProtobufError::Encoded(String::from_utf8_lossy(bytes).chars().take(64).collect()))
            }
            _ => Ok(()),
        })?;
        Ok(envelope)
    }

    /// Encodes the body.
    pub fn seal(&self) -> Vec<u8> {
        let mut meta = Vec::with_capacity(self.api_version.len() + self.kind.len() + 4);
        put_bytes(&mut meta, 1, self.api_version.as_bytes());
        put_bytes(&mut meta, 2, self.kind.as_bytes());
        let mut body = Vec::with_capacity(self.raw.len() + meta.len() + 24);
        body.extend_from_slice(&MAGIC);
        put_bytes(&mut body, 1, &meta);
        put_bytes(&mut body, 2, self.raw);
        // Upstream writes an empty content encoding and content type.
        put_bytes(&mut body, 3, b"");
        put_bytes(&mut body, 4, b"");
        body
    }
}

fn text(bytes: &[u8]) -> Result<&str, ProtobufError> {
    std::str::from_utf8(bytes).map_err(|_| malformed(Cause::Utf8))
}

fn malformed(cause: Cause) -> ProtobufError {
    ProtobufError::Malformed { at: "Unknown".to_owned(), cause }
}

fn read<'a>(
    mut reader: Reader<'a>,
    mut each: impl FnMut(u32, &'a [u8]) -> Result<(), ProtobufError>,
) -> Result<(), ProtobufError> {
    while let Some((number, wire)) = reader.tag().map_err(malformed)? {
        if wire == BYTES {
            each(number, reader.bytes().map_err(malformed)?)?;
        } else {
            reader.skip(wire).map_err(malformed)?;
        }
    }
    Ok(())
}
