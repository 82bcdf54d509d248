//! Any bytes, read as a body of any kind: refused or read, and what is read stays what it is.
#![no_main]

#[path = "../holds/bodies.rs"]
mod bodies;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| bodies::holds(input.0, input.1));
