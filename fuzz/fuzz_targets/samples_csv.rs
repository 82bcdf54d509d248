//! Any bytes may be tried as a file of samples.
#![no_main]

#[path = "../holds/samples_csv.rs"]
mod samples_csv;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| samples_csv::holds(bytes));
