//! The user of a client certificate.

use std::sync::Arc;

use data_encoding::HEXLOWER;
use jiff::Timestamp;
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

use super::User;
use crate::accounts::sha256;

/// The user of a verified client certificate: the common name is the user name, the organizations are the groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateIdentity {
    user: Arc<User>,
    expires: Timestamp,
}

impl CertificateIdentity {
    /// Parses a certificate that was verified before. `None` if it has no common name: it authenticates no user.
    pub fn read(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        // The last of several common names counts, as in Go.
        let name = subject.iter_common_name().last()?.as_str().ok().filter(|name| !name.is_empty())?;
        // A group that cannot be parsed is left out, which never grants a right.
        let groups = subject.iter_organization().filter_map(|organization| organization.as_str().ok());
        // The fingerprint of the certificate, as upstream has it; it is not secret.
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

    /// When the certificate expires.
    pub fn expires(&self) -> Timestamp {
        self.expires
    }
}
