//! HTTP: which hosts are spoken to how, and what follows a redirect.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, LOCATION, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::OnceCell;

use crate::error::PullError;
use crate::host::is_loopback;
use crate::limits::PullLimits;

/// How many redirects are followed: a registry redirects to where its layers are stored, and that perhaps once more.
const MOST_REDIRECTS: usize = 5;
const AGENT: &str = concat!("plumb/", env!("CARGO_PKG_VERSION"));

type Http = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Sends requests. Plain HTTP is spoken with this machine and with the hosts that were named as insecure.
pub(crate) struct Transport {
    /// Built with the first request: reading the certificates of authorities takes a while.
    client: OnceCell<Http>,
    insecure: Vec<String>,
    limits: PullLimits,
    /// What hosts that may speak plain HTTP do speak.
    schemes: Mutex<HashMap<String, Scheme>>,
}

impl Transport {
    pub(crate) fn new(insecure: Vec<String>, limits: PullLimits) -> Self {
        Self { client: OnceCell::new(), insecure, limits, schemes: Mutex::default() }
    }

    pub(crate) fn limits(&self) -> &PullLimits {
        &self.limits
    }

    async fn client(&self) -> Result<&Http, PullError> {
        let build = || async {
            // Certificates are read from files.
            let tls = tokio::task::spawn_blocking(tls).await;
            let tls = tls.map_err(|error| PullError::unavailable("TLS", error.to_string()))?;
            let tls = tls.map_err(|error| PullError::unavailable("TLS", error.to_string()))?;
            let mut tcp = HttpConnector::new();
            tcp.enforce_http(false);
            tcp.set_nodelay(true);
            tcp.set_connect_timeout(Some(self.limits.connect));
            let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
            let connector = builder.enable_http1().wrap_connector(tcp);
            Ok(Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector))
        };
        self.client.get_or_try_init(build).await
    }

    fn may_be_plain(&self, host: &str) -> bool {
        is_loopback(host) || self.insecure.iter().any(|insecure| insecure.eq_ignore_ascii_case(host))
    }

    /// Whether credentials may be sent there: over TLS, or to a host that was named as insecure. Plain HTTP on this machine is
    /// not enough: any process may listen there, and so may a pod with a host port.
    pub(crate) fn check_credentials(&self, to: &Uri) -> Result<(), PullError> {
        let host = to.authority().map_or("", |authority| authority.as_str());
        let is_named = self.insecure.iter().any(|insecure| insecure.eq_ignore_ascii_case(host));
        if to.scheme() == Some(&Scheme::HTTPS) || is_named {
            return Ok(());
        }
        Err(PullError::unusable(
            display(to),
            format!("credentials are not sent over plain HTTP, unless --insecure-registry {host} is set"),
        ))
    }

    /// The scheme that a host speaks. Only one that may speak plain HTTP is asked.
    pub(crate) async fn scheme(&self, host: &str) -> Result<Scheme, PullError> {
        if !self.may_be_plain(host) {
            return Ok(Scheme::HTTPS);
        }
        if let Some(known) = self.schemes.lock().get(host) {
            return Ok(known.clone());
        }
        // Without credentials, and before any are sent.
        let mut error = None;
        for scheme in [Scheme::HTTPS, Scheme::HTTP] {
            let uri = uri(&scheme, host, "/v2/")?;
            match self.send(Method::GET, uri, HeaderMap::new(), Bytes::new()).await {
                Ok(_) => {
                    self.schemes.lock().insert(host.to_owned(), scheme.clone());
                    return Ok(scheme);
                }
                // It speaks TLS.
                Err(untrusted @ PullError::Untrusted { .. }) => return Err(untrusted),
                Err(failed) => error = Some(failed),
            }
        }
        Err(error.unwrap_or_else(|| PullError::unavailable(host, "no scheme")))
    }

    /// Requests a document or a layer. Credentials are sent to the host of `uri` alone, whatever it redirects to.
    pub(crate) async fn get(
        &self,
        mut uri: Uri,
        headers: &HeaderMap,
        authorization: Option<&HeaderValue>,
    ) -> Result<Response<Incoming>, PullError> {
        let home = origin(&uri);
        for _ in 0..=MOST_REDIRECTS {
            let mut headers = headers.clone();
            if let Some(authorization) = authorization.filter(|_| origin(&uri) == home) {
                headers.insert(AUTHORIZATION, authorization.clone());
            }
            let response = self.send(Method::GET, uri.clone(), headers, Bytes::new()).await?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(response);
            }
            uri = self.redirected(&uri, response.headers().get(LOCATION))?;
        }
        Err(PullError::unusable(display(&uri), "too many redirects"))
    }

    /// Where a redirect leads. From TLS it must not lead to plain HTTP, nor to a host that must not speak it.
    fn redirected(&self, from: &Uri, location: Option<&HeaderValue>) -> Result<Uri, PullError> {
        let refused = |why: &str| PullError::unusable(display(from), why);
        let location = location.and_then(|location| location.to_str().ok());
        let location = location.ok_or_else(|| refused("a redirect that leads nowhere"))?;
        let to: Uri = location.parse().map_err(|_| refused("a redirect that is not understood"))?;
        if to.scheme().is_none() {
            let path = to.path_and_query().filter(|_| location.starts_with('/') && to.authority().is_none());
            let path = path.ok_or_else(|| refused("a redirect that is not understood"))?;
            let scheme = from.scheme().unwrap_or(&Scheme::HTTPS);
            return uri(scheme, from.authority().map_or("", |authority| authority.as_str()), path.as_str());
        }
        self.check(from, &to).map(|()| to)
    }

    /// Refuses plain HTTP where it is not spoken, and all that is neither HTTP nor HTTPS.
    pub(crate) fn check(&self, from: &Uri, to: &Uri) -> Result<(), PullError> {
        let refused = |why: String| Err(PullError::unusable(display(from), why));
        let host = to.authority().map_or("", |authority| authority.as_str());
        if to.scheme() == Some(&Scheme::HTTPS) && !host.is_empty() {
            return Ok(());
        }
        if to.scheme() != Some(&Scheme::HTTP) || host.contains('@') {
            return refused("it leads to neither HTTP nor HTTPS".to_owned());
        }
        if from.scheme() != Some(&Scheme::HTTP) || !self.may_be_plain(host) {
            return refused(format!("it leads to plain HTTP at {host}, which is not spoken with that host"));
        }
        Ok(())
    }

    /// Sends one request.
    pub(crate) async fn send(
        &self,
        method: Method,
        uri: Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, PullError> {
        let what = format!("{method} {}", display(&uri));
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(AGENT));
        match tokio::time::timeout(self.limits.response, self.client().await?.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(refused(what, &error)),
            Err(_) => {
                Err(PullError::unavailable(what, format!("no response within {:?}", self.limits.response)))
            }
        }
    }

    /// Reads a document, which must not be larger than a limit.
    pub(crate) async fn read(&self, what: &str, body: Incoming, most: usize) -> Result<Bytes, PullError> {
        let reading = Limited::new(body, most).collect();
        match tokio::time::timeout(self.limits.response, reading).await {
            Ok(Ok(read)) => Ok(read.to_bytes()),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                Err(PullError::unusable(what, format!("it is larger than {most} bytes")))
            }
            Ok(Err(error)) => Err(PullError::unavailable(what, error.to_string())),
            Err(_) => {
                Err(PullError::unavailable(what, format!("not complete within {:?}", self.limits.response)))
            }
        }
    }
}

/// Why a request was not answered.
fn refused(what: String, error: &(dyn Error + 'static)) -> PullError {
    let mut message = error.to_string();
    let mut is_untrusted = is_about_certificates(error);
    let mut cause = error.source();
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        is_untrusted |= is_about_certificates(error);
        cause = error.source();
    }
    if is_untrusted { PullError::Untrusted { what, message } } else { PullError::unavailable(what, message) }
}

/// Whether TLS has failed because one side does not trust the certificate of the other.
fn is_about_certificates(error: &(dyn Error + 'static)) -> bool {
    // The source of an I/O error is that of the error that it wraps.
    let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    let tls = match wrapped {
        Some(wrapped) => wrapped.downcast_ref::<rustls::Error>(),
        None => error.downcast_ref::<rustls::Error>(),
    };
    match tls {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => true,
        Some(rustls::Error::AlertReceived(alert)) => {
            use rustls::AlertDescription as Alert;
            matches!(
                alert,
                Alert::BadCertificate
                    | Alert::UnsupportedCertificate
                    | Alert::CertificateRevoked
                    | Alert::CertificateExpired
                    | Alert::CertificateUnknown
                    | Alert::CertificateRequired
                    | Alert::UnknownCA
            )
        }
        _ => false,
    }
}

/// A URI of a host.
pub(crate) fn uri(scheme: &Scheme, host: &str, path: &str) -> Result<Uri, PullError> {
    Uri::builder()
        .scheme(scheme.clone())
        .authority(host)
        .path_and_query(path)
        .build()
        .map_err(|error| PullError::unusable(format!("{host}{path}"), error.to_string()))
}

/// A URI for a message: without the query, in which stores of layers have signatures.
fn display(uri: &Uri) -> String {
    let host = uri.authority().map_or("", |authority| authority.as_str());
    format!("{}://{host}{}", uri.scheme_str().unwrap_or("https"), uri.path())
}

/// Scheme, host and port, in one form.
fn origin(uri: &Uri) -> (Option<String>, String, u16) {
    let port = uri.port_u16().unwrap_or(if uri.scheme() == Some(&Scheme::HTTP) { 80 } else { 443 });
    (uri.scheme_str().map(str::to_owned), uri.host().unwrap_or_default().to_ascii_lowercase(), port)
}

/// TLS with the authorities that this machine trusts.
fn tls() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        || ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    match builder()?.with_native_roots() {
        Ok(builder) => Ok(builder.with_no_client_auth()),
        Err(error) => {
            tracing::warn!(%error, "no authorities are trusted here, so no registry with TLS is");
            Ok(builder()?.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
        }
    }
}
