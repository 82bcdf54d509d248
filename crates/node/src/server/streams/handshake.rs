//! How a client and the node agree to speak `WebSocket`.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{
    SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use super::super::answer::Body;

/// What every server appends to a client's key, so that no other server would answer like it (RFC 6455, 1.3).
const OF_WEBSOCKETS: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A subprotocol: how input and output are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Protocol {
    pub(super) version: Version,
    /// Whether messages are text, with their data in base64.
    pub(super) base64: bool,
    name: &'static str,
}

/// The version of a subprotocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// A failure is text.
    V1,
    /// With a `Status`, and so with an exit code.
    V4,
    /// With an end of what is typed as well.
    V5,
}

impl Protocol {
    const fn new(version: Version, base64: bool, name: &'static str) -> Self {
        Self { version, base64, name }
    }

    /// All of them, the preferred ones first.
    pub(super) const ALL: [Self; 5] = [
        Self::new(Version::V5, false, "v5.channel.k8s.io"),
        Self::new(Version::V4, false, "v4.channel.k8s.io"),
        Self::new(Version::V4, true, "v4.base64.channel.k8s.io"),
        Self::new(Version::V1, false, "channel.k8s.io"),
        Self::new(Version::V1, true, "base64.channel.k8s.io"),
    ];
    /// That of a client that offers none.
    const UNNAMED: Self = Self::new(Version::V1, false, "");
}

/// What was agreed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Handshake {
    pub(super) protocol: Protocol,
    accept: String,
}

impl Handshake {
    /// Reads what a client offers; an error says what is missing.
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, String> {
        let text = |name: &http::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        match text(&UPGRADE) {
            Some(upgrade) if upgrade.eq_ignore_ascii_case("websocket") => {}
            Some(other) => {
                return Err(format!(
                    "{other} is not spoken here, only WebSockets are (kubectl does from version 1.31 on, unless \
                     KUBECTL_REMOTE_COMMAND_WEBSOCKETS is false)"
                ));
            }
            None => return Err("missing upgrade headers in request".to_owned()),
        }
        if text(&SEC_WEBSOCKET_VERSION) != Some("13") {
            return Err("only version 13 of WebSockets is spoken here".to_owned());
        }
        let key = text(&SEC_WEBSOCKET_KEY).ok_or("the request has no Sec-WebSocket-Key")?;
        let offered: Vec<&str> = headers
            .get_all(SEC_WEBSOCKET_PROTOCOL)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .collect();
        let known = match offered[..] {
            [] => Some(Protocol::UNNAMED),
            _ => Protocol::ALL.into_iter().find(|known| offered.contains(&known.name)),
        };
        let protocol = known.ok_or_else(|| {
            let names = Protocol::ALL.map(|known| known.name).join(", ");
            format!("none of the protocols {offered:?} is spoken here, only {names}")
        })?;
        let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{OF_WEBSOCKETS}").as_bytes());
        Ok(Self { protocol, accept: BASE64_STANDARD.encode(hash) })
    }

    /// The answer to the client.
    pub(super) fn response(&self) -> Response<Body> {
        let body = Empty::new().map_err(|never: std::convert::Infallible| match never {}).boxed_unsync();
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        if !self.protocol.name.is_empty() {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(self.protocol.name));
        }
        // Base64 is text.
        if let Ok(accept) = HeaderValue::try_from(&self.accept) {
            headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let agreed = Handshake::read(&asked).unwrap();
        assert_eq!(agreed.protocol.version, Version::V5);
        let response = agreed.response();
        assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn older_subprotocols_are_spoken() {
        for (offered, version, base64) in [
            (Some("base64.channel.k8s.io"), Version::V1, true),
            (Some("channel.k8s.io, base64.channel.k8s.io"), Version::V1, false),
            (Some("v4.base64.channel.k8s.io, channel.k8s.io"), Version::V4, true),
            (None, Version::V1, false),
        ] {
            let mut asked = headers(&[
                ("upgrade", "websocket"),
                ("sec-websocket-version", "13"),
                ("sec-websocket-key", "x"),
            ]);
            if let Some(offered) = offered {
                asked.append("sec-websocket-protocol", HeaderValue::from_static(offered));
            }
            let agreed = Handshake::read(&asked).unwrap();
            assert_eq!((agreed.protocol.version, agreed.protocol.base64), (version, base64), "{offered:?}");
            let named = agreed.response().headers().contains_key("sec-websocket-protocol");
            assert_eq!(named, offered.is_some());
        }
    }

    #[test]
    fn what_is_not_spoken_is_said() {
        for (asked, why) in [
            (headers(&[]), "missing upgrade headers in request"),
            (headers(&[("upgrade", "SPDY/3.1")]), "SPDY/3.1 is not spoken here"),
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
            let refused = Handshake::read(&asked).unwrap_err();
            assert!(refused.starts_with(why), "{refused}");
        }
    }
}
