//! A repository of a registry: authenticated requests for manifests and blobs.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, RANGE, WWW_AUTHENTICATE};
use http::uri::Scheme;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde::Deserialize;

use crate::challenge::{Challenge, challenges};
use crate::credentials::Credentials;
use crate::digest::Digest;
use crate::error::PullError;
use crate::manifest;
use crate::transport::{Transport, uri};

/// The largest answer of a token server, and the largest message of an error that is read.
const LARGEST_ANSWER: usize = 256 << 10;
/// How much of a registry's message is repeated.
const LONGEST_MESSAGE: usize = 500;

/// A repository at one host, for one pull.
pub(crate) struct Repository {
    transport: Arc<Transport>,
    scheme: Scheme,
    host: String,
    /// Its name in the registry.
    path: String,
    credentials: Option<Credentials>,
    /// What the registry has accepted in this pull.
    authorization: Mutex<Option<HeaderValue>>,
}

#[derive(Deserialize)]
struct Token {
    #[serde(default)]
    token: String,
    #[serde(default)]
    access_token: String,
}

#[derive(Deserialize)]
struct Errors {
    errors: Vec<OneError>,
}

#[derive(Deserialize)]
struct OneError {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

impl Repository {
    pub(crate) async fn open(
        transport: Arc<Transport>,
        host: &str,
        repository: &str,
        credentials: Option<Credentials>,
    ) -> Result<Self, PullError> {
        let scheme = transport.scheme(host).await?;
        Ok(Self {
            transport,
            scheme,
            host: host.to_owned(),
            path: repository.to_owned(),
            credentials,
            authorization: Mutex::default(),
        })
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }

    /// The name of the repository, for messages.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.host, self.path)
    }

    /// A manifest or an index, and its media type. `reference` is a tag or a digest.
    pub(crate) async fn manifest(&self, reference: &str) -> Result<(Bytes, String), PullError> {
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(manifest::ACCEPT))]);
        let separator = if reference.contains(':') { '@' } else { ':' };
        let what = format!("{}{separator}{reference}", self.name());
        let response = self.get(&what, &format!("manifests/{reference}"), headers).await?;
        let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = media_type.unwrap_or_default().to_owned();
        let most = self.transport.limits().document_bytes;
        let text = self.transport.read(&what, response.into_body(), most).await?;
        Ok((text, media_type))
    }

    /// A small blob.
    pub(crate) async fn document(&self, digest: Digest) -> Result<Bytes, PullError> {
        let what = format!("{}@{digest}", self.name());
        let response = self.get(&what, &format!("blobs/{digest}"), HeaderMap::new()).await?;
        let text = self.transport.read(&what, response.into_body(), self.transport.limits().document_bytes);
        let text = text.await?;
        check(&what, digest, &text)?;
        Ok(text)
    }

    /// A blob from some byte on, if the registry supports it: the status says.
    pub(crate) async fn blob(&self, digest: Digest, from: u64) -> Result<Response<Incoming>, PullError> {
        let what = format!("{}@{digest}", self.name());
        let mut headers = HeaderMap::new();
        if from > 0
            && let Ok(range) = HeaderValue::try_from(format!("bytes={from}-"))
        {
            headers.insert(RANGE, range);
        }
        self.get(&what, &format!("blobs/{digest}"), headers).await
    }

    /// Requests something, and authenticates if the registry asks for it.
    async fn get(&self, what: &str, path: &str, headers: HeaderMap) -> Result<Response<Incoming>, PullError> {
        let uri = uri(&self.scheme, &self.host, &format!("/v2/{}/{path}", self.path))?;
        let known = self.authorization.lock().clone();
        let response = self.transport.get(uri.clone(), &headers, known.as_ref()).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return self.accepted(what, response).await;
        }
        // A token may have expired since it was used last.
        let offered = response.headers().get_all(WWW_AUTHENTICATE);
        let offered = challenges(offered.iter().filter_map(|header| header.to_str().ok()));
        let Some(authorization) = self.authenticate(what, &uri, &offered).await? else {
            return self.accepted(what, response).await;
        };
        let response = self.transport.get(uri, &headers, Some(&authorization)).await?;
        *self.authorization.lock() = Some(authorization);
        self.accepted(what, response).await
    }

    /// Turns the status of a response into an error.
    async fn accepted(
        &self,
        what: &str,
        response: Response<Incoming>,
    ) -> Result<Response<Incoming>, PullError> {
        let status = response.status();
        if status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE {
            return Ok(response);
        }
        let message = self.message(what, response).await;
        match status {
            StatusCode::NOT_FOUND => Err(PullError::NotFound(what.to_owned())),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(PullError::Denied { reference: what.to_owned(), message })
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
                Err(PullError::unavailable(what, format!("{status}: {message}")))
            }
            status if status.is_server_error() => {
                Err(PullError::unavailable(what, format!("{status}: {message}")))
            }
            status => Err(PullError::unusable(what, format!("unexpected status {status}: {message}"))),
        }
    }

    /// What the registry says about an error, on one line of printable characters.
    async fn message(&self, what: &str, response: Response<Incoming>) -> String {
        let status = response.status();
        let text = self.transport.read(what, response.into_body(), LARGEST_ANSWER).await.unwrap_or_default();
        let errors = serde_json::from_slice::<Errors>(&text).map(|errors| errors.errors).unwrap_or_default();
        let said: Vec<String> =
            errors.iter().map(|error| format!("{}: {}", error.code, error.message)).collect();
        let said = if said.is_empty() { status.to_string() } else { said.join("; ") };
        said.chars().filter(|char| !char.is_control()).take(LONGEST_MESSAGE).collect()
    }

    /// What to send for the challenges of a registry; none if there is nothing to answer them with.
    async fn authenticate(
        &self,
        what: &str,
        registry: &Uri,
        offered: &[Challenge],
    ) -> Result<Option<HeaderValue>, PullError> {
        let given = self.credentials.as_ref();
        if let Some(token) = given.map(|given| &given.registry_token).filter(|token| !token.is_empty()) {
            self.transport.check_credentials(registry)?;
            return secret(what, format!("Bearer {token}")).map(Some);
        }
        for challenge in offered {
            match challenge {
                Challenge::Bearer { realm, service, scope } => {
                    let token =
                        self.token(what, registry, realm, service.as_deref(), scope.as_deref()).await?;
                    return secret(what, format!("Bearer {token}")).map(Some);
                }
                Challenge::Basic => {
                    if let Some(given) = given.filter(|given| !given.username.is_empty()) {
                        self.transport.check_credentials(registry)?;
                        return secret(what, basic(given)).map(Some);
                    }
                }
            }
        }
        Ok(None)
    }

    /// A token of the registry's token server, which gets the credentials.
    async fn token(
        &self,
        what: &str,
        registry: &Uri,
        realm: &str,
        service: Option<&str>,
        scope: Option<&str>,
    ) -> Result<String, PullError> {
        let usual = format!("repository:{}:pull", self.path);
        let mut query = vec![("scope", scope.unwrap_or(&usual))];
        query.extend(service.map(|service| ("service", service)));
        let realm: Uri =
            realm.parse().map_err(|_| PullError::unusable(what, "a token server that is not understood"))?;
        self.transport.check(registry, &realm)?;
        let given = self.credentials.as_ref();
        let refresh = given.map(|given| given.identity_token.as_str()).filter(|token| !token.is_empty());
        if given.is_some_and(|given| refresh.is_some() || !given.username.is_empty()) {
            self.transport.check_credentials(&realm)?;
        }
        let mut headers = HeaderMap::new();
        let (method, to, body) = if let Some(refresh) = refresh {
            query.extend([
                ("grant_type", "refresh_token"),
                ("client_id", "plumb"),
                ("refresh_token", refresh),
            ]);
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
            (Method::POST, realm, Bytes::from(encoded(&query)))
        } else {
            if let Some(given) = given.filter(|given| !given.username.is_empty()) {
                headers.insert(http::header::AUTHORIZATION, secret(what, basic(given))?);
            }
            let separator = if realm.query().is_some() { '&' } else { '?' };
            let to: Uri = format!("{realm}{separator}{}", encoded(&query))
                .parse()
                .map_err(|_| PullError::unusable(what, "a token server that is not understood"))?;
            (Method::GET, to, Bytes::new())
        };
        // Redirects are not followed: credentials go where the registry has sent them and no further.
        let response = self.transport.send(method, to, headers, body).await?;
        let response = self.accepted(what, response).await.map_err(|error| match error {
            PullError::NotFound(reference) => {
                PullError::Denied { reference, message: "the token server does not know it".to_owned() }
            }
            other => other,
        })?;
        let text = self.transport.read(what, response.into_body(), LARGEST_ANSWER).await?;
        let token: Token = serde_json::from_slice(&text)
            .map_err(|_| PullError::unusable(what, "the token server's answer is not understood"))?;
        Ok(if token.token.is_empty() { token.access_token } else { token.token })
    }
}

/// Checks a document against its digest.
pub(crate) fn check(what: &str, expected: Digest, text: &[u8]) -> Result<(), PullError> {
    match Digest::of(text) {
        found if found == expected => Ok(()),
        found => Err(PullError::Digest { what: what.to_owned(), expected, found }),
    }
}

fn basic(credentials: &Credentials) -> String {
    let Credentials { username, password, .. } = credentials;
    format!("Basic {}", STANDARD.encode(format!("{username}:{password}")))
}

/// A header that no log shows.
fn secret(what: &str, value: String) -> Result<HeaderValue, PullError> {
    let mut value = HeaderValue::try_from(value)
        .map_err(|_| PullError::unusable(what, "credentials that cannot be sent in a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Parameters as a query or a form has them.
fn encoded(parameters: &[(&str, &str)]) -> String {
    let escape = |text: &str| -> String {
        let plain = |byte: u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/' | b':')
        };
        text.bytes()
            .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
            .collect()
    };
    let pairs: Vec<String> =
        parameters.iter().map(|(name, value)| format!("{name}={}", escape(value))).collect();
    pairs.join("&")
}
