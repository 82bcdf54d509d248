//! The certificate that a running server shows.

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

/// The certificate that a running server shows: a renewed one is shown to the next client, without a restart.
#[derive(Debug)]
pub struct ServingCertificate(RwLock<Arc<CertifiedKey>>);

impl ServingCertificate {
    pub(super) fn new(certified: CertifiedKey) -> Self {
        Self(RwLock::new(Arc::new(certified)))
    }

    pub(super) fn replace(&self, certified: CertifiedKey) {
        *self.0.write() = Arc::new(certified);
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read()))
    }
}
