//! Any two documents, one a patch for the other: refused or applied, and never without end.

use plumb_apischema::patch::{self, strategic};
use plumb_apischema::{Schema, json};

/// Fails where it does not hold.
pub(crate) fn holds(document: &[u8], patch: &[u8]) {
    let (Ok(document), Ok(patch)) = (json::parse(document), json::parse(patch)) else { return };
    let schema = Schema::builtin();
    let Some(pod) = schema.kind("", "v1", "Pod") else { return };
    let _ = patch::merge(document.value.clone(), patch.value.clone());
    let _ = patch::json::apply(document.value.clone(), patch.value.clone());
    if let Ok(patched) = strategic::apply(schema, pod, document.value, patch.value) {
        let _ = json::canonical(schema, pod, patched);
    }
}
