//! Any two documents, one a patch for the other: refused or applied, and never without end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plumb_apischema::patch::{self, strategic};
use plumb_apischema::{Schema, json};

fuzz_target!(|input: (&[u8], &[u8])| {
    let (document, patch) = input;
    let (Ok(document), Ok(patch)) = (json::parse(document), json::parse(patch)) else { return };
    let schema = Schema::builtin();
    let Some(pod) = schema.kind("", "v1", "Pod") else { return };
    let _ = patch::merge(document.value.clone(), patch.value.clone());
    let _ = patch::json::apply(document.value.clone(), patch.value.clone());
    if let Ok(patched) = strategic::apply(schema, pod, document.value, patch.value) {
        let _ = json::canonical(schema, pod, patched);
    }
});
