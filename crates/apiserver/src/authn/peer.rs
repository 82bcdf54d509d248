//! The client of a connection.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
};

use super::{CertificateIdentity, User};

/// The client of a connection; every request has one as an extension.
#[derive(Clone, Debug)]
pub struct Peer(Arc<Ends>);

#[derive(Debug)]
struct Ends {
    remote: SocketAddr,
    certificate: Option<CertificateIdentity>,
    /// The user of its first authenticated request.
    user: OnceLock<Arc<User>>,
}

impl Peer {
    /// A client at `remote`, with its verified client certificate.
    pub fn new(remote: SocketAddr, certificate: Option<CertificateIdentity>) -> Self {
        let user = certificate.as_ref().map(|certificate| Arc::clone(certificate.user()));
        let user = user.map_or_else(OnceLock::new, OnceLock::from);
        Self(Arc::new(Ends { remote, certificate, user }))
    }

    /// Notes that a request of this client had valid credentials of a user.
    pub fn set_authenticated(&self, user: &Arc<User>) {
        // Only the first one is retained, which costs later requests a load.
        self.0.user.get_or_init(|| Arc::clone(user));
    }

    /// Whether the client has a certificate, or any of its requests had valid credentials.
    pub fn is_authenticated(&self) -> bool {
        self.0.user.get().is_some()
    }

    /// The user of its certificate, or else of its first request with valid credentials. What the client does before a
    /// request is complete counts for this user.
    pub fn user(&self) -> Option<&Arc<User>> {
        self.0.user.get()
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
