//! One batch in the log: a frame with checksums, and how to distinguish a torn frame from a damaged one.
//!
//! ```text
//! file   "plumblog" base:u64 version:u32 0:u64 crc32c:u32, frames, zeros
//! frame  magic:u32 length:u32 first revision:u64 events:u32 crc32c(payload):u32 log:u32 crc32c(these 28 bytes):u32,
//!        payload, mark, zeros up to a multiple of 8
//! ```
//! A frame is written only after the previous one is durable. So an invalid frame before a valid one is damaged. An invalid last
//! frame either was torn by a crash or is damaged: if it was torn, some of its sectors still have the zeros of the
//! preallocation, since disks write whole sectors.

use std::{io, sync::Arc};

use crate::{
    Event, Revision, TransformError, Transformer,
    codec::{Decoder, put_event},
    disk::DiskFile,
};

const FILE_MAGIC: &[u8; 8] = b"plumblog";
const VERSION: u32 = 1;
pub(super) const FILE_HEADER: usize = 32;
const MAGIC: u32 = 0x4d4c_5046;
pub(super) const HEADER: usize = 32;
/// The last byte of a frame. It has several bits set, so that a single bit flip does not make it look unwritten.
const MARK: u8 = 0xA5;
/// The unit that a disk writes atomically.
const SECTOR: u64 = 512;
const ALIGN: usize = 8;
/// The number of bytes of a file that are read at once.
const WINDOW: usize = 1 << 20;
static ZEROS: [u8; 4096] = [0; 4096];

/// The header of a log file, and the number that its frames contain. The number distinguishes them from frames of an older log
/// whose blocks the file system has reused.
pub(super) fn file_header(base: Revision) -> ([u8; FILE_HEADER], u32) {
    let mut header = [0; FILE_HEADER];
    header[..8].copy_from_slice(FILE_MAGIC);
    header[8..16].copy_from_slice(&base.to_le_bytes());
    header[16..20].copy_from_slice(&VERSION.to_le_bytes());
    let crc = crc32c::crc32c(&header[..28]);
    header[28..].copy_from_slice(&crc.to_le_bytes());
    (header, crc)
}

/// Encodes a batch as a frame. If it fails, the frame must not be written.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a batch is bounded far below 4 GiB by head and transaction"
)]
pub(super) fn encode(
    frame: &mut Vec<u8>,
    log: u32,
    batch: &[Arc<Event>],
    transformer: Option<&dyn Transformer>,
) -> Result<(), TransformError> {
    frame.clear();
    frame.resize(HEADER, 0);
    for event in batch {
        put_event(frame, event, transformer)?;
    }
    let payload = &frame[HEADER..];
    let length = payload.len() as u32;
    let crc = crc32c::crc32c(payload);
    let first = batch.first().map_or(0, |event| event.revision);
    frame[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    frame[4..8].copy_from_slice(&length.to_le_bytes());
    frame[8..16].copy_from_slice(&first.to_le_bytes());
    frame[16..20].copy_from_slice(&(batch.len() as u32).to_le_bytes());
    frame[20..24].copy_from_slice(&crc.to_le_bytes());
    frame[24..28].copy_from_slice(&log.to_le_bytes());
    let crc = crc32c::crc32c(&frame[..28]);
    frame[28..32].copy_from_slice(&crc.to_le_bytes());
    frame.push(MARK);
    frame.resize(frame.len().next_multiple_of(ALIGN), 0);
    Ok(())
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) first: Revision,
    pub(super) events: u32,
    length: usize,
    crc: u32,
}

impl Header {
    fn parse(bytes: &[u8], log: u32) -> Option<Self> {
        let (checked, crc) = bytes.get(..HEADER)?.split_at(HEADER - 4);
        let mut decoder = Decoder(checked);
        if decoder.u32().ok()? != MAGIC {
            return None;
        }
        let length = decoder.u32().ok()? as usize;
        let first = decoder.u64().ok()?;
        let events = decoder.u32().ok()?;
        let payload = decoder.u32().ok()?;
        let sound = decoder.u32().ok()? == log && Decoder(crc).u32().ok()? == crc32c::crc32c(checked);
        sound.then_some(Self { first, events, length, crc: payload })
    }

    fn frame(self) -> usize {
        (HEADER + self.length + 1).next_multiple_of(ALIGN)
    }
}

/// The content of the log at an offset.
pub(super) enum Found<'a> {
    Frame {
        header: Header,
        payload: &'a [u8],
        next: u64,
    },
    /// The end of the log: only zeros follow.
    End,
    /// A frame that was being written at a crash or power loss. Its bytes end at `until`.
    Torn {
        until: u64,
    },
    Damaged(&'static str),
}

/// A log file, read sequentially through a window.
pub(super) struct Reader {
    file: Box<dyn DiskFile>,
    pub(super) size: u64,
    window: Vec<u8>,
    start: u64,
}

impl Reader {
    pub(super) fn new(file: Box<dyn DiskFile>) -> io::Result<Self> {
        Ok(Self { size: file.size()?, file, window: Vec::new(), start: 0 })
    }

    pub(super) fn into_file(self) -> Box<dyn DiskFile> {
        self.file
    }

    /// Checks the header of the file.
    pub(super) fn check_header(&mut self, base: Revision) -> io::Result<bool> {
        Ok(self.bytes(0, FILE_HEADER)? == file_header(base).0)
    }

    /// Reads the content at an offset.
    pub(super) fn find(&mut self, offset: u64, log: u32) -> io::Result<Found<'_>> {
        let header = Header::parse(self.bytes(offset, HEADER)?, log);
        match header {
            Some(header) if self.is_sound(offset, header)? => {
                let next = offset + header.frame() as u64;
                let payload = &self.bytes(offset, HEADER + header.length)?[HEADER..];
                Ok(Found::Frame { header, payload, next })
            }
            header => self.classify(offset, header, log),
        }
    }

    fn is_sound(&mut self, offset: u64, header: Header) -> io::Result<bool> {
        if offset + header.frame() as u64 > self.size.next_multiple_of(ALIGN as u64) {
            return Ok(false);
        }
        let bytes = self.bytes(offset, HEADER + header.length + 1)?;
        let Some((payload, [mark])) =
            bytes.get(HEADER..).and_then(|rest| rest.split_at_checked(header.length))
        else {
            return Ok(false);
        };
        Ok(*mark == MARK && crc32c::crc32c(payload) == header.crc)
    }

    /// Classifies bytes that are not a valid frame.
    fn classify(&mut self, offset: u64, header: Option<Header>, log: u32) -> io::Result<Found<'_>> {
        let Some(last) = self.last_nonzero(offset)? else { return Ok(Found::End) };
        let until = header.map_or(last + 1, |header| offset + header.frame() as u64);
        let mut position = if header.is_some() { until } else { offset + ALIGN as u64 };
        while position <= last {
            if let Some(later) = Header::parse(self.bytes(position, HEADER)?, log)
                && self.is_sound(position, later)?
            {
                return Ok(Found::Damaged("a batch is damaged, although a later one is valid"));
            }
            position += ALIGN as u64;
        }
        if last >= until {
            return Ok(Found::Damaged("there are bytes after a damaged batch"));
        }
        // The offset of its mark, which is at least the end of the header.
        let end = offset + (HEADER + header.map_or(0, |header| header.length)) as u64;
        if last < end || self.has_unwritten_sector(offset, last)? {
            Ok(Found::Torn { until: last + 1 })
        } else {
            Ok(Found::Damaged("the checksum of the last batch is wrong"))
        }
    }

    fn has_unwritten_sector(&mut self, offset: u64, last: u64) -> io::Result<bool> {
        let mut start = offset;
        while start <= last {
            let end = ((start / SECTOR) + 1) * SECTOR;
            let sector = self.bytes(start, usize::try_from(end - start).unwrap_or(0))?;
            if sector.iter().all(|byte| *byte == 0) {
                return Ok(true);
            }
            start = end;
        }
        Ok(false)
    }

    fn last_nonzero(&mut self, offset: u64) -> io::Result<Option<u64>> {
        let mut last = None;
        let mut position = offset;
        while position < self.size {
            let bytes = self.bytes(position, ZEROS.len())?;
            if bytes.is_empty() {
                break;
            }
            // Most bytes here are zeros, and comparing a block of them is fast.
            if *bytes != ZEROS[..bytes.len()]
                && let Some(at) = bytes.iter().rposition(|byte| *byte != 0)
            {
                last = Some(position + at as u64);
            }
            position += bytes.len() as u64;
        }
        Ok(last)
    }

    /// Reads `length` bytes, or fewer at the end of the file.
    fn bytes(&mut self, offset: u64, length: usize) -> io::Result<&[u8]> {
        let end = offset + length as u64;
        let held = self.start..self.start + self.window.len() as u64;
        if !(held.contains(&offset) && (end <= held.end || held.end >= self.size)) {
            let want = (length.max(WINDOW) as u64).min(self.size.saturating_sub(offset));
            // At most the size of the file.
            self.window.resize(usize::try_from(want).unwrap_or(usize::MAX), 0);
            self.start = offset;
            let mut filled = 0;
            while filled < self.window.len() {
                match self.file.read_at(&mut self.window[filled..], offset + filled as u64) {
                    Ok(0) => break,
                    Ok(read) => filled += read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        self.window.clear();
                        return Err(error);
                    }
                }
            }
            self.window.truncate(filled);
        }
        let from = usize::try_from(offset - self.start).unwrap_or(usize::MAX).min(self.window.len());
        let to = from.saturating_add(length).min(self.window.len());
        Ok(&self.window[from..to])
    }
}
