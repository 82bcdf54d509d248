//! The client of the agents.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::RwLock;
use plumb_certificates::InsecureSkipVerify;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::endpoint::Endpoint;
use crate::error::ApiError;
use crate::pki::Pki;
use crate::serve::Wall;

/// The timeout of connecting to an agent, handshake included.
const CONNECT: Duration = Duration::from_secs(30);
/// How much of an error response is read.
const MAX_ERROR_BYTES: usize = 50_000;

/// Why connections to agents cannot be configured.
#[derive(Debug, thiserror::Error)]
pub enum KubeletClientError {
    /// The authority's certificate is no trust anchor.
    #[error("cannot trust the certificate of the authority")]
    Authority(#[source] rustls::Error),
    /// The certificates of agents cannot be verified.
    #[error("cannot verify the certificates of nodes")]
    Verifier(#[from] rustls::client::VerifierBuilderError),
    /// The protocol versions do not go with the provider.
    #[error("cannot set up tls")]
    Versions(#[source] rustls::Error),
}

/// Connections to the agents of the nodes.
#[derive(Clone)]
pub struct KubeletClient {
    verified: Arc<ClientConfig>,
    /// For requests with `insecureSkipTLSVerifyBackend`.
    unverified: Arc<ClientConfig>,
    /// For pods, which have certificates of any authority: neither side verifies the other, as upstream.
    of_pods: Arc<ClientConfig>,
    /// Where agents of this machine listen, by the address and port in their Node. Clones share it.
    local: Arc<RwLock<HashMap<(String, u16), SocketAddr>>>,
}

impl KubeletClient {
    /// Connections to agents whose certificates are of the cluster's authority for nodes.
    pub fn new(pki: &Pki) -> Result<Self, KubeletClientError> {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        for authority in pki.node_authorities() {
            roots.add(authority).map_err(KubeletClientError::Authority)?;
        }
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build()?;
        let config = |verifier: Arc<dyn ServerCertVerifier>, shows_own: bool| {
            let config =
                ClientConfig::builder_with_details(Arc::clone(&provider), Arc::new(Wall::new(pki.clock())))
                    .with_safe_default_protocol_versions()
                    .map_err(KubeletClientError::Versions)?
                    .dangerous()
                    .with_custom_certificate_verifier(verifier);
            let mut config = if shows_own {
                config.with_client_cert_resolver(pki.node_client())
            } else {
                config.with_no_client_auth()
            };
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Ok::<_, KubeletClientError>(Arc::new(config))
        };
        let insecure = || Arc::new(InsecureSkipVerify::new(provider.clone()));
        let (unverified, of_pods) = (config(insecure(), true)?, config(insecure(), false)?);
        Ok(Self { verified: config(verifier, true)?, unverified, of_pods, local: Arc::default() })
    }

    /// Connects to an agent of this machine where it listens, while its Node has another address, for which its certificate is:
    /// such an agent is reached by no other machine.
    pub fn add_local_agent(&self, address: IpAddr, listens: SocketAddr) {
        self.local.write().insert((address.to_string(), listens.port()), listens);
    }

    /// Sends a request to an agent, and returns the response once its header is there. The connection lives as long as the body
    /// of the response.
    pub(crate) async fn send(
        &self,
        endpoint: &Endpoint,
        verify: bool,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ApiError> {
        let what = format!("{} \"https://{endpoint}{}\"", title(request.method()), request.uri());
        let failed = |error: io::Error| {
            let message = format!("{what}: {error}");
            ApiError::from_elsewhere(StatusCode::INTERNAL_SERVER_ERROR, "", message)
        };
        let connected = timeout(CONNECT, self.connect(endpoint, verify));
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the node does not answer");
        let stream = connected.await.map_err(late).flatten().map_err(failed)?;
        request_over(stream, request).await.map_err(failed)
    }

    /// Sends a request over a connection that an agent opens to what `path` names. With an address the connection is TLS.
    pub(crate) async fn send_through(
        &self,
        agent: &Endpoint,
        path: &str,
        tls: Option<IpAddr>,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ApiError> {
        let asked = Request::builder()
            .uri(path)
            .header(HOST, agent.to_string())
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "tcp")
            .body(Full::default())
            .map_err(|error| ApiError::internal(error.to_string()))?;
        let answered = self.send(agent, true, asked).await?;
        if answered.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(ApiError::unavailable(error_text(answered).await.trim()));
        }
        let failed = |error: io::Error| ApiError::unavailable(error.to_string());
        let other = |error: hyper::Error| failed(io::Error::other(error));
        let connection = TokioIo::new(hyper::upgrade::on(answered).await.map_err(other)?);
        let Some(address) = tls else {
            return request_over(TokioIo::new(connection), request).await.map_err(failed);
        };
        let connector = TlsConnector::from(Arc::clone(&self.of_pods));
        let shake = timeout(CONNECT, connector.connect(ServerName::from(address), connection));
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "net/http: TLS handshake timeout");
        let stream = shake.await.map_err(late).flatten().map_err(failed)?;
        request_over(TokioIo::new(stream), request).await.map_err(failed)
    }

    async fn connect(
        &self,
        endpoint: &Endpoint,
        verify: bool,
    ) -> io::Result<TokioIo<tokio_rustls::client::TlsStream<TcpStream>>> {
        let name = ServerName::try_from(endpoint.host.clone()).map_err(io::Error::other)?;
        let local = self.local.read().get(&(endpoint.host.clone(), endpoint.port)).copied();
        let stream = match local {
            Some(listens) => TcpStream::connect(listens).await?,
            None => TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await?,
        };
        stream.set_nodelay(true)?;
        let config = if verify { &self.verified } else { &self.unverified };
        Ok(TokioIo::new(TlsConnector::from(Arc::clone(config)).connect(name, stream).await?))
    }
}

/// Sends the only request of a connection, which lives as long as the body of the response, or its upgrade.
async fn request_over<S>(stream: TokioIo<S>, request: Request<Full<Bytes>>) -> io::Result<Response<Incoming>>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(stream).await.map_err(io::Error::other)?;
    tokio::spawn(async move {
        // Until the last byte, also after an upgrade.
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection to a node ended with an error");
        }
    });
    sender.send_request(request).await.map_err(io::Error::other)
}

/// The message of an agent's error response.
pub(crate) async fn error_text(response: Response<Incoming>) -> String {
    let body = Limited::new(response.into_body(), MAX_ERROR_BYTES).collect().await;
    body.map_or_else(|error| error.to_string(), |body| String::from_utf8_lossy(&body.to_bytes()).into_owned())
}

/// A method as Go writes it in errors of requests: `Get`.
fn title(method: &http::Method) -> String {
    let lower = method.as_str().to_ascii_lowercase();
    let mut letters = lower.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

impl fmt::Debug for KubeletClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeletClient").finish_non_exhaustive()
    }
}
