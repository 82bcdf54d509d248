use std::net::IpAddr;

use bytes::Bytes;
use http::HeaderMap;
use http::request::Parts;
use plumb_apischema::json::Decoded;
use plumb_resize::rules::Rules;

use crate::audit::AuditContext;
use crate::authn::Peer;
use crate::codec;
use crate::error::ApiError;
use crate::kinds::Readable;

/// The HTTP request: its head, and its body.
pub(crate) struct HttpRequest {
    pub(crate) head: Parts,
    pub(crate) body: Bytes,
}

impl HttpRequest {
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// The address that the request came from; none for a request of this process.
    pub(crate) fn remote_address(&self) -> Option<IpAddr> {
        self.head.extensions.get::<Peer>().map(|peer| peer.remote().ip())
    }

    /// What handling the request adds to its audit events.
    pub(crate) fn audit(&self) -> &AuditContext {
        AuditContext::of(&self.head.extensions)
    }

    /// Decodes the object of a kind in the body.
    pub(crate) fn decode(&self, kind: &impl Readable, rules: &Rules) -> Result<Decoded, ApiError> {
        let decoded = codec::object(&self.head.headers, &self.body, kind, rules)?;
        self.audit().refer_to(&decoded.value);
        Ok(decoded)
    }
}
