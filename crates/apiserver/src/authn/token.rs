//! A bearer token.

use std::fmt;

use subtle::ConstantTimeEq as _;

/// A bearer token: whoever has it is its user. Its `Debug` output hides it, and it has no `Display`.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    pub(super) fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself. Not for logs, errors or answers.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `presented` is this token. How long the answer takes does not tell how much of it is right.
    pub(super) fn is(&self, presented: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(presented).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[token]")
    }
}
