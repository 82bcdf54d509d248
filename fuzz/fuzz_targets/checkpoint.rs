//! Any bytes may be tried as the status of a checkpoint; see `holds/checkpoint.rs`.
#![no_main]

#[path = "../holds/checkpoint.rs"]
mod checkpoint;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| checkpoint::holds(bytes));
