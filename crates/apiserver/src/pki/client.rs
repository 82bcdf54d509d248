//! The client certificate of this process.

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::{SignatureScheme, client::ResolvesClientCert, sign::CertifiedKey};

/// The client certificate of this process: the next connection uses a renewed one.
#[derive(Debug)]
pub struct ClientCertificate(RwLock<Arc<CertifiedKey>>);

impl ClientCertificate {
    pub(super) fn new(certified: CertifiedKey) -> Self {
        Self(RwLock::new(Arc::new(certified)))
    }

    pub(super) fn replace(&self, certified: CertifiedKey) {
        *self.0.write() = Arc::new(certified);
    }
}

impl ResolvesClientCert for ClientCertificate {
    fn resolve(&self, _authorities: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read()))
    }

    fn has_certs(&self) -> bool {
        true
    }
}
