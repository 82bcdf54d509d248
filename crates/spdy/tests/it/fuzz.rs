//! Runs the fuzz target of `fuzz/` briefly, without a fuzzer.

#[path = "../../../../fuzz/holds/mutations.rs"]
mod mutations;
#[path = "../../../../fuzz/holds/spdy_frames.rs"]
pub(crate) mod spdy_frames;

use crate::frames::{FROM_A_CLIENT, from_hexadecimal};

#[test]
fn fuzz_target_spdy_frames() {
    let seeds = [
        from_hexadecimal(FROM_A_CLIENT),
        b"\x00\x00\x00\x01\x00\x00\x00\x05hello\x00\x00\x00\x01\x01\x00\x00\x00".to_vec(),
        b"\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x01".to_vec(),
        b"\x80\x03\x00\x03\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x05".to_vec(),
    ];
    let words: &[&[u8]] =
        &[b"\x80\x03", b"\xff\xff\xff", b"\x00\x00\x00\xff\xff", b"\x78\xbb\xe3\xc6\xa7\xc2", b"\0"];
    mutations::run("spdy_frames", &seeds, words, 5_000, |mutations| {
        let bytes = mutations.input();
        spdy_frames::holds(mutations.byte(), &bytes);
    });
}
