//! What a token says.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// What a token says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claims {
    /// For whom it is.
    #[serde(default)]
    pub(super) aud: Vec<String>,
    /// Until when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exp: Option<i64>,
    /// When it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) iat: Option<i64>,
    /// Who made it.
    pub(super) iss: String,
    /// Which one it is.
    #[serde(default)]
    pub(super) jti: String,
    /// What it is bound to.
    #[serde(rename = "kubernetes.io")]
    pub(super) kubernetes: Bound,
    /// From when on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) nbf: Option<i64>,
    /// Whose it is.
    pub(super) sub: String,
}

/// What a token is bound to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bound {
    /// The account's namespace.
    pub(super) namespace: String,
    /// The node: that of the pod, or what the token itself is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<Reference>,
    /// The pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pod: Option<Reference>,
    /// The secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) secret: Option<Reference>,
    /// The account.
    pub(super) serviceaccount: Reference,
    /// When whoever still uses it should have got another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) warnafter: Option<i64>,
}

/// An object, and which of those that had its name over time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reference {
    /// Its name.
    pub(super) name: String,
    /// Its uid.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
}

impl Claims {
    /// Reads the middle part of a token.
    pub(super) fn decode(payload: &str) -> Option<Self> {
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
    }
}
