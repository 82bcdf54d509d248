//! Any two pods may be tried as what is stored and what is asked for: nothing panics, and a resize that is let
//! in never changes the class.
#![no_main]

#[path = "../holds/validator.rs"]
mod validator;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| validator::holds(bytes));
