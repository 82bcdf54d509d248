use bytes::{Bytes, BytesMut};
use plumb_spdy::Headers;
use plumb_spdy::frame::{Decoder, Encoder, Error, Frame};
use proptest::prelude::*;

/// Two frames of a Kubernetes client that open streams, compressed with zlib and the dictionary.
pub(crate) const FROM_A_CLIENT: &str = "800300010100003d0000000100000000000078f9e3c6a7c202253a703a2b294a4dcc851625aca9a0808614cb45\
    e01c6061606100a4398b20d198094ade8c0600000000ffff800300010000001800000003000000000000c2aa19540e2512d60b000000ffff";

pub(crate) fn from_hexadecimal(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}

fn headers(kind: &str) -> Headers {
    [("streamType", kind), ("port", "8080"), ("requestID", "0")].into_iter().collect()
}

fn read_all(bytes: &[u8]) -> Result<Vec<Frame>, Error> {
    let mut bytes = BytesMut::from(bytes);
    let mut decoder = Decoder::default();
    std::iter::from_fn(|| decoder.read(&mut bytes).transpose()).collect()
}

#[test]
fn headers_that_are_compressed_with_the_dictionary_are_decoded() {
    let frames = read_all(&from_hexadecimal(FROM_A_CLIENT)).unwrap();
    assert_eq!(
        frames,
        [
            Frame::SynStream { id: 1, headers: headers("error"), fin: true },
            Frame::SynStream { id: 3, headers: headers("data"), fin: false },
        ]
    );
}

#[test]
fn invalid_frames_are_rejected() {
    for (bytes, error) in [
        (&b"\x80\x02\x00\x01\x00\x00\x00\x00"[..], Error::Version(2)),
        (b"\x80\x03\x00\x01\x00\xff\xff\xff", Error::Length { kind: 1, length: 0x00ff_ffff }),
        (b"\x80\x03\x00\x03\x00\x00\x00\x04\x00\x00\x00\x01", Error::Length { kind: 3, length: 4 }),
        (
            b"\x80\x03\x00\x02\x00\x00\x00\x06\x00\x00\x00\x01hi",
            Error::Headers("not compressed with the SPDY dictionary"),
        ),
    ] {
        assert_eq!(read_all(bytes), Err(error));
    }
}

#[test]
fn oversized_headers_are_rejected() {
    let mut bytes = BytesMut::new();
    let long = [("a", "b".repeat(100_000))].into_iter().collect();
    Encoder::default().write(&Frame::SynReply { id: 1, headers: long, fin: false }, &mut bytes);
    assert!(matches!(read_all(&bytes), Err(Error::Length { kind: 2, .. })));
}

fn frame() -> impl Strategy<Value = Frame> {
    let id = 0..1_u32 << 31;
    let some = prop::collection::vec(("[a-z]{0,8}", "\\PC{0,12}"), 0..4);
    let some = some.prop_map(|all| all.into_iter().collect::<Headers>()).boxed();
    let data = prop::collection::vec(any::<u8>(), 1..64).prop_map(Bytes::from);
    prop_oneof![
        (id.clone(), some.clone(), any::<bool>()).prop_map(|(id, headers, fin)| Frame::SynStream {
            id,
            headers,
            fin
        }),
        (id.clone(), some.clone(), any::<bool>()).prop_map(|(id, headers, fin)| Frame::SynReply {
            id,
            headers,
            fin
        }),
        (id.clone(), some, any::<bool>()).prop_map(|(id, headers, fin)| Frame::Headers { id, headers, fin }),
        (id.clone(), any::<u32>()).prop_map(|(id, status)| Frame::RstStream { id, status }),
        (id.clone(), any::<u32>()).prop_map(|(last, status)| Frame::GoAway { last, status }),
        any::<u32>().prop_map(Frame::Ping),
        (id, data, any::<bool>()).prop_map(|(id, data, fin)| Frame::Data { id, data, fin }),
    ]
}

proptest! {
    #[test]
    fn encoded_frames_are_decoded_from_any_sequence_of_chunks(
        frames in prop::collection::vec(frame(), 0..12),
        cuts in prop::collection::vec(1..40_usize, 0..200),
    ) {
        let mut bytes = BytesMut::new();
        let mut encoder = Encoder::default();
        for frame in &frames {
            encoder.write(frame, &mut bytes);
        }
        let mut decoder = Decoder::default();
        let mut arrived = BytesMut::new();
        let mut read = Vec::new();
        let mut cuts = cuts.into_iter();
        while !bytes.is_empty() {
            let next = cuts.next().unwrap_or(bytes.len()).min(bytes.len());
            arrived.unsplit(bytes.split_to(next));
            while let Some(frame) = decoder.read(&mut arrived).unwrap() {
                crate::fuzz::spdy_frames::join(&mut read, frame);
            }
        }
        // Consecutive data frames are joined, as in the decoded frames.
        let mut written = Vec::new();
        for frame in frames {
            crate::fuzz::spdy_frames::join(&mut written, frame);
        }
        prop_assert_eq!(read, written);
    }
}
