//! HTTP probes and hooks.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::HTTPGetAction;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::Outcome;
use super::target::{Dialer, dialed, place};
use crate::insecure_tls;

/// How many bytes of a response are read, and how many redirects are followed.
const MOST_BODY: usize = 10 << 10;
const MOST_REDIRECTS: usize = 10;
/// The user agent.
const AGENT: &str = "kube-probe/1.36";

/// Sends a probe's request, within this time.
pub(super) async fn check(get: &HTTPGetAction, dialer: &Dialer, port: u16, within: Duration) -> Outcome {
    send_request(get, dialer, port, within, outcome_of).await
}

/// Sends the request of a lifecycle hook, which succeeds with any response.
pub(super) async fn call(get: &HTTPGetAction, dialer: &Dialer, port: u16, within: Duration) -> Outcome {
    send_request(get, dialer, port, within, async |_| Outcome::Success).await
}

async fn send_request(
    get: &HTTPGetAction,
    dialer: &Dialer,
    port: u16,
    within: Duration,
    outcome_of: impl AsyncFnOnce(Response<Incoming>) -> Outcome,
) -> Outcome {
    let host = dialer.host(get.host.as_deref());
    let https = get.scheme.as_deref().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
    let first = Address { https, host, port, path: path(get.path.as_deref().unwrap_or_default()) };
    let headers = match headers(get) {
        Ok(headers) => headers,
        Err(error) => return Outcome::Error(error.to_string()),
    };
    let url = first.to_string();
    let work = async {
        match respond(dialer, first, &headers).await {
            Ok(answer) => outcome_of(answer).await,
            Err(error) => Outcome::Failure(error.to_string()),
        }
    };
    match tokio::time::timeout(within, work).await {
        Ok(outcome) => outcome,
        Err(_) => Outcome::Failure(format!(
            "Get \"{url}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        )),
    }
}

/// The URL of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    https: bool,
    host: String,
    port: u16,
    path: String,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", place(&self.host, self.port), self.path)
    }
}

/// Why a request got no response, with Go's messages.
#[derive(Debug, thiserror::Error)]
enum GetError {
    /// It could not be sent.
    #[error("Get \"{address}\": {error}")]
    Send {
        /// Where to.
        address: Address,
        /// Why.
        error: SendError,
    },
    /// A redirect leads nowhere.
    #[error("Get \"{address}\": {status} response missing Location header")]
    NoLocation {
        /// Where it came from.
        address: Address,
        /// The status code.
        status: u16,
    },
    /// There were too many redirects.
    #[error("Get \"{0}\": stopped after {MOST_REDIRECTS} redirects")]
    Redirects(Address),
}

/// The response to a request, after redirects within its host.
async fn respond(
    dialer: &Dialer,
    first: Address,
    headers: &HeaderMap,
) -> Result<Response<Incoming>, GetError> {
    let mut address = first.clone();
    for _ in 0..MOST_REDIRECTS {
        let answer = match send(dialer, &address, headers).await {
            Ok(answer) => answer,
            Err(error) => return Err(GetError::Send { address, error }),
        };
        let status = answer.status();
        if matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            let to = answer.headers().get(LOCATION).and_then(|to| to.to_str().ok());
            let Some(to) = to.and_then(|to| address.redirected_to(to)) else {
                return Err(GetError::NoLocation { address, status: status.as_u16() });
            };
            if to.host == first.host {
                address = to;
                continue;
            }
        }
        return Ok(answer);
    }
    Err(GetError::Redirects(address))
}

/// The result of a probe by its response.
async fn outcome_of(answer: Response<Incoming>) -> Outcome {
    match answer.status().as_u16() {
        200..=299 => Outcome::Success,
        300..=399 => {
            Outcome::Warning(format!("Probe terminated redirects, Response body: {}", body(answer).await))
        }
        code => Outcome::Failure(format!("HTTP probe failed with statuscode: {code}")),
    }
}

async fn send(
    dialer: &Dialer,
    address: &Address,
    headers: &HeaderMap,
) -> Result<Response<Incoming>, SendError> {
    let Address { host, port, .. } = address;
    let stream = dialer.connect(host, *port).await;
    let stream = stream.map_err(|error| SendError::Dial(dialed(host, *port, &error)))?;
    if address.https {
        let name = ServerName::try_from(host.clone())?;
        let tls = insecure_tls::client_config()?;
        send_over(TlsConnector::from(tls).connect(name, stream).await?, address, headers).await
    } else {
        send_over(stream, address, headers).await
    }
}

async fn send_over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    address: &Address,
    headers: &HeaderMap,
) -> Result<Response<Incoming>, SendError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the response: the sender and the body are dropped.
    tokio::spawn(connection);
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = address.path.parse::<Uri>()?;
    *request.headers_mut() = headers.clone();
    if !request.headers().contains_key(HOST) {
        let host = HeaderValue::from_str(&place(&address.host, address.port));
        request.headers_mut().insert(HOST, host?);
    }
    Ok(sender.send_request(request).await?)
}

/// The beginning of a response's body.
async fn body(answer: Response<Incoming>) -> String {
    match Limited::new(answer.into_body(), MOST_BODY).collect().await {
        Ok(body) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        Err(_) => String::new(),
    }
}

/// Why a request cannot be made or got no response.
#[derive(Debug, thiserror::Error)]
enum SendError {
    /// The connection failed.
    #[error("{0}")]
    Dial(String),
    /// TLS failed.
    #[error(transparent)]
    Tls(#[from] std::io::Error),
    /// TLS cannot be set up.
    #[error(transparent)]
    TlsConfig(#[from] rustls::Error),
    /// The host is no name that TLS accepts.
    #[error(transparent)]
    ServerName(#[from] rustls::pki_types::InvalidDnsNameError),
    /// The connection ended.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The path is invalid.
    #[error(transparent)]
    Uri(#[from] http::uri::InvalidUri),
    /// The name of a header is invalid.
    #[error(transparent)]
    HeaderName(#[from] http::header::InvalidHeaderName),
    /// The value of a header is invalid.
    #[error(transparent)]
    HeaderValue(#[from] http::header::InvalidHeaderValue),
}

fn headers(get: &HTTPGetAction) -> Result<HeaderMap, SendError> {
    let mut headers = HeaderMap::new();
    for header in get.http_headers.iter().flatten() {
        let name = HeaderName::try_from(header.name.as_str())?;
        let value = HeaderValue::try_from(header.value.as_str())?;
        headers.append(name, value);
    }
    headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
    // An empty header means that none is sent.
    if headers.get(ACCEPT).is_some_and(HeaderValue::is_empty) {
        headers.remove(ACCEPT);
    } else {
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    }
    Ok(headers)
}

/// A valid path of a request, with other characters escaped.
fn path(written: &str) -> String {
    let mut path = String::with_capacity(written.len() + 1);
    if !written.starts_with('/') {
        path.push('/');
    }
    for byte in written.split('#').next().unwrap_or_default().bytes() {
        if byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // Writing into memory does not fail.
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path
}

impl Address {
    /// The address of a redirect from here.
    fn redirected_to(&self, to: &str) -> Option<Self> {
        let rest = if let Some(rest) = to.strip_prefix("//") {
            Some((self.https, rest))
        } else {
            let schemes = [("http://", false), ("https://", true)];
            schemes.into_iter().find_map(|(scheme, https)| Some((https, to.strip_prefix(scheme)?)))
        };
        let Some((https, rest)) = rest else {
            let path = if to.starts_with('/') {
                path(to)
            } else {
                let folder = self.path.split('?').next()?.rsplit_once('/').map_or("", |(folder, _)| folder);
                path(&format!("{folder}/{to}"))
            };
            return Some(Self { path, ..self.clone() });
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let authority: http::uri::Authority = rest[..end].parse().ok()?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(if https { 443 } else { 80 });
        Some(Self { https, host, port, path: path(&rest[end..]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_is_resolved_against_the_address_of_the_probe() {
        let here = Address { https: false, host: "10.0.0.1".into(), port: 80, path: "/a/b?c".into() };
        let table = [
            ("/x?y", "http://10.0.0.1:80/x?y"),
            ("x", "http://10.0.0.1:80/a/x"),
            ("https://10.0.0.1/z", "https://10.0.0.1:443/z"),
            ("http://other:81", "http://other:81/"),
            ("//[fd00::1]:9/q", "http://[fd00::1]:9/q"),
            ("https://h?a#b", "https://h:443/?a"),
        ];
        for (to, expected) in table {
            assert_eq!(here.redirected_to(to).unwrap().to_string(), expected, "{to}");
        }
        assert_eq!(here.redirected_to("http://a b/"), None);
    }

    #[test]
    fn any_path_can_be_probed() {
        for (written, expected) in [("", "/"), ("healthz", "/healthz"), ("/a b?c=ü#d", "/a%20b?c=%C3%BC")] {
            assert_eq!(path(written), expected);
        }
    }
}
