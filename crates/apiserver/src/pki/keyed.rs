//! A certificate with its private key.

use std::{collections::BTreeSet, path::Path};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use rcgen::{KeyPair, PublicKeyData as _};
use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::CertifiedKey,
};

use super::{
    authority::Authority,
    certificate::{Facts, Validity},
    error::{ISSUE_AGAIN, PkiError},
    files,
    secret::Secret,
};

/// A certificate with its private key.
#[derive(Clone, Debug)]
pub struct KeyedCertificate {
    certificate: CertificateDer<'static>,
    key: Secret,
    facts: Facts,
}

impl KeyedCertificate {
    /// `None` if `certificate` is none.
    pub(super) fn new(certificate: CertificateDer<'static>, key: &KeyPair) -> Option<Self> {
        let facts = Facts::read(&certificate)?;
        Some(Self { certificate, key: Secret::new(key.serialize_pem()), facts })
    }

    /// Reads one that `authority` issued. `None` if there is no such file.
    pub(super) fn load(path: &Path, authority: &Authority) -> Result<Option<Self>, PkiError> {
        let Some(pem) = files::read_private(path)? else { return Ok(None) };
        let unfit = |what: &str| PkiError::unfit(path, what, ISSUE_AGAIN);

        let mut certificates = CertificateDer::pem_slice_iter(&pem);
        let (Some(Ok(certificate)), None) = (certificates.next(), certificates.next()) else {
            return Err(unfit("does not hold just one certificate"));
        };
        let key = PrivateKeyDer::from_pem_slice(&pem).ok().and_then(|key| KeyPair::try_from(&key).ok());
        let Some(key) = key else { return Err(unfit("holds no usable private key")) };
        let Some(found) = Self::new(certificate, &key) else {
            return Err(unfit("holds a damaged certificate"));
        };
        if found.facts.public_key != key.subject_public_key_info() {
            return Err(unfit("holds a certificate that does not belong to the key beside it"));
        }
        if !authority.issued(&found.certificate) {
            return Err(unfit("holds a certificate that was not issued by the authority of this cluster"));
        }
        Ok(Some(found))
    }

    /// Writes both into one file.
    pub(super) fn save(&self, path: &Path) -> Result<(), PkiError> {
        let both = self.certificate_pem() + self.key.reveal();
        Ok(files::replace(path, &both, files::PRIVATE)?)
    }

    /// The certificate, as PEM.
    pub fn certificate_pem(&self) -> String {
        certificate_pem(&self.certificate)
    }

    /// The private key, as PEM.
    pub fn key_pem(&self) -> &Secret {
        &self.key
    }

    /// The certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// When it ceases to hold.
    pub fn expires(&self) -> Timestamp {
        self.facts.validity.not_after
    }

    /// The host names and addresses that it is good for; none for a client's.
    pub fn names(&self) -> &BTreeSet<String> {
        &self.facts.names
    }

    pub(super) fn validity(&self) -> Validity {
        self.facts.validity
    }

    /// In the form that TLS takes.
    pub(super) fn certified(&self) -> Result<CertifiedKey, PkiError> {
        let key = PrivateKeyDer::from_pem_slice(self.key.reveal().as_bytes())
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        let provider = rustls::crypto::ring::default_provider();
        Ok(CertifiedKey::from_der(vec![self.certificate.clone()], key, &provider)?)
    }
}

/// A certificate as PEM: base64 in lines of 64 characters.
pub fn certificate_pem(der: &[u8]) -> String {
    let encoded = BASE64_STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = after;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}
