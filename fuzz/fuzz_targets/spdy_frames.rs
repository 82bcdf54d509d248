//! Any bytes may come over a SPDY connection: they are refused or read, the same however they arrive.
#![no_main]

#[path = "../holds/spdy_frames.rs"]
mod spdy_frames;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| spdy_frames::holds(input.0, input.1));
