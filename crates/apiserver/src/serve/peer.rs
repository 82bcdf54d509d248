//! Who is at the other end of a connection.

use std::{net::SocketAddr, sync::Arc};

use crate::authn::CertificateIdentity;

/// Who is at the other end of a connection; every request carries one as an extension.
#[derive(Clone, Debug)]
pub struct Peer(Arc<Ends>);

#[derive(Debug)]
struct Ends {
    remote: SocketAddr,
    certificate: Option<CertificateIdentity>,
}

impl Peer {
    /// A peer at `remote`, with the client certificate that was verified.
    pub fn new(remote: SocketAddr, certificate: Option<CertificateIdentity>) -> Self {
        Self(Arc::new(Ends { remote, certificate }))
    }

    /// Where it is.
    pub fn remote(&self) -> SocketAddr {
        self.0.remote
    }

    /// Whom its client certificate stands for, if it showed one.
    pub fn certificate(&self) -> Option<&CertificateIdentity> {
        self.0.certificate.as_ref()
    }
}
