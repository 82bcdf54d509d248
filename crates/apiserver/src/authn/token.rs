//! A bearer token.

use std::fmt;

use subtle::ConstantTimeEq as _;

/// A bearer token: it authenticates every request that has it. Its `Debug` output hides it, and it has no `Display`.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    pub(super) fn new(text: String) -> Self {
        Self(text)
    }

    /// The token in plain text. Never write it to logs, errors or responses.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `presented` is this token. The comparison takes the same time however many bytes are equal.
    pub(super) fn is(&self, presented: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(presented).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[token]")
    }
}
