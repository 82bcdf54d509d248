//! A log inside of a `WebSocket`, as browsers ask for it: a message for each piece, binary or in base64.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::{SinkExt as _, StreamExt as _};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::audit::AuditContext;
use crate::error::ApiError;
use crate::in_flight::Permit;
use crate::response_body::Body;
use crate::shutdown::Shutdown;

/// What every server appends to a client's key (RFC 6455, 1.3).
const OF_WEBSOCKETS: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const BINARY: &str = "binary.k8s.io";
const BASE64: &str = "base64.binary.k8s.io";
/// The longest message of a client, which has nothing to say.
const LONGEST_MESSAGE: usize = 1 << 10;

/// Whether a client wants to switch to a `WebSocket`.
pub(super) fn is_asked_for(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    upgrade.is_some_and(|upgrade| upgrade.eq_ignore_ascii_case("websocket"))
}

/// The subprotocol of a client's choice: its name, which is empty if it named none.
fn protocol(headers: &HeaderMap) -> Result<&'static str, ApiError> {
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let offered: Vec<&str> = offered.flat_map(|value| value.split(',')).map(str::trim).collect();
    let known = offered.iter().find_map(|name| [BINARY, BASE64].into_iter().find(|known| known == name));
    match known {
        Some(known) => Ok(known),
        None if offered.is_empty() => Ok(""),
        None => Err(ApiError::bad_request(format!(
            "requested protocol(s) are not supported: {offered:?}; supports [{BINARY} {BASE64}]"
        ))),
    }
}

/// Answers with a `WebSocket` on which the log comes.
pub(super) fn answer(head: &Parts, permit: &Permit, log: Incoming) -> Result<Response<Body>, ApiError> {
    let headers = &head.headers;
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let key = text(SEC_WEBSOCKET_KEY).filter(|_| text(SEC_WEBSOCKET_VERSION) == Some("13"));
    let key = key.ok_or_else(|| ApiError::bad_request("unable to upgrade: not a WebSocket of version 13"))?;
    let protocol = protocol(headers)?;
    let client = head.extensions.get::<OnUpgrade>().cloned();
    let client = client.ok_or_else(|| {
        ApiError::bad_request("Upgrade request required on a connection that can be upgraded")
    })?;
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{OF_WEBSOCKETS}").as_bytes());
    let accept = HeaderValue::try_from(BASE64_STANDARD.encode(hash));
    let accept = accept.map_err(|error| ApiError::internal(error.to_string()))?;
    let mut response = Response::new(Body::from(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answered = response.headers_mut();
    answered.insert(UPGRADE, HeaderValue::from_static("websocket"));
    answered.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    answered.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if !protocol.is_empty() {
        answered.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    let mut shutdown = head.extensions.get::<Shutdown>().cloned();
    // The log goes on after this response, and counts against the limit until it ends, which completes its audit events.
    let held = (permit.detach(), AuditContext::of(&head.extensions).clone());
    tokio::spawn(async move {
        let _held = held;
        tokio::select! {
            () = send(client, log, protocol == BASE64) => {}
            () = Shutdown::requested_if_any(&mut shutdown) => {}
        }
    });
    Ok(response)
}

/// Sends a log to its end, or until the client disconnects.
async fn send(client: OnUpgrade, mut log: Incoming, base64: bool) {
    let upgraded = match client.await {
        Ok(upgraded) => upgraded,
        Err(error) => return tracing::debug!(%error, "a connection for a log was not upgraded"),
    };
    let limits = WebSocketConfig::default()
        .max_message_size(Some(LONGEST_MESSAGE))
        .max_frame_size(Some(LONGEST_MESSAGE));
    let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(limits)).await;
    let (mut to_client, mut from_client) = socket.split();
    let talk = async {
        while let Some(Ok(frame)) = log.frame().await {
            let Ok(piece) = frame.into_data() else { continue };
            let message =
                if base64 { Message::text(BASE64_STANDARD.encode(piece)) } else { Message::Binary(piece) };
            if to_client.send(message).await.is_err() {
                return;
            }
        }
        let normally = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
        // The client may have disconnected.
        let _ = to_client.send(Message::Close(Some(normally))).await;
    };
    // What it says means nothing; that it says no more does.
    let listen = async { while let Some(Ok(_)) = from_client.next().await {} };
    tokio::select! {
        () = talk => {}
        () = listen => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_chooses_the_subprotocol() {
        let headers = |offered: &'static str| {
            HeaderMap::from_iter([(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(offered))])
        };
        assert_eq!(protocol(&headers("base64.binary.k8s.io, binary.k8s.io")), Ok(BASE64));
        assert_eq!(protocol(&headers("binary.k8s.io")), Ok(BINARY));
        assert_eq!(protocol(&HeaderMap::new()), Ok(""));
        assert!(protocol(&headers("v4.channel.k8s.io")).is_err());
    }
}
