//! TLS without verification of the server, for HTTPS probes and for the first request of a machine that joins.

use std::sync::{Arc, LazyLock};

use plumb_certificates::InsecureSkipVerify;
use rustls::ClientConfig;
use rustls::crypto::ring;

/// A configuration that accepts every server: see [`InsecureSkipVerify`].
pub(crate) fn client_config() -> Result<Arc<ClientConfig>, rustls::Error> {
    CONFIG.clone()
}

static CONFIG: LazyLock<Result<Arc<ClientConfig>, rustls::Error>> = LazyLock::new(|| {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(rustls::ALL_VERSIONS)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(InsecureSkipVerify::new(provider)))
        .with_no_client_auth();
    Ok(Arc::new(config))
});
