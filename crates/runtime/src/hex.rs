//! Bytes as text.

/// Two letters for each byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        text.extend([byte >> 4, byte & 15].map(|half| char::from_digit(u32::from(half), 16).unwrap_or('0')));
        text
    })
}
