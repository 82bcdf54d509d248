//! The client of a connection.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use super::CertificateIdentity;

/// The client of a connection; every request has one as an extension.
#[derive(Clone, Debug)]
pub struct Peer(Arc<Ends>);

#[derive(Debug)]
struct Ends {
    remote: SocketAddr,
    certificate: Option<CertificateIdentity>,
    authenticated: AtomicBool,
}

impl Peer {
    /// A client at `remote`, with its verified client certificate.
    pub fn new(remote: SocketAddr, certificate: Option<CertificateIdentity>) -> Self {
        let authenticated = AtomicBool::new(certificate.is_some());
        Self(Arc::new(Ends { remote, certificate, authenticated }))
    }

    /// Notes that a request of this client had valid credentials.
    pub fn set_authenticated(&self) {
        // Read first: requests on several threads then share the cache line.
        if !self.is_authenticated() {
            self.0.authenticated.store(true, Relaxed);
        }
    }

    /// Whether the client has a certificate, or any of its requests had valid credentials.
    pub fn is_authenticated(&self) -> bool {
        self.0.authenticated.load(Relaxed)
    }

    /// Its address.
    pub fn remote(&self) -> SocketAddr {
        self.0.remote
    }

    /// The user of its client certificate, if it has one.
    pub fn certificate(&self) -> Option<&CertificateIdentity> {
        self.0.certificate.as_ref()
    }
}
