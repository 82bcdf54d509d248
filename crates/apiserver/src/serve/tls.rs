//! How the server speaks TLS.

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

/// Makes ring the process's provider of cryptography. Called first in `main` and in tests, since libraries that are
/// not told which one to take panic if there is none. Any later call does nothing.
pub fn install_crypto() {
    // The error says that there is one, from an earlier call.
    drop(ring::default_provider().install_default());
}

/// TLS 1.2 and 1.3 with the API server's serving certificate, whichever it is at the time. A client may show a
/// certificate; if it does, the authority of clients must have issued it, and it must not have expired.
pub fn tls(pki: &Pki) -> Result<Arc<ServerConfig>, TlsError> {
    // An authority is renewed under the same name and key, which is all that a trust anchor consists of: this one
    // stays good.
    tls_of(pki.client_authorities(), pki.serving(), pki.clock())
}

/// The same for a server that keeps its certificate elsewhere and trusts clients of these authorities: an agent on a
/// machine of its own.
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
    // A resumed session carries the client certificate of the first one along without a look at its dates. Clients
    // hold on to connections, not to sessions: full handshakes cost little, and tickets nobody uses cost too.
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
