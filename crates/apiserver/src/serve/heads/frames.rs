//! Which part of a head an HTTP/2 connection has received.
//!
//! hyper passes a request on once its head is complete, and tells nothing of one that is not. So this reads the headers of
//! frames, 9 bytes each, and nothing else: RFC 9113, sections 4.1, 6.2 and 6.10.

/// `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n`, which precedes the first frame.
const PREFACE: usize = 24;
const FRAME_HEADER: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// The frames of a connection as far as they are received. What is no HTTP/2 is read as some frames or other: h2 closes such
/// connections.
#[derive(Debug)]
pub(super) struct Frames {
    /// The bytes that are left of the preface or of a payload.
    skipped: usize,
    header: [u8; FRAME_HEADER],
    /// How many bytes of the next frame's header there are.
    filled: usize,
    /// Whether a head has begun, and a further frame is needed to complete it.
    is_open: bool,
    /// Whether the payload that is received completes the head.
    completes: bool,
}

impl Frames {
    pub(super) fn new() -> Self {
        Self { skipped: PREFACE, header: [0; FRAME_HEADER], filled: 0, is_open: false, completes: false }
    }

    /// Reads received bytes. Returns whether after them a head is incomplete that does not end in its first frame.
    pub(super) fn receive(&mut self, mut bytes: &[u8]) -> bool {
        loop {
            let skipped = self.skipped.min(bytes.len());
            self.skipped -= skipped;
            bytes = &bytes[skipped..];
            if self.skipped > 0 {
                return self.is_open;
            }
            if self.completes {
                (self.is_open, self.completes) = (false, false);
            }
            let (header, rest) = bytes.split_at(bytes.len().min(FRAME_HEADER - self.filled));
            self.header[self.filled..][..header.len()].copy_from_slice(header);
            self.filled += header.len();
            if self.filled < FRAME_HEADER {
                return self.is_open;
            }
            bytes = rest;
            self.filled = 0;
            let [high, middle, low, kind, flags, ..] = self.header;
            self.skipped = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            if matches!(kind, HEADERS | CONTINUATION) {
                self.completes = flags & END_HEADERS != 0;
                self.is_open |= !self.completes;
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let size = u8::try_from(payload.len()).unwrap();
        let mut frame = vec![0, 0, size, kind, flags, 0, 0, 0, 1];
        frame.extend_from_slice(payload);
        frame
    }

    /// The preface, and the first frame of a head that continues.
    pub(in crate::serve::heads) fn begin() -> Vec<u8> {
        [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(HEADERS, 0, b"first")].concat()
    }

    /// The last frame of that head.
    pub(in crate::serve::heads) fn end() -> Vec<u8> {
        frame(CONTINUATION, END_HEADERS, b"last")
    }

    #[test]
    fn a_head_is_incomplete_until_the_last_byte_of_its_last_frame_however_reads_divide_it() {
        let data = frame(0, 0, &[9, 1, 0, 4]);
        let whole = frame(HEADERS, END_HEADERS, b"whole");
        let continued = frame(CONTINUATION, 0, b"more");
        let parts = [
            (begin(), true),
            (continued, true),
            (end(), false),
            (whole, false),
            (data, false),
            (frame(HEADERS, 0, b""), true),
            (frame(CONTINUATION, END_HEADERS, b""), false),
        ];
        for step in [1, 2, 7, 100] {
            let mut frames = Frames::new();
            for (bytes, expected) in &parts {
                let mut is_open = false;
                for chunk in bytes.chunks(step) {
                    is_open = frames.receive(chunk);
                }
                assert_eq!(is_open, *expected, "{bytes:?} by {step}");
            }
        }
        let all: Vec<u8> = parts.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
        assert!(!Frames::new().receive(&all));
    }
}
