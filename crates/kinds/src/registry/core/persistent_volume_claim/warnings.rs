//! Warnings about `PersistentVolumeClaims`.

use plumb_resize::Quantity;
use serde_json::Value;

/// Warnings about a claim.
pub(super) fn of(claim: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let class = "volume.beta.kubernetes.io/storage-class";
    if claim["metadata"]["annotations"].get(class).is_some() {
        warnings.push(format!(
            "metadata.annotations[{class}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
        ));
    }
    spec(&claim["spec"], "spec", &mut warnings);
    warnings
}

/// Warnings about a claim's spec.
pub(in crate::registry) fn spec(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    for side in ["requests", "limits"] {
        fraction(&spec["resources"][side], "storage", &format!("{path}.resources.{side}"), warnings);
    }
}

/// Warns of a fractional number of bytes.
pub(in crate::registry) fn fraction(list: &Value, name: &str, path: &str, warnings: &mut Vec<String>) {
    let Some(text) = list[name].as_str() else { return };
    let fraction = text.parse::<Quantity>().and_then(Quantity::milli).is_ok_and(|milli| milli % 1000 != 0);
    if fraction {
        warnings
            .push(format!("{path}[{name}]: fractional byte value {text:?} is invalid, must be an integer"));
    }
}
