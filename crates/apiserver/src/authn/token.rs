//! A bearer token.

use std::fmt;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use rustls::crypto::SecureRandom;
use subtle::ConstantTimeEq as _;

/// A bearer token: whoever has it is its user. Its `Debug` output hides it, and it has no `Display`.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// 256 bits from `random`, as text.
    pub(super) fn generate(random: &dyn SecureRandom) -> Result<Self, rustls::crypto::GetRandomFailed> {
        let mut bytes = [0; 32];
        random.fill(&mut bytes)?;
        Ok(Self(BASE64_URL_SAFE_NO_PAD.encode(bytes)))
    }

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
