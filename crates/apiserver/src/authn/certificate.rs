//! Whom a client certificate stands for.

use std::sync::Arc;

use data_encoding::HEXLOWER;
use jiff::Timestamp;
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

use super::User;
use crate::accounts::sha256;

/// Whom a verified client certificate stands for: its common name is the user, its organizations are the groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateIdentity {
    user: Arc<User>,
    expires: Timestamp,
}

impl CertificateIdentity {
    /// Reads a certificate that was verified before. `None` if it names no user: it then stands for nobody.
    pub fn read(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        // Of several common names the last counts, as it does for the clients and servers that are written in Go.
        let name = subject.iter_common_name().last()?.as_str().ok().filter(|name| !name.is_empty())?;
        // A group that cannot be read is a group less, which never gives a right.
        let groups = subject.iter_organization().filter_map(|organization| organization.as_str().ok());
        // Tells which certificate was used, as upstream does; it is no secret.
        let credential = format!("X509SHA256={}", HEXLOWER.encode(&sha256(der)));
        let extra = [("authentication.kubernetes.io/credential-id".to_owned(), vec![credential])];
        Some(Self {
            user: Arc::new(User::new(name, "", groups).with_extra(extra.into())),
            expires: Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()?,
        })
    }

    /// The user.
    pub fn user(&self) -> &Arc<User> {
        &self.user
    }

    /// When the certificate ceases to hold.
    pub fn expires(&self) -> Timestamp {
        self.expires
    }
}
