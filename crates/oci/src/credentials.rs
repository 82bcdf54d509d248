//! What a registry asks for.

use std::fmt;

/// Credentials of a registry, as `AuthConfig` of the CRI has them. An empty field is not set.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// The user.
    pub username: String,
    /// The password.
    pub password: String,
    /// An OAuth 2 refresh token, in place of user and password.
    pub identity_token: String,
    /// A bearer token that is sent to the registry as it is.
    pub registry_token: String,
}

impl Credentials {
    /// A user and a password.
    pub fn basic(username: impl Into<String>, password: impl Into<String>) -> Self {
        Self { username: username.into(), password: password.into(), ..Self::default() }
    }
}

/// Without secrets: credentials must not appear in a log.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}
