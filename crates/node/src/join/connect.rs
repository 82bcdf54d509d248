//! Connections to an API server.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client as Http, Error as HttpError};
use hyper_util::rt::TokioExecutor;
use kube::Client;
use kube::client::Body;
use parking_lot::RwLock;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tower::Service;

use super::certificate::CertificateResolver;
use crate::insecure_tls;

/// The connect timeout.
const CONNECT: Duration = Duration::from_secs(10);
/// The TCP keepalive: a host that is down does not close its connections.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Why a connection cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address is invalid.
    #[error("{0:?} is not the address of a server, such as https://10.0.0.1:6443")]
    Address(String),
    /// The CA certificate is invalid.
    #[error("the authority to trust is no certificate in PEM")]
    Authority,
    /// TLS cannot be set up.
    #[error("cannot set up tls")]
    Tls(#[from] rustls::Error),
}

/// How requests are authenticated.
#[derive(Clone)]
pub enum Identity {
    /// Anonymously, without verification of the server's certificate: for discovery of the CA.
    Anonymous,
    /// With a bearer token.
    Token(String),
    /// With a client certificate.
    Certificate(Arc<CertificateResolver>),
}

/// A connection to an API server. Clones share it.
#[derive(Clone)]
pub struct Connection {
    server: Uri,
    authorization: Option<HeaderValue>,
    tls: ClientConfig,
    http: Arc<RwLock<Http<HttpsConnector<HttpConnector>, Body>>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Connection {
    /// A connection to a server whose certificate is signed by a CA (in PEM).
    pub fn new(server: &str, authority: &str, identity: &Identity) -> Result<Self, ConnectError> {
        let bad = || ConnectError::Address(server.to_owned());
        let address: Uri = server.trim_end_matches('/').parse().map_err(|_| bad())?;
        if address.scheme_str() != Some("https") || address.host().is_none() {
            return Err(bad());
        }
        let authorization = match identity {
            Identity::Token(token) => {
                let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| bad())?;
                value.set_sensitive(true);
                Some(value)
            }
            Identity::Anonymous | Identity::Certificate(_) => None,
        };
        let tls = match identity {
            Identity::Anonymous => ClientConfig::clone(&*insecure_tls::client_config()?),
            Identity::Token(_) => trusting(authority)?.with_no_client_auth(),
            Identity::Certificate(resolver) => {
                trusting(authority)?.with_client_cert_resolver(resolver.clone())
            }
        };
        let http = Arc::new(RwLock::new(http(&tls)));
        Ok(Self { server: address, authorization, tls, http })
    }

    /// An API client.
    pub fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    /// Host and port of the server.
    pub fn host_and_port(&self) -> (String, u16) {
        let host = self.server.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (host.to_owned(), self.server.port_u16().unwrap_or(443))
    }

    /// Uses new connections for requests from now on: the existing ones were authenticated with a certificate that is
    /// being replaced.
    pub fn reconnect(&self) {
        *self.http.write() = http(&self.tls);
    }
}

fn trusting(
    authority: &str,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>, ConnectError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
        roots.add(certificate.map_err(|_| ConnectError::Authority)?).map_err(|_| ConnectError::Authority)?;
    }
    if roots.is_empty() {
        return Err(ConnectError::Authority);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots))
}

fn http(tls: &ClientConfig) -> Http<HttpsConnector<HttpConnector>, Body> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE));
    connector.set_keepalive_retries(Some(2));
    let https = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_only().enable_http1();
    Http::builder(TokioExecutor::new()).build(https.wrap_connector(connector))
}

impl Service<Request<Body>> for Connection {
    type Response = Response<Incoming>;
    type Error = HttpError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let mut address = self.server.clone().into_parts();
        address.path_and_query = request.uri().path_and_query().cloned();
        // Scheme and host are those of an address, and the path is one: together they are an address.
        if let Ok(address) = Uri::from_parts(address) {
            *request.uri_mut() = address;
        }
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        let sent = self.http.read().request(request);
        Box::pin(sent)
    }
}
