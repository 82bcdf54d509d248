//! Any bytes may come over a SPDY connection: they are refused or read, the same however they arrive, and what was read can be
//! written and reads back to itself.

use bytes::BytesMut;
use plumb_spdy::frame::{Decoder, Encoder, Error, Frame};

/// Appends a frame, and joins data frames of the same stream that follow one another: of those, only the bytes count.
pub(crate) fn join(all: &mut Vec<Frame>, frame: Frame) {
    if let (Some(Frame::Data { id: last, data: before, fin: ended @ false }), Frame::Data { id, data, fin }) =
        (all.last_mut(), &frame)
        && last == id
    {
        *before = [&before[..], &data[..]].concat().into();
        *ended = *fin;
        return;
    }
    all.push(frame);
}

/// All frames, of bytes that arrive in pieces of this size.
fn read(bytes: &[u8], piece: usize) -> (Vec<Frame>, Option<Error>) {
    let (mut decoder, mut arrived, mut all) = (Decoder::default(), BytesMut::new(), Vec::new());
    for piece in bytes.chunks(piece.max(1)) {
        arrived.extend_from_slice(piece);
        loop {
            match decoder.read(&mut arrived) {
                Ok(Some(frame)) => join(&mut all, frame),
                Ok(None) => break,
                Err(error) => return (all, Some(error)),
            }
        }
    }
    (all, None)
}

/// Fails where it does not hold.
pub(crate) fn holds(piece: u8, bytes: &[u8]) {
    let whole = read(bytes, usize::MAX);
    assert_eq!(whole, read(bytes, piece.into()), "in pieces of {piece}");
    let (frames, _) = whole;
    let (mut encoder, mut written) = (Encoder::default(), BytesMut::new());
    for frame in &frames {
        encoder.write(frame, &mut written);
    }
    let mut sent = Vec::new();
    for frame in frames.into_iter().filter(|frame| !matches!(frame, Frame::Other(_))) {
        join(&mut sent, frame);
    }
    assert_eq!(read(&written, usize::MAX), (sent, None));
}
