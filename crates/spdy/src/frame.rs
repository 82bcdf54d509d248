//! Frames, with their decoder and encoder.

use bytes::{Buf as _, Bytes, BytesMut};

use crate::headers::{Deflater, Headers, Inflater};

const VERSION: u16 = 3;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;

/// The flag of the last frame that a side sends on a stream.
const FIN: u8 = 1;
/// The maximum size of a control frame.
const MAX_CONTROL: usize = 64 << 10;
/// The size of a frame header.
const HEADER_SIZE: usize = 8;
/// The bits of a stream id.
const ID_MASK: u32 = 0x7fff_ffff;

/// The status of a reset: the peer violated the protocol.
pub const PROTOCOL_ERROR: u32 = 1;
/// The status of a reset: the stream was refused before it was processed.
pub const REFUSED_STREAM: u32 = 3;
/// The status of a reset: the stream is no longer needed.
pub const CANCEL: u32 = 5;

/// Why a frame cannot be decoded.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The control frame has another version.
    #[error("SPDY version {0} is not supported, only 3")]
    Version(u16),
    /// The control frame is too large, or too small for its type.
    #[error("invalid length {length} of a SPDY frame of type {kind}")]
    Length {
        /// The type of the frame.
        kind: u16,
        /// The length of the frame.
        length: usize,
    },
    /// The header block cannot be decoded.
    #[error("invalid SPDY headers: {0}")]
    Headers(&'static str),
}

/// A frame, or a part of a data frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Opens a stream.
    SynStream {
        /// The id of the stream: odd if the client opens it, otherwise even.
        id: u32,
        /// The headers of the stream.
        headers: Headers,
        /// Whether the sender sends no data.
        fin: bool,
    },
    /// Accepts a stream.
    SynReply {
        /// The id of the stream.
        id: u32,
        /// The headers of the reply.
        headers: Headers,
        /// Whether the sender sends no data.
        fin: bool,
    },
    /// Ends a stream in both directions.
    RstStream {
        /// The id of the stream.
        id: u32,
        /// The status code.
        status: u32,
    },
    /// A ping, which the peer answers with an identical frame.
    Ping(u32),
    /// The sender accepts no more streams.
    GoAway {
        /// The last stream that the sender accepted.
        last: u32,
        /// The status code.
        status: u32,
    },
    /// More headers of a stream.
    Headers {
        /// The id of the stream.
        id: u32,
        /// The headers.
        headers: Headers,
        /// Whether the sender sends no more data.
        fin: bool,
    },
    /// Data of a stream.
    Data {
        /// The id of the stream.
        id: u32,
        /// The data, which can be a part of the frame that was sent.
        data: Bytes,
        /// Whether the sender sends no more data.
        fin: bool,
    },
    /// A frame of a type that is ignored: settings and window updates.
    Other(u16),
}

/// A data frame that is not read completely.
struct Pending {
    id: u32,
    remaining: usize,
    fin: bool,
}

/// Decodes frames.
pub struct Decoder {
    headers: Inflater,
    pending: Option<Pending>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { headers: Inflater::new(), pending: None }
    }
}

impl Decoder {
    /// Decodes the next frame; `None` if more bytes are needed. Parts of data frames are returned as they arrive.
    pub fn read(&mut self, from: &mut BytesMut) -> Result<Option<Frame>, Error> {
        if let Some(pending) = self.pending.take() {
            return Ok(self.data(pending, from));
        }
        let Some((head, _)) = from.split_first_chunk::<HEADER_SIZE>() else { return Ok(None) };
        let [a, b, c, d, flags, rest @ ..] = *head;
        let fin = flags & FIN != 0;
        let length =
            usize::try_from(u32::from_be_bytes([0, rest[0], rest[1], rest[2]])).unwrap_or(usize::MAX);
        if a & 0x80 == 0 {
            from.advance(HEADER_SIZE);
            let id = u32::from_be_bytes([a, b, c, d]);
            return Ok(self.data(Pending { id, remaining: length, fin }, from));
        }
        let version = u16::from_be_bytes([a & 0x7f, b]);
        if version != VERSION {
            return Err(Error::Version(version));
        }
        let kind = u16::from_be_bytes([c, d]);
        if length > MAX_CONTROL {
            return Err(Error::Length { kind, length });
        }
        if from.len() < HEADER_SIZE + length {
            return Ok(None);
        }
        let frame = from.split_to(HEADER_SIZE + length);
        self.control(kind, fin, frame.get(HEADER_SIZE..).unwrap_or_default()).map(Some)
    }

    fn data(&mut self, pending: Pending, from: &mut BytesMut) -> Option<Frame> {
        let Pending { id, remaining, fin } = pending;
        let available = remaining.min(from.len());
        if available == remaining {
            return Some(Frame::Data { id, data: from.split_to(available).freeze(), fin });
        }
        self.pending = Some(Pending { id, remaining: remaining - available, fin });
        (available > 0).then(|| Frame::Data { id, data: from.split_to(available).freeze(), fin: false })
    }

    fn control(&mut self, kind: u16, fin: bool, body: &[u8]) -> Result<Frame, Error> {
        let short = Error::Length { kind, length: body.len() };
        let number = |at: usize| {
            let bytes = body.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_be_bytes)
        };
        let id = || number(0).map(|id| id & ID_MASK);
        Ok(match kind {
            SYN_STREAM => match (id(), body.get(10..)) {
                (Some(id), Some(block)) => Frame::SynStream { id, headers: self.headers.read(block)?, fin },
                _ => return Err(short),
            },
            SYN_REPLY | HEADERS => match (id(), body.get(4..)) {
                (Some(id), Some(block)) => {
                    let headers = self.headers.read(block)?;
                    if kind == SYN_REPLY {
                        Frame::SynReply { id, headers, fin }
                    } else {
                        Frame::Headers { id, headers, fin }
                    }
                }
                _ => return Err(short),
            },
            RST_STREAM | GOAWAY => match (id(), number(4)) {
                (Some(id), Some(status)) if kind == RST_STREAM => Frame::RstStream { id, status },
                (Some(last), Some(status)) => Frame::GoAway { last, status },
                _ => return Err(short),
            },
            PING => Frame::Ping(number(0).ok_or(short)?),
            other => Frame::Other(other),
        })
    }
}

/// Encodes frames.
#[derive(Debug, Default)]
pub struct Encoder {
    headers: Deflater,
}

impl Encoder {
    /// Appends a frame. [`Frame::Other`] is not sent.
    pub fn write(&mut self, frame: &Frame, to: &mut BytesMut) {
        match frame {
            Frame::SynStream { id, headers, fin } => {
                let block = self.headers.write(headers);
                // No associated stream, and the highest priority.
                write_control(to, SYN_STREAM, *fin, &[&id.to_be_bytes(), &[0; 6], &block]);
            }
            Frame::SynReply { id, headers, fin } => {
                let block = self.headers.write(headers);
                write_control(to, SYN_REPLY, *fin, &[&id.to_be_bytes(), &block]);
            }
            Frame::Headers { id, headers, fin } => {
                let block = self.headers.write(headers);
                write_control(to, HEADERS, *fin, &[&id.to_be_bytes(), &block]);
            }
            Frame::RstStream { id, status } => {
                write_control(to, RST_STREAM, false, &[&id.to_be_bytes(), &status.to_be_bytes()]);
            }
            Frame::Ping(id) => write_control(to, PING, false, &[&id.to_be_bytes()]),
            Frame::GoAway { last, status } => {
                write_control(to, GOAWAY, false, &[&last.to_be_bytes(), &status.to_be_bytes()]);
            }
            Frame::Data { id, data, fin } => {
                to.extend_from_slice(&(id & ID_MASK).to_be_bytes());
                write_length(to, *fin, data.len());
                to.extend_from_slice(data);
            }
            Frame::Other(_) => {}
        }
    }
}

/// Writes a control frame.
fn write_control(to: &mut BytesMut, kind: u16, fin: bool, parts: &[&[u8]]) {
    to.extend_from_slice(&(0x8000 | VERSION).to_be_bytes());
    to.extend_from_slice(&kind.to_be_bytes());
    write_length(to, fin, parts.iter().map(|part| part.len()).sum());
    for part in parts {
        to.extend_from_slice(part);
    }
}

/// Writes the flags and the length in three bytes, which are enough for all frames that this side sends.
fn write_length(to: &mut BytesMut, fin: bool, length: usize) {
    let [_, a, b, c] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    to.extend_from_slice(&[if fin { FIN } else { 0 }, a, b, c]);
}
