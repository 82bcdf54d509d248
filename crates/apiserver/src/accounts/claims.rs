//! The claims of a service account token.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// The claims of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claims {
    /// The audiences.
    #[serde(default)]
    pub(super) aud: Vec<String>,
    /// When the token expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exp: Option<i64>,
    /// When it was issued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) iat: Option<i64>,
    /// The issuer.
    pub(super) iss: String,
    /// The unique id of the token.
    #[serde(default)]
    pub(super) jti: String,
    /// The objects that it is bound to.
    #[serde(rename = "kubernetes.io")]
    pub(super) kubernetes: Bound,
    /// When it becomes valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) nbf: Option<i64>,
    /// The subject: the user name of the service account.
    pub(super) sub: String,
}

/// The objects that a token is bound to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bound {
    /// The namespace of the service account.
    pub(crate) namespace: String,
    /// The node: that of the pod, or the one that the token itself is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<Reference>,
    /// The pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<Reference>,
    /// The Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<Reference>,
    /// The service account.
    pub(crate) serviceaccount: Reference,
    /// When clients should have a newer token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) warnafter: Option<i64>,
}

/// An object by name and uid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reference {
    /// Its name.
    pub(crate) name: String,
    /// Its uid.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
}

impl Claims {
    /// Parses the payload of a token.
    pub(super) fn decode(payload: &str) -> Option<Self> {
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
    }
}
