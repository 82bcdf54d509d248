//! gRPC probes: `grpc.health.v1.Health/Check`, one small message each way.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http::{HeaderMap, Request, Version};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::Outcome;
use super::target::{Dialer, dialed, place};

const AGENT: &str = "kube-probe/1.36";
/// The largest response: it is a few bytes long.
const MAX_BODY: usize = 4 << 10;
/// The status code of a server without health checks.
const UNIMPLEMENTED: &str = "12";
/// The health of a service, by number.
const STATES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
const SERVING: u8 = 1;

/// Probes once, within this time.
pub(super) async fn check(dialer: &Dialer, port: u16, service: &str, within: Duration) -> Outcome {
    let end = Instant::now() + within;
    let host = dialer.host(None);
    let at = place(&host, port);
    let stream = match timeout_at(end, dialer.connect(&host, port)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            let why = dialed(&host, port, &error);
            return Outcome::Failure(format!("error: failed to connect service at {at:?}: {why}"));
        }
        Err(_) => {
            return Outcome::Failure(format!(
                "timeout: failed to connect service {at:?} within {within:?}: context deadline exceeded"
            ));
        }
    };
    match timeout_at(end, ask(stream, &at, service)).await {
        Ok(Ok(response)) => response.outcome(),
        Ok(Err(why)) => Outcome::Failure(format!("error: health rpc probe failed: {why}")),
        Err(_) => Outcome::Failure(format!("timeout: health rpc did not complete within {within:?}")),
    }
}

/// A response: the status of the call, and the health if it succeeded.
struct Response {
    code: String,
    message: String,
    state: u8,
}

impl Response {
    fn outcome(self) -> Outcome {
        match self.code.as_str() {
            "0" if self.state == SERVING => Outcome::Success,
            "0" => {
                let state = STATES.get(usize::from(self.state)).unwrap_or(&"UNKNOWN");
                Outcome::Failure(format!("service unhealthy (responded with {state:?})"))
            }
            UNIMPLEMENTED => Outcome::Failure(format!(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
                self.message
            )),
            code => Outcome::Failure(format!(
                "error: health rpc probe failed: rpc error: code = {code} desc = {}",
                self.message
            )),
        }
    }
}

/// Why a health check got no response.
#[derive(Debug, thiserror::Error)]
enum RpcError {
    /// The connection failed.
    #[error(transparent)]
    Connection(#[from] hyper::Error),
    /// The request is invalid.
    #[error(transparent)]
    Request(#[from] http::Error),
    /// The body of the response could not be read.
    #[error(transparent)]
    Body(#[from] Box<dyn std::error::Error + Send + Sync>),
    /// The response has no status.
    #[error("the response has no grpc-status")]
    NoStatus,
}

async fn ask(stream: TcpStream, at: &str, service: &str) -> Result<Response, RpcError> {
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake?;
    // It ends with the request.
    tokio::spawn(connection);
    let request = Request::post(format!("http://{at}/grpc.health.v1.Health/Check"))
        .version(Version::HTTP_2)
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .header(USER_AGENT, AGENT)
        .body(Full::new(health_check_request(service)))?;
    let response = sender.send_request(request).await?;
    let headers = response.headers().clone();
    let body = Limited::new(response.into_body(), MAX_BODY).collect().await?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    let said = |name: &str| -> Option<String> {
        let in_one = |headers: &HeaderMap| Some(headers.get(name)?.to_str().ok()?.to_owned());
        in_one(&trailers).or_else(|| in_one(&headers))
    };
    let code = said("grpc-status").ok_or(RpcError::NoStatus)?;
    let message = said("grpc-message").unwrap_or_default();
    Ok(Response { code, message, state: state(&body.to_bytes()) })
}

/// A frame with a message whose first field is the service's name.
fn health_check_request(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            // The lowest seven bits, which fit.
            message.put_u8(u8::try_from(length & 0x7f).unwrap_or_default() | 0x80);
            length >>= 7;
        }
        message.put_u8(u8::try_from(length).unwrap_or_default());
        message.put_slice(service.as_bytes());
    }
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or_default());
    frame.extend_from_slice(&message);
    frame.freeze()
}

/// The first field of the message in a frame; it is left out if it is 0.
fn state(frame: &[u8]) -> u8 {
    match frame.get(5..) {
        Some([0x08, state, ..]) => *state,
        _ => 0,
    }
}
