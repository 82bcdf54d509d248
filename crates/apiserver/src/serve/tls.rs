//! The TLS configuration of the server.

use std::{sync::Arc, time::Duration};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, UnixTime},
    server::{NoServerSessionStorage, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier},
    time_provider::TimeProvider,
};

use crate::pki::{Clock, Pki};

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The authority's certificate is no trust anchor.
    #[error("cannot trust the certificate of the authority")]
    Authority(#[source] rustls::Error),
    /// Client certificates cannot be verified.
    #[error("cannot verify client certificates")]
    Verifier(#[from] VerifierBuilderError),
    /// The protocol versions do not go with the provider.
    #[error("cannot set up tls")]
    Versions(#[source] rustls::Error),
}

/// Installs ring as the cryptography provider of the process. Call it first in `main` and in tests: libraries panic if
/// there is no provider. Further calls do nothing.
pub fn install_crypto() {
    // The error means that an earlier call has installed one.
    drop(ring::default_provider().install_default());
}

/// TLS 1.2 and 1.3 with the current serving certificate of the API server. A client may have a certificate; then it must
/// be issued by the client authority and must not have expired.
pub fn tls(pki: &Pki) -> Result<Arc<ServerConfig>, TlsError> {
    // A renewed authority has the same name and key, which is all that a trust anchor consists of, so that this one stays
    // valid.
    tls_of(pki.client_authorities(), pki.serving(), pki.clock())
}

/// The same for a server with another certificate and other client authorities: an agent on another machine.
pub fn tls_of(
    authorities: Vec<CertificateDer<'static>>,
    certificate: Arc<dyn ResolvesServerCert>,
    clock: Arc<dyn Clock>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(TlsError::Authority)?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()?;

    let mut config = ServerConfig::builder_with_details(provider, Arc::new(Wall::new(clock)))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Versions)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // A resumed session would have the client certificate of the first one, without a check of its dates. Clients keep
    // connections, not sessions, so that full handshakes cost little.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Our clock, as rustls reads it.
#[derive(Debug)]
pub(crate) struct Wall(Arc<dyn Clock>);

impl Wall {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self(clock)
    }
}

impl TimeProvider for Wall {
    fn current_time(&self) -> Option<UnixTime> {
        let second = u64::try_from(self.0.now().as_second()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(second)))
    }
}
