//! Frames, and how they are read from and written to bytes.

use bytes::{Buf as _, Bytes, BytesMut};

use crate::headers::{Deflater, Headers, Inflater};

const VERSION: u16 = 3;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;

/// The flag of a frame that is its sender's last on a stream.
const FIN: u8 = 1;
/// The largest control frame.
const LONGEST_CONTROL: usize = 64 << 10;
const HEAD: usize = 8;
/// All bits of a stream's id.
const ID: u32 = 0x7fff_ffff;

/// The status of a reset: the other side broke the rules of the protocol.
pub const PROTOCOL_ERROR: u32 = 1;
/// The status of a reset: the stream was refused before anything was done for it.
pub const REFUSED_STREAM: u32 = 3;
/// The status of a reset: the stream is not needed any more.
pub const CANCEL: u32 = 5;

/// Why bytes are no frames of this protocol.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A control frame of another version.
    #[error("SPDY version {0} is not supported, only 3")]
    Version(u16),
    /// A control frame that is too large, or too small for its type.
    #[error("invalid length {length} of a SPDY frame of type {kind}")]
    Length {
        /// The frame's type.
        kind: u16,
        /// Its length.
        length: usize,
    },
    /// Headers that cannot be read.
    #[error("invalid SPDY headers: {0}")]
    Headers(&'static str),
}

/// A frame. Of a data frame it may be a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Opens a stream.
    SynStream {
        /// Its id: odd if a client opens it, else even.
        id: u32,
        /// Its headers.
        headers: Headers,
        /// Whether its sender sends no data.
        fin: bool,
    },
    /// Accepts a stream.
    SynReply {
        /// Its id.
        id: u32,
        /// The headers of the reply.
        headers: Headers,
        /// Whether its sender sends no data.
        fin: bool,
    },
    /// Ends a stream in both directions.
    RstStream {
        /// Its id.
        id: u32,
        /// Why.
        status: u32,
    },
    /// Is to be answered with the same.
    Ping(u32),
    /// Its sender accepts no more streams.
    GoAway {
        /// The last stream that it accepted.
        last: u32,
        /// Why.
        status: u32,
    },
    /// More headers of a stream.
    Headers {
        /// Its id.
        id: u32,
        /// The headers.
        headers: Headers,
        /// Whether its sender sends no more data.
        fin: bool,
    },
    /// Data of a stream.
    Data {
        /// Its id.
        id: u32,
        /// The data, which may be a part of what was sent as one frame.
        data: Bytes,
        /// Whether its sender sends no more.
        fin: bool,
    },
    /// One of a type that means nothing here: settings, window updates.
    Other(u16),
}

/// A data frame that has not been read to its end.
struct Pending {
    id: u32,
    left: usize,
    fin: bool,
}

/// Reads frames.
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
    /// Takes the next frame from the bytes that have come so far; `None` if more have to come. Data is passed on as it comes.
    pub fn read(&mut self, from: &mut BytesMut) -> Result<Option<Frame>, Error> {
        if let Some(pending) = self.pending.take() {
            return Ok(self.data(pending, from));
        }
        let Some((head, _)) = from.split_first_chunk::<HEAD>() else { return Ok(None) };
        let [a, b, c, d, flags, rest @ ..] = *head;
        let fin = flags & FIN != 0;
        let length =
            usize::try_from(u32::from_be_bytes([0, rest[0], rest[1], rest[2]])).unwrap_or(usize::MAX);
        if a & 0x80 == 0 {
            from.advance(HEAD);
            let id = u32::from_be_bytes([a, b, c, d]);
            return Ok(self.data(Pending { id, left: length, fin }, from));
        }
        let version = u16::from_be_bytes([a & 0x7f, b]);
        if version != VERSION {
            return Err(Error::Version(version));
        }
        let kind = u16::from_be_bytes([c, d]);
        if length > LONGEST_CONTROL {
            return Err(Error::Length { kind, length });
        }
        if from.len() < HEAD + length {
            return Ok(None);
        }
        let frame = from.split_to(HEAD + length);
        self.control(kind, fin, frame.get(HEAD..).unwrap_or_default()).map(Some)
    }

    fn data(&mut self, pending: Pending, from: &mut BytesMut) -> Option<Frame> {
        let Pending { id, left, fin } = pending;
        let here = left.min(from.len());
        if here == left {
            return Some(Frame::Data { id, data: from.split_to(here).freeze(), fin });
        }
        self.pending = Some(Pending { id, left: left - here, fin });
        (here > 0).then(|| Frame::Data { id, data: from.split_to(here).freeze(), fin: false })
    }

    fn control(&mut self, kind: u16, fin: bool, body: &[u8]) -> Result<Frame, Error> {
        let short = Error::Length { kind, length: body.len() };
        let number = |at: usize| {
            let bytes = body.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_be_bytes)
        };
        let id = || number(0).map(|id| id & ID);
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

/// Writes frames.
#[derive(Debug, Default)]
pub struct Encoder {
    headers: Deflater,
}

impl Encoder {
    /// Appends a frame. [`Frame::Other`] is nothing to be sent.
    pub fn write(&mut self, frame: &Frame, to: &mut BytesMut) {
        match frame {
            Frame::SynStream { id, headers, fin } => {
                let block = self.headers.write(headers);
                // No stream that it belongs to, the highest priority.
                control(to, SYN_STREAM, *fin, &[&id.to_be_bytes(), &[0; 6], &block]);
            }
            Frame::SynReply { id, headers, fin } => {
                let block = self.headers.write(headers);
                control(to, SYN_REPLY, *fin, &[&id.to_be_bytes(), &block]);
            }
            Frame::Headers { id, headers, fin } => {
                let block = self.headers.write(headers);
                control(to, HEADERS, *fin, &[&id.to_be_bytes(), &block]);
            }
            Frame::RstStream { id, status } => {
                control(to, RST_STREAM, false, &[&id.to_be_bytes(), &status.to_be_bytes()]);
            }
            Frame::Ping(id) => control(to, PING, false, &[&id.to_be_bytes()]),
            Frame::GoAway { last, status } => {
                control(to, GOAWAY, false, &[&last.to_be_bytes(), &status.to_be_bytes()]);
            }
            Frame::Data { id, data, fin } => {
                to.extend_from_slice(&(id & ID).to_be_bytes());
                length(to, *fin, data.len());
                to.extend_from_slice(data);
            }
            Frame::Other(_) => {}
        }
    }
}

fn control(to: &mut BytesMut, kind: u16, fin: bool, parts: &[&[u8]]) {
    to.extend_from_slice(&(0x8000 | VERSION).to_be_bytes());
    to.extend_from_slice(&kind.to_be_bytes());
    length(to, fin, parts.iter().map(|part| part.len()).sum());
    for part in parts {
        to.extend_from_slice(part);
    }
}

/// Flags, and a length in three bytes: nothing that is longer is ever sent.
fn length(to: &mut BytesMut, fin: bool, length: usize) {
    let [_, a, b, c] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    to.extend_from_slice(&[if fin { FIN } else { 0 }, a, b, c]);
}
