//! Queries over HTTP. The connection is that of Kubernetes clients: TLS, tokens that are read again, timeouts.

use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http::{HeaderValue, Method, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use kube::client::Body;
use kube::config::AuthInfo;
use kube::{Client, Config};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Out;
use super::error::PrometheusError;
use super::response::{self, Labels, Point, QueryOutcome};
use super::settings::{Authentication, PrometheusSettings, SettingsError};
use super::window::Window;
use crate::metrics::PrometheusClientMetrics;

/// How much of an answer that is an error is read.
const ERROR_BODY: usize = 64 * 1024;
/// How many pieces of a body are ahead of the parser.
const PIECES: usize = 8;
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// A client for a server.
pub(super) fn client(settings: &PrometheusSettings) -> Result<Client, PrometheusError> {
    let (address, user) = address(&settings.address)?;
    let mut config = Config::new(address);
    config.accept_invalid_certs = settings.insecure;
    config.connect_timeout = Some(CONNECT_WITHIN);
    // The time for the whole answer is limited for each query, and so is the number of attempts.
    config.read_timeout = None;
    config.default_retry = false;
    config.auth_info = match (&settings.authentication, user) {
        (Authentication::None, None) => AuthInfo::default(),
        (Authentication::None, Some((username, password))) => {
            AuthInfo { username: Some(username), password: Some(password.into()), ..AuthInfo::default() }
        }
        (Authentication::BearerToken(token), _) => {
            AuthInfo { token: Some(token.expose().to_owned().into()), ..AuthInfo::default() }
        }
        // Read for each query.
        (Authentication::BearerTokenFile(file), _) => {
            token(file)?;
            AuthInfo::default()
        }
        (Authentication::Basic { username, password }, _) => AuthInfo {
            username: Some(username.clone()),
            password: Some(password.expose().to_owned().into()),
            ..AuthInfo::default()
        },
    };
    Client::try_from(config).map_err(PrometheusError::Client)
}

/// The header with the token of a file. The client would take the end of a line in it for a part of the token.
fn token(file: &Path) -> Result<HeaderValue, PrometheusError> {
    let failed = |source| PrometheusError::TokenFile { file: file.to_owned(), source };
    let token = std::fs::read_to_string(file).map_err(failed)?;
    let header = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
    let mut header = header.map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error)))?;
    header.set_sensitive(true);
    Ok(header)
}

/// The address without user and password, and those.
fn address(text: &str) -> Result<(Uri, Option<(String, String)>), SettingsError> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let uri: Uri = format!("{scheme}://{host}{}", path.trim_end_matches('/'))
        .parse()
        .map_err(|_| SettingsError::Address)?;
    if !matches!(scheme, "http" | "https") || host.is_empty() || uri.query().is_some() {
        return Err(SettingsError::Address);
    }
    let user = user.map(|user| {
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
        (decoded(name), decoded(password))
    });
    Ok((uri, user))
}

/// One query.
#[derive(Clone, Debug)]
pub(super) struct Request {
    path: &'static str,
    form: String,
    timeout: Duration,
}

impl Request {
    /// The value at a time.
    pub(super) fn instant(query: String, at: Timestamp, timeout: Duration) -> Self {
        let time = seconds(at.as_millisecond());
        let form = form(&[("query", &query), ("time", &time), ("timeout", &limit(timeout))]);
        Self { path: "/api/v1/query", form, timeout }
    }

    /// The values of a window.
    pub(super) fn range(query: &str, window: Window, timeout: Duration) -> Self {
        let form = form(&[
            ("query", query),
            ("start", &seconds(window.first)),
            ("end", &seconds(window.last)),
            ("step", &seconds(window.step)),
            ("timeout", &limit(timeout)),
        ]);
        Self { path: "/api/v1/query_range", form, timeout }
    }

    /// As a form, which has no longest length; or in the URL, for servers that do not take a form.
    fn with(
        &self,
        method: Method,
        authorization: Option<HeaderValue>,
    ) -> Result<http::Request<Body>, PrometheusError> {
        let mut request = http::Request::builder().header(http::header::ACCEPT, "application/json");
        if let Some(authorization) = authorization {
            request = request.header(http::header::AUTHORIZATION, authorization);
        }
        let request = if method == Method::POST {
            let form = request.header(http::header::CONTENT_TYPE, "application/x-www-form-urlencoded");
            form.method(method).uri(self.path).body(Body::from(self.form.clone().into_bytes()))
        } else {
            request.method(method).uri(format!("{}?{}", self.path, self.form)).body(Body::empty())
        };
        request.map_err(|error| PrometheusError::Connection(error.into()))
    }
}

/// How a server is reached.
#[derive(Clone, Copy)]
pub(super) struct Connection<'a> {
    pub(super) client: &'a Client,
    pub(super) authentication: &'a Authentication,
    pub(super) metrics: &'a PrometheusClientMetrics,
}

/// Asks one query and sends what `convert` makes of its points. The answer is parsed on a thread of its own.
pub(super) async fn ask<T: Send + 'static>(
    connection: Connection<'_>,
    request: &Request,
    out: Out<T>,
    convert: impl Fn(&Labels, &[Point]) -> Option<T> + Send + 'static,
) -> Result<(), PrometheusError> {
    let authorization = match connection.authentication {
        Authentication::BearerTokenFile(file) => Some(token(file)?),
        _ => None,
    };
    let answered = tokio::time::timeout(request.timeout, async {
        let mut response = send(connection, request.with(Method::POST, authorization.clone())?).await?;
        if matches!(response.status(), StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED) {
            response = send(connection, request.with(Method::GET, authorization)?).await?;
        }
        if response.status().is_success() {
            receive(response.into_body(), out, convert).await
        } else {
            Err(refused(response).await)
        }
    });
    answered.await.unwrap_or(Err(PrometheusError::Timeout(request.timeout)))
}

async fn send(
    connection: Connection<'_>,
    request: http::Request<Body>,
) -> Result<http::Response<Body>, PrometheusError> {
    let (method, sent) = (request.method().clone(), Instant::now());
    let answered = connection.client.send(request).await;
    let response = answered.map_err(|error| PrometheusError::Connection(Box::new(error)))?;
    connection.metrics.answered(response.status(), &method, sent.elapsed());
    Ok(response)
}

/// The error that an answer with another code is.
async fn refused(response: http::Response<Body>) -> PrometheusError {
    let status = response.status();
    if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return PrometheusError::Access(status);
    }
    let body = Limited::new(response.into_body(), ERROR_BODY).collect().await;
    let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    match response::read(&body[..], &mut |_: &Labels, _: &[Point]| true) {
        Ok(outcome) if !outcome.error.is_empty() => failed(outcome),
        _ => {
            let text = String::from_utf8_lossy(&body);
            let message = text.lines().next().unwrap_or_default().chars().take(200).collect();
            PrometheusError::Status { status, message }
        }
    }
}

fn failed(outcome: QueryOutcome) -> PrometheusError {
    PrometheusError::Query { kind: outcome.error_type, message: outcome.error }
}

/// Parses a body while it arrives.
async fn receive<T: Send + 'static>(
    mut body: Body,
    out: Out<T>,
    convert: impl Fn(&Labels, &[Point]) -> Option<T> + Send + 'static,
) -> Result<(), PrometheusError> {
    let (pieces, input) = mpsc::channel::<Bytes>(PIECES);
    let parser = tokio::task::spawn_blocking(move || {
        let mut sink = |labels: &Labels, points: &[Point]| match convert(labels, points) {
            Some(item) => out.blocking_send(Ok(item)).is_ok(),
            None => true,
        };
        response::read(Pieces { input, piece: Bytes::new() }, &mut sink)
    });
    let mut broken = None;
    while let Some(frame) = body.frame().await {
        match frame.map(http_body::Frame::into_data) {
            Ok(Ok(piece)) => {
                if pieces.send(piece).await.is_err() {
                    // The parser has ended early and says why.
                    break;
                }
            }
            // Trailers.
            Ok(Err(_)) => {}
            Err(error) => {
                broken = Some(PrometheusError::Connection(error.into()));
                break;
            }
        }
    }
    drop(pieces);
    let parsed = parser.await.map_err(|error| PrometheusError::Connection(error.into()))?;
    match (broken, parsed) {
        (_, Ok(outcome)) if outcome.stopped => Err(PrometheusError::Abandoned),
        (Some(error), _) => Err(error),
        (None, Ok(outcome)) => finish(outcome),
        (None, Err(error)) => Err(PrometheusError::Answer(error)),
    }
}

fn finish(outcome: QueryOutcome) -> Result<(), PrometheusError> {
    for warning in &outcome.warnings {
        tracing::warn!(warning, "Prometheus warns");
    }
    if outcome.status == "success" { Ok(()) } else { Err(failed(outcome)) }
}

/// A body as a reader on a thread.
struct Pieces {
    input: mpsc::Receiver<Bytes>,
    piece: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.input.blocking_recv() {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let count = self.piece.len().min(buffer.len());
        self.piece.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

/// Milliseconds as seconds.
fn seconds(millis: i64) -> String {
    format!("{}.{:03}", millis.div_euclid(1_000), millis.rem_euclid(1_000))
}

/// How long the server may work on a query.
fn limit(timeout: Duration) -> String {
    format!("{}ms", timeout.as_millis().max(1))
}

/// Which characters of a value are encoded: all but RFC 3986's unreserved ones.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The fields as `application/x-www-form-urlencoded`: `a=1&b=2`.
pub(crate) fn form(fields: &[(&str, &str)]) -> String {
    let field = |(name, value): &(&str, &str)| format!("{name}={}", utf8_percent_encode(value, ENCODED));
    fields.iter().map(field).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_paths_and_users() {
        let read = |text| address(text).map(|(uri, user)| (uri.to_string(), user));
        let user = |name: &str, password: &str| Some((name.to_owned(), password.to_owned()));
        assert_eq!(read("http://p:9090"), Ok(("http://p:9090/".to_owned(), None)));
        assert_eq!(read("p.monitoring:80/"), Ok(("http://p.monitoring:80/".to_owned(), None)));
        assert_eq!(read("https://p/prom/"), Ok(("https://p/prom".to_owned(), None)));
        assert_eq!(read("https://u:a%40b@p/x"), Ok(("https://p/x".to_owned(), user("u", "a@b"))));
        for wrong in ["", "http://", "ftp://p", "http://a b", "http://p?x=1"] {
            assert_eq!(read(wrong), Err(SettingsError::Address), "{wrong}");
        }
    }

    #[test]
    fn forms_are_encoded() {
        assert_eq!(form(&[("query", "a{b=\"c d\"}"), ("x", "1.5")]), "query=a%7Bb%3D%22c%20d%22%7D&x=1.5");
        assert_eq!(seconds(1_767_225_600_050), "1767225600.050");
    }
}
