//! Any two documents, one a patch for the other: refused or applied, and never without end.
#![no_main]

#[path = "../holds/patches.rs"]
mod patches;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], &[u8])| patches::holds(input.0, input.1));
