//! `OpenID` Connect discovery, for clients that verify tokens themselves.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response};
use serde_json::json;

use super::Accounts;

/// The path of the configuration.
pub(crate) const CONFIGURATION: &str = "/.well-known/openid-configuration";
/// The path of the keys.
pub(crate) const KEYS: &str = "/openid/v1/jwks";

impl Accounts {
    /// The response to a request for one of the documents. `None` for any other path.
    pub(crate) fn document(&self, path: &str) -> Option<Response<Bytes>> {
        let (document, media) = match path {
            CONFIGURATION => {
                let configuration = json!({
                    "issuer": self.settings.issuer,
                    "jwks_uri": format!("{}{KEYS}", self.settings.base_of_keys()),
                    "response_types_supported": ["id_token"],
                    "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": ["ES256"],
                });
                (configuration, "application/json")
            }
            KEYS => (self.keys.load().to_jwks(), "application/jwk-set+json"),
            _ => return None,
        };
        let mut response = Response::new(Bytes::from(document.to_string()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
        Some(response)
    }
}
