//! How a client and the node agree on what to speak: `WebSocket`s or SPDY, and which protocol of Kubernetes inside of it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{
    SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use super::super::answer::Body;

/// What every server appends to a client's key, so that no other server would answer like it (RFC 6455, 1.3).
const OF_WEBSOCKETS: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The header with the protocols of Kubernetes inside of SPDY: all that a client speaks, and the one that was chosen.
pub(super) const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
/// The name of SPDY in an upgrade.
pub(super) const SPDY: &str = "SPDY/3.1";

/// The name of bytes as they are in an upgrade.
pub(super) const RAW: &str = "tcp";

/// The protocols of an endpoint, the preferred ones first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spoken {
    /// Subprotocols of `WebSocket`s. A client that offers none gets the empty one.
    pub(super) websocket: &'static [&'static str],
    /// Protocols inside of SPDY.
    pub(super) spdy: &'static [&'static str],
}

/// The result of the negotiation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Handshake {
    /// A `WebSocket`.
    WebSocket {
        /// The subprotocol; empty if the client offered none.
        protocol: &'static str,
        /// The answer to the client's key.
        accept: String,
    },
    /// SPDY, with this protocol inside of it.
    Spdy(&'static str),
    /// Bytes as they are.
    Raw,
}

/// Why a client and the node have no protocol in common.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HandshakeError {
    /// The request is no upgrade.
    #[error("missing upgrade headers in request")]
    NoUpgrade,
    /// The node does not support the protocol of the upgrade.
    #[error("{0} is not spoken here, only WebSockets and {SPDY} are")]
    Upgrade(String),
    /// A client of SPDY offers no protocol.
    #[error("X-Stream-Protocol-Version is required")]
    NoProtocol,
    /// The node does not support a protocol inside of SPDY that the client offers.
    #[error("unable to negotiate protocol: client supports [{offered}], server accepts [{accepted}]")]
    Spdy {
        /// The client's protocols.
        offered: String,
        /// The node's.
        accepted: String,
    },
    /// The client has another version of `WebSocket`s.
    #[error("only version 13 of WebSockets is spoken here")]
    Version,
    /// The client sends no key.
    #[error("the key is missing")]
    NoKey,
    /// The node does not support a subprotocol that the client offers.
    #[error("none of the protocols {offered:?} is spoken here, only {accepted}")]
    Subprotocol {
        /// The client's subprotocols.
        offered: Vec<String>,
        /// The node's.
        accepted: String,
    },
}

/// Values of headers that are lists.
fn values<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Vec<&'a str> {
    let all = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(',')).map(str::trim).collect()
}

impl Handshake {
    /// Chooses a protocol among those that a client offers.
    pub(super) fn read(headers: &HeaderMap, spoken: Spoken) -> Result<Self, HandshakeError> {
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        match text(&UPGRADE) {
            Some(upgrade) if upgrade.eq_ignore_ascii_case("websocket") => {
                websocket(headers, spoken.websocket)
            }
            Some(upgrade) if upgrade.eq_ignore_ascii_case(SPDY) => {
                let offered = values(headers, &STREAM_PROTOCOL);
                if offered.is_empty() {
                    return Err(HandshakeError::NoProtocol);
                }
                let known = spoken.spdy.iter().find(|known| offered.contains(*known));
                known.map(|known| Self::Spdy(known)).ok_or_else(|| {
                    let (offered, accepted) = (offered.join(" "), spoken.spdy.join(" "));
                    HandshakeError::Spdy { offered, accepted }
                })
            }
            Some(other) => Err(HandshakeError::Upgrade(other.to_owned())),
            None => Err(HandshakeError::NoUpgrade),
        }
    }

    /// The answer to the client.
    pub(super) fn response(&self) -> Response<Body> {
        let body = Empty::new().map_err(|never: std::convert::Infallible| match never {}).boxed_unsync();
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        match self {
            Self::WebSocket { protocol, accept } => {
                headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
                if !protocol.is_empty() {
                    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
                }
                // Base64 is text.
                if let Ok(accept) = HeaderValue::try_from(accept) {
                    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
                }
            }
            Self::Raw => drop(headers.insert(UPGRADE, HeaderValue::from_static(RAW))),
            Self::Spdy(protocol) => {
                headers.insert(UPGRADE, HeaderValue::from_static(SPDY));
                headers.insert(STREAM_PROTOCOL, HeaderValue::from_static(protocol));
            }
        }
        response
    }
}

fn websocket(headers: &HeaderMap, spoken: &'static [&'static str]) -> Result<Handshake, HandshakeError> {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    if text(&SEC_WEBSOCKET_VERSION) != Some("13") {
        return Err(HandshakeError::Version);
    }
    let key = text(&SEC_WEBSOCKET_KEY).ok_or(HandshakeError::NoKey)?;
    let offered = values(headers, &SEC_WEBSOCKET_PROTOCOL);
    let known = match offered[..] {
        [] => Some(""),
        _ => spoken.iter().copied().find(|known| offered.contains(known)),
    };
    let protocol = known.ok_or_else(|| HandshakeError::Subprotocol {
        offered: offered.iter().map(|name| (*name).to_owned()).collect(),
        accepted: spoken.join(", "),
    })?;
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{OF_WEBSOCKETS}").as_bytes());
    Ok(Handshake::WebSocket { protocol, accept: BASE64_STANDARD.encode(hash) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPOKEN: Spoken =
        Spoken { websocket: &["v5.channel.k8s.io", "v4.channel.k8s.io"], spdy: &["v4.channel.k8s.io"] };

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn the_key_is_answered_as_the_standard_has_it() {
        let asked = headers(&[
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", "v4.channel.k8s.io, v5.channel.k8s.io"),
        ]);
        let response = Handshake::read(&asked, SPOKEN).unwrap().response();
        assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(response.headers()["sec-websocket-protocol"], "v5.channel.k8s.io");
    }

    #[test]
    fn a_client_that_offers_no_subprotocol_gets_none() {
        let asked =
            headers(&[("upgrade", "websocket"), ("sec-websocket-version", "13"), ("sec-websocket-key", "x")]);
        let agreed = Handshake::read(&asked, SPOKEN).unwrap();
        assert!(matches!(agreed, Handshake::WebSocket { protocol: "", .. }));
        assert!(!agreed.response().headers().contains_key("sec-websocket-protocol"));
    }

    #[test]
    fn spdy_is_agreed_on_by_its_own_header() {
        let asked = headers(&[
            ("upgrade", "SPDY/3.1"),
            ("x-stream-protocol-version", "v5.channel.k8s.io"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
        ]);
        let agreed = Handshake::read(&asked, SPOKEN).unwrap();
        assert_eq!(agreed, Handshake::Spdy("v4.channel.k8s.io"));
        let response = agreed.response();
        assert_eq!(response.headers()["upgrade"], "SPDY/3.1");
        assert_eq!(response.headers()["x-stream-protocol-version"], "v4.channel.k8s.io");
    }

    #[test]
    fn an_unsupported_protocol_is_reported() {
        for (asked, why) in [
            (headers(&[]), "missing upgrade headers in request"),
            (headers(&[("upgrade", "h2c")]), "h2c is not spoken here"),
            (headers(&[("upgrade", "SPDY/3.1")]), "X-Stream-Protocol-Version is required"),
            (
                headers(&[("upgrade", "SPDY/3.1"), ("x-stream-protocol-version", "a, b")]),
                "unable to negotiate protocol: client supports [a b], server accepts [v4.channel.k8s.io]",
            ),
            (
                headers(&[
                    ("upgrade", "websocket"),
                    ("sec-websocket-version", "13"),
                    ("sec-websocket-key", "x"),
                    ("sec-websocket-protocol", "chat"),
                ]),
                "none of the protocols [\"chat\"] is spoken here",
            ),
        ] {
            let refused = Handshake::read(&asked, SPOKEN).unwrap_err().to_string();
            assert!(refused.starts_with(why), "{refused}");
        }
    }
}
