//! The client of a connection.

use std::{net::SocketAddr, sync::Arc};

use super::CertificateIdentity;

/// The client of a connection; every request has one as an extension.
#[derive(Clone, Debug)]
pub struct Peer(Arc<Ends>);

#[derive(Debug)]
struct Ends {
    remote: SocketAddr,
    certificate: Option<CertificateIdentity>,
}

impl Peer {
    /// A client at `remote`, with its verified client certificate.
    pub fn new(remote: SocketAddr, certificate: Option<CertificateIdentity>) -> Self {
        Self(Arc::new(Ends { remote, certificate }))
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
