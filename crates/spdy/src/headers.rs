//! Header blocks: names and values, compressed over the whole connection.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use crate::dictionary::{ID, dictionary};
use crate::frame::Error;

/// The longest header block, decompressed.
const LONGEST: usize = 16 << 10;
/// As far as a compressed text can refer back.
const WINDOW: usize = 32 << 10;
/// The head of a compressed stream: deflate with a 32 KiB window and a dictionary.
const HEAD: [u8; 2] = [0x78, 0xbb];
/// The longest stored block of deflate.
const LONGEST_STORED: usize = 0xffff;

/// The headers of a stream: names in lower case, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// The first value of a name, which is written in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(own, _)| own == name)?;
        Some(found.1.split('\0').next().unwrap_or_default())
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn read(mut block: &[u8]) -> Result<Self, Error> {
        let mut all = Vec::new();
        for _ in 0..number(&mut block)? {
            let name = text(&mut block)?.to_ascii_lowercase();
            all.push((name, text(&mut block)?));
        }
        if block.is_empty() { Ok(Self(all)) } else { Err(Error::Headers("more bytes than headers")) }
    }

    fn write(&self) -> Vec<u8> {
        // A header's length fits: what this side sends is short, and what it read fits into a block.
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
    let (head, rest) = block.split_first_chunk::<4>().ok_or(Error::Headers("a block that breaks off"))?;
    *block = rest;
    usize::try_from(u32::from_be_bytes(*head)).map_err(|_| Error::Headers("a length that is too large"))
}

fn text(block: &mut &[u8]) -> Result<String, Error> {
    let length = number(block)?;
    let (text, rest) = block.split_at_checked(length).ok_or(Error::Headers("a block that breaks off"))?;
    *block = rest;
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// Decompresses the header blocks of one direction of a connection.
pub(crate) struct Inflater {
    state: Box<DecompressorOxide>,
    window: Box<[u8]>,
    at: usize,
    /// Whether the head of the compressed stream has been read.
    begun: bool,
}

impl Inflater {
    pub(crate) fn new() -> Self {
        Self { state: Box::default(), window: vec![0; WINDOW].into(), at: 0, begun: false }
    }

    /// The headers of a compressed block. The blocks of a connection have to be read in order, each once.
    pub(crate) fn read(&mut self, mut block: &[u8]) -> Result<Headers, Error> {
        if !self.begun {
            block = self.begin(block)?;
        }
        let mut plain = Vec::new();
        loop {
            let (status, read, written) =
                decompress(&mut self.state, block, &mut self.window, self.at, TINFL_FLAG_HAS_MORE_INPUT);
            block = block.get(read..).unwrap_or_default();
            plain.extend_from_slice(self.window.get(self.at..self.at + written).unwrap_or_default());
            self.at = (self.at + written) % WINDOW;
            if plain.len() > LONGEST {
                return Err(Error::Headers("a block that is too long"));
            }
            match status {
                TINFLStatus::HasMoreOutput => {}
                TINFLStatus::NeedsMoreInput if block.is_empty() => return Headers::read(&plain),
                _ => return Err(Error::Headers("a block that cannot be decompressed")),
            }
        }
    }

    /// Reads the head of the compressed stream. One that names the dictionary is preceded by it.
    fn begin<'a>(&mut self, block: &'a [u8]) -> Result<&'a [u8], Error> {
        const BAD: Error = Error::Headers("a block that is not compressed with the protocol's dictionary");
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
            self.window.iter_mut().zip(dictionary).for_each(|(own, byte)| *own = byte);
            rest = after;
        }
        self.begun = true;
        Ok(rest)
    }
}

/// Writes header blocks of one direction of a connection such that they decompress: in stored blocks, since headers are few.
#[derive(Debug, Default)]
pub(crate) struct Deflater {
    begun: bool,
}

impl Deflater {
    pub(crate) fn write(&mut self, headers: &Headers) -> Vec<u8> {
        let mut block = Vec::new();
        if !self.begun {
            block.extend(HEAD);
            block.extend(ID.to_be_bytes());
            self.begun = true;
        }
        let plain = headers.write();
        // An empty one at the end has readers pass on what came before it.
        for part in plain.chunks(LONGEST_STORED).chain([&[][..]]) {
            let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
            block.push(0);
            block.extend(length.to_le_bytes());
            block.extend((!length).to_le_bytes());
            block.extend(part);
        }
        block
    }
}
