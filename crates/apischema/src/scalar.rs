//! Values that are strings in JSON and other types in Go: timestamps, durations, quantities, bytes.

pub(crate) mod time;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Number, Value};

/// Go's standard encoding, which accepts non-zero trailing bits.
const STANDARD: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Encodes bytes as base64.
pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes base64; the error is the position at which Go's decoder fails.
///
/// Line breaks inside are skipped, as Go's decoder skips them.
pub(crate) fn from_base64(text: &str) -> Result<Vec<u8>, usize> {
    let decoded = if text.contains(['\r', '\n']) {
        STANDARD.decode(text.replace(['\r', '\n'], ""))
    } else {
        STANDARD.decode(text)
    };
    decoded.map_err(|_| where_base64_ends(text.as_bytes()))
}

/// The position in Go's error: of the first invalid byte, or of the last group if it is incomplete.
fn where_base64_ends(text: &[u8]) -> usize {
    let mut in_group = 0;
    for (position, byte) in text.iter().enumerate() {
        match byte {
            b'\r' | b'\n' => {}
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => in_group = (in_group + 1) % 4,
            b'=' if in_group >= 2 => {
                let mut tail =
                    text.iter().enumerate().skip(position + 1).filter(|(_, byte)| !b"\r\n".contains(byte));
                if in_group == 3 {
                    return tail.next().map_or(text.len(), |(after, _)| after);
                }
                return match tail.next() {
                    None => text.len(),
                    Some((after, b'=')) => tail.next().map_or(after, |(garbage, _)| garbage),
                    Some((after, _)) => after - 1,
                };
            }
            _ => return position,
        }
    }
    text.len() - in_group.min(text.len())
}

/// A number as Go writes it: an integral float without a fraction. `None` if it is not finite.
pub(crate) fn number(value: f64) -> Option<Value> {
    /// 2^53, up to which a float represents every integer.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "whole, and small enough to be exact")]
    if value.fract() == 0.0 && value.abs() < EXACT {
        return Some(Value::from(value as i64));
    }
    Number::from_f64(value).map(Value::Number)
}
