//! Any bytes may be tried as a quantity; those that are one keep their value when written and read again.
#![no_main]

#[path = "../holds/quantity.rs"]
mod quantity;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| quantity::holds(bytes));
