//! Zstandard streams of any number of frames.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Whether a stream begins like Zstandard: with a frame, or with one to skip, as `pzstd` writes.
pub(super) fn is_magic(bytes: &[u8]) -> bool {
    matches!(bytes, [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// Decompresses all frames of a stream, one after another; RFC 8878 allows any number, and parallel compressors and
/// seekable formats make use of it. The decoder itself bounds the window of a frame to 128 MiB.
pub(super) struct ZstdDecoder<R> {
    source: R,
    decoder: FrameDecoder,
    /// Whether the decoder is inside of a frame.
    decoding: bool,
}

impl<R: BufRead> ZstdDecoder<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), decoding: false }
    }

    /// Begins the next frame; false if there is none.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = self.source.by_ref().take(u64::from(length));
                    if io::copy(&mut skipped, &mut io::sink())? < u64::from(length) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error.to_string())),
            }
        }
    }
}

impl<R: BufRead> Read for ZstdDecoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.decoding && !self.next_frame()? {
                return Ok(0);
            }
            self.decoding = true;
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(|error| io::Error::other(error.to_string()))?;
            }
            match self.decoder.read(buffer)? {
                0 => self.decoding = false,
                length => return Ok(length),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    fn frame(text: &str) -> Vec<u8> {
        compress_to_vec(text.as_bytes(), CompressionLevel::Fastest)
    }

    fn skippable(length: u32) -> Vec<u8> {
        let mut frame = vec![0x5a, 0x2a, 0x4d, 0x18];
        frame.extend(length.to_le_bytes());
        frame.resize(frame.len() + length as usize, 7);
        frame
    }

    fn decompressed(stream: &[u8]) -> io::Result<String> {
        let mut text = String::new();
        // Small reads, so that frames end inside of buffers and between them.
        ZstdDecoder::new(io::BufReader::with_capacity(3, stream)).read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn all_frames_are_read_and_frames_to_skip_are_skipped() {
        let long = "long ".repeat(100_000);
        for (stream, text) in [
            (Vec::new(), String::new()),
            (frame("a"), "a".to_owned()),
            ([frame("a"), frame(""), frame("b")].concat(), "ab".to_owned()),
            ([frame(&long), frame("b"), frame(&long)].concat(), format!("{long}b{long}")),
            ([skippable(5), frame("a"), skippable(0), frame("b"), skippable(9)].concat(), "ab".to_owned()),
        ] {
            assert!(stream.is_empty() || is_magic(&stream));
            assert_eq!(decompressed(&stream).unwrap(), text);
        }
    }

    #[test]
    fn a_stream_that_ends_in_a_frame_or_goes_on_with_something_else_is_an_error() {
        let whole = [frame("first"), frame("second")].concat();
        for cut in [whole.len() - 1, whole.len() - 8, frame("first").len() + 2] {
            assert!(decompressed(&whole[..cut]).is_err(), "{cut}");
        }
        assert!(decompressed(&[frame("first"), b"trailing".to_vec()].concat()).is_err());
        assert!(decompressed(&skippable(5)[..10]).is_err());
    }
}
