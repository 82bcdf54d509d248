//! Any bytes, imported as an archive, as a layer or as a document of an image.
#![no_main]

#[path = "../holds/image_import.rs"]
mod image_import;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| image_import::holds(input.0, input.1));
