//! Header blocks. All blocks of one direction of a connection share a compression context.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use crate::dictionary::{ID, dictionary};
use crate::frame::Error;

/// The maximum size of a decompressed header block.
const MAX_BLOCK: usize = 16 << 10;
/// The size of the deflate window.
const WINDOW: usize = 32 << 10;
/// The zlib header: deflate with a 32 KiB window and a preset dictionary.
const ZLIB_HEADER: [u8; 2] = [0x78, 0xbb];
/// The maximum length of a stored block of deflate.
const MAX_STORED: usize = 0xffff;

/// The headers of a stream, with names in lower case and in their original order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// The first value of a header; `name` must be in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(header, _)| header == name)?;
        Some(found.1.split('\0').next().unwrap_or_default())
    }

    /// The names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Parses a decompressed header block.
    fn read(mut block: &[u8]) -> Result<Self, Error> {
        let mut all = Vec::new();
        for _ in 0..number(&mut block)? {
            let name = text(&mut block)?.to_ascii_lowercase();
            all.push((name, text(&mut block)?));
        }
        if block.is_empty() { Ok(Self(all)) } else { Err(Error::Headers("trailing bytes after the headers")) }
    }

    /// Encodes a header block without compression.
    fn write(&self) -> Vec<u8> {
        // Lengths fit: headers that this side sends are short, and headers that it has read fit into a block.
        let number = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
        let mut block = number(self.0.len()).to_vec();
        for part in self.0.iter().flat_map(|(name, value)| [name, value]) {
            block.extend(number(part.len()));
            block.extend(part.bytes());
        }
        block
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(all: I) -> Self {
        let lower = |name: N| name.into().to_ascii_lowercase();
        Self(all.into_iter().map(|(name, value)| (lower(name), value.into())).collect())
    }
}

fn number(block: &mut &[u8]) -> Result<usize, Error> {
    let (head, rest) = block.split_first_chunk::<4>().ok_or(Error::Headers("truncated header block"))?;
    *block = rest;
    usize::try_from(u32::from_be_bytes(*head)).map_err(|_| Error::Headers("length out of range"))
}

fn text(block: &mut &[u8]) -> Result<String, Error> {
    let length = number(block)?;
    let (text, rest) = block.split_at_checked(length).ok_or(Error::Headers("truncated header block"))?;
    *block = rest;
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// Decompresses the header blocks of one direction of a connection.
pub(crate) struct Inflater {
    state: Box<DecompressorOxide>,
    window: Box<[u8]>,
    at: usize,
    /// Whether the zlib header has been read.
    started: bool,
}

impl Inflater {
    pub(crate) fn new() -> Self {
        Self { state: Box::default(), window: vec![0; WINDOW].into(), at: 0, started: false }
    }

    /// Decompresses a header block. The blocks of a direction must be read in order.
    pub(crate) fn read(&mut self, mut block: &[u8]) -> Result<Headers, Error> {
        if !self.started {
            block = self.read_zlib_header(block)?;
        }
        let mut plain = Vec::new();
        loop {
            let (status, read, written) =
                decompress(&mut self.state, block, &mut self.window, self.at, TINFL_FLAG_HAS_MORE_INPUT);
            block = block.get(read..).unwrap_or_default();
            plain.extend_from_slice(self.window.get(self.at..self.at + written).unwrap_or_default());
            self.at = (self.at + written) % WINDOW;
            if plain.len() > MAX_BLOCK {
                return Err(Error::Headers("header block too large"));
            }
            match status {
                TINFLStatus::HasMoreOutput => {}
                TINFLStatus::NeedsMoreInput if block.is_empty() => return Headers::read(&plain),
                _ => return Err(Error::Headers("malformed compressed data")),
            }
        }
    }

    /// Reads the zlib header. If it has the id of the dictionary, the window begins with the dictionary.
    fn read_zlib_header<'a>(&mut self, block: &'a [u8]) -> Result<&'a [u8], Error> {
        const BAD: Error = Error::Headers("not compressed with the SPDY dictionary");
        let (head, mut rest) = block.split_first_chunk::<2>().ok_or(BAD)?;
        let [method, flags] = *head;
        if method & 0x0f != 8 || u16::from_be_bytes(*head) % 31 != 0 {
            return Err(BAD);
        }
        if flags & 0x20 != 0 {
            let (id, after) = rest.split_first_chunk::<4>().ok_or(BAD)?;
            if u32::from_be_bytes(*id) != ID {
                return Err(BAD);
            }
            let dictionary = dictionary();
            self.at = dictionary.len();
            self.window.iter_mut().zip(dictionary).for_each(|(slot, byte)| *slot = byte);
            rest = after;
        }
        self.started = true;
        Ok(rest)
    }
}

/// Encodes the header blocks of one direction of a connection as stored blocks, without compression, since headers are few.
#[derive(Debug, Default)]
pub(crate) struct Deflater {
    started: bool,
}

impl Deflater {
    pub(crate) fn write(&mut self, headers: &Headers) -> Vec<u8> {
        let mut block = Vec::new();
        if !self.started {
            block.extend(ZLIB_HEADER);
            block.extend(ID.to_be_bytes());
            self.started = true;
        }
        let plain = headers.write();
        // An empty block at the end flushes the output of the decompressor.
        for part in plain.chunks(MAX_STORED).chain([&[][..]]) {
            let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
            block.push(0);
            block.extend(length.to_le_bytes());
            block.extend((!length).to_le_bytes());
            block.extend(part);
        }
        block
    }
}
