//! The format of checkpoints and backups: all objects at one revision in one stream.
//!
//! ```text
//! header  "plumbarc" revision:u64 objects:u64 version:u32 crc32c:u32
//! block   length:u32 objects:u32 crc32c(payload):u32 crc32c(these 12 bytes):u32, payload     (many)
//! end     a block without length and objects
//! ```

use std::io::{self, Read, Write};

use crate::{
    Damage, MAX_OVERHEAD, Prefix, Recovery, Snapshot, TransformError, Transformer,
    codec::{DecodeError, Decoder, Malformed, put_object},
    transformer::ValueReader,
};

const MAGIC: &[u8; 8] = b"plumbarc";
const VERSION: u32 = 1;
const HEADER: usize = 32;
const BLOCK_HEADER: usize = 16;
/// A block is closed once it has this many bytes, so its length is at most this and one object.
const BLOCK: usize = 256 << 10;
/// The maximum length of a block: [`BLOCK`] and the largest object with its key and attributes.
const MAX_BLOCK: usize = BLOCK + crate::MAX_VALUE + MAX_OVERHEAD + (64 << 10);

/// Why an archive cannot be read.
#[derive(Debug)]
pub(crate) enum ArchiveError {
    Io(io::Error),
    Damaged(Damage),
    Transform(TransformError),
}

/// Writes a snapshot. `continues` is called before each block; false cancels.
pub(crate) fn write(
    snapshot: &Snapshot,
    out: &mut dyn Write,
    transformer: Option<&dyn Transformer>,
    continues: &dyn Fn() -> bool,
) -> io::Result<u64> {
    let mut header = Vec::with_capacity(HEADER);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&snapshot.revision.to_le_bytes());
    header.extend_from_slice(&(snapshot.len() as u64).to_le_bytes());
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&crc32c::crc32c(&header).to_le_bytes());
    out.write_all(&header)?;
    let mut size = header.len() as u64;
    let mut block = Vec::with_capacity(BLOCK + (64 << 10));
    let mut count = 0;
    for object in snapshot.iter(&Prefix::everything()) {
        put_object(&mut block, object, transformer).map_err(io::Error::other)?;
        count += 1;
        if block.len() >= BLOCK {
            if !continues() {
                return Err(io::Error::from(io::ErrorKind::Interrupted));
            }
            size += write_block(out, &block, count)?;
            block.clear();
            count = 0;
        }
    }
    if count > 0 {
        size += write_block(out, &block, count)?;
    }
    Ok(size + write_block(out, &[], 0)?)
}

#[expect(clippy::cast_possible_truncation, reason = "a block is at most some 17 MiB long")]
fn write_block(out: &mut dyn Write, payload: &[u8], count: u32) -> io::Result<u64> {
    let mut header = Vec::with_capacity(BLOCK_HEADER);
    header.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    header.extend_from_slice(&count.to_le_bytes());
    header.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    header.extend_from_slice(&crc32c::crc32c(&header).to_le_bytes());
    out.write_all(&header)?;
    out.write_all(payload)?;
    Ok((header.len() + payload.len()) as u64)
}

/// Reads an archive to its end. `name` is for errors; `history` limits the bytes of history.
pub(crate) fn read(
    input: &mut dyn Read,
    name: &str,
    history: usize,
    values: &mut ValueReader<'_>,
) -> Result<Recovery, ArchiveError> {
    let mut source = Source { input, name, offset: 0 };
    let mut header = [0; HEADER];
    source.fill(&mut header)?;
    let (revision, objects) = parse_header(&header).map_err(|what| source.damage(0, what.0))?;
    let mut recovery = Recovery::new(revision, history);
    let mut loaded = 0;
    let mut payload = Vec::new();
    loop {
        let at = source.offset;
        let mut header = [0; BLOCK_HEADER];
        source.fill(&mut header)?;
        let (length, count, crc) = parse_block(&header).map_err(|what| source.damage(at, what.0))?;
        if count == 0 {
            break;
        }
        payload.resize(length, 0);
        source.fill(&mut payload)?;
        if crc32c::crc32c(&payload) != crc {
            return Err(source.damage(at, "the checksum of a block is wrong"));
        }
        let mut decoder = Decoder(&payload);
        for _ in 0..count {
            let object = decoder.object(values).map_err(|error| match error {
                DecodeError::Malformed(what) => source.damage(at, what.0),
                DecodeError::Transform(error) => ArchiveError::Transform(error),
            })?;
            recovery.load(object).map_err(|error| source.damage(at, &error.to_string()))?;
            loaded += 1;
        }
        if !decoder.is_empty() {
            return Err(source.damage(at, "a block has more bytes than objects"));
        }
    }
    if loaded != objects {
        return Err(source.damage(0, &format!("the header states {objects} objects, there are {loaded}")));
    }
    let end = source.offset;
    if source.input.read(&mut [0]).map_err(ArchiveError::Io)? > 0 {
        return Err(source.damage(end, "there are bytes after the end"));
    }
    Ok(recovery)
}

fn parse_header(header: &[u8; HEADER]) -> Result<(u64, u64), Malformed> {
    let (checked, crc) = header.split_at(HEADER - 4);
    if !checked.starts_with(MAGIC) {
        return Err(Malformed("this is not a checkpoint or backup of a store"));
    }
    if Decoder(crc).u32()? != crc32c::crc32c(checked) {
        return Err(Malformed("the checksum of the header is wrong"));
    }
    let mut decoder = Decoder(&checked[MAGIC.len()..]);
    let revision = decoder.u64()?;
    let objects = decoder.u64()?;
    let version = decoder.u32()?;
    if version != VERSION {
        return Err(Malformed("the header names an unknown version"));
    }
    Ok((revision, objects))
}

fn parse_block(header: &[u8; BLOCK_HEADER]) -> Result<(usize, u32, u32), Malformed> {
    let (checked, crc) = header.split_at(BLOCK_HEADER - 4);
    let mut decoder = Decoder(checked);
    let length = decoder.u32()? as usize;
    let count = decoder.u32()?;
    let payload = decoder.u32()?;
    if Decoder(crc).u32()? != crc32c::crc32c(checked) || length > MAX_BLOCK {
        return Err(Malformed("the header of a block is wrong"));
    }
    Ok((length, count, payload))
}

struct Source<'a> {
    input: &'a mut dyn Read,
    name: &'a str,
    offset: u64,
}

impl Source<'_> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), ArchiveError> {
        match self.input.read_exact(buffer) {
            Ok(()) => {
                self.offset += buffer.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.damage(self.offset, "it ends too early"))
            }
            Err(error) => Err(ArchiveError::Io(error)),
        }
    }

    fn damage(&self, offset: u64, what: &str) -> ArchiveError {
        ArchiveError::Damaged(Damage { file: self.name.to_owned(), offset, what: what.to_owned() })
    }
}
