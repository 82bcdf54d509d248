//! Values that are text in JSON and something else to Go: moments, spans, amounts, bytes.

pub(crate) mod duration;
pub(crate) mod time;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Bytes as JSON has them.
pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The bytes behind a text, and the position where it stops being base64.
///
/// Line breaks inside are skipped, as Go's decoder skips them.
pub(crate) fn from_base64(text: &str) -> Result<Vec<u8>, usize> {
    let decoded = if text.contains(['\r', '\n']) {
        STANDARD.decode(text.replace(['\r', '\n'], ""))
    } else {
        STANDARD.decode(text)
    };
    decoded.map_err(|error| match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
        base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => text.len(),
    })
}
