//! The certificate authority of a webhook, and its serving certificate. Pure, except that keys are random.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

/// For how long an authority is valid.
const AUTHORITY: SignedDuration = SignedDuration::from_hours(2 * 365 * 24);
/// For how long a serving certificate is valid.
const LEAF: SignedDuration = SignedDuration::from_hours(90 * 24);
/// Clocks of machines differ: a certificate is valid a little before it is issued.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// Why a certificate cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// It cannot be made.
    #[error("making a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// It cannot be used to serve.
    #[error("using a certificate: {0}")]
    Use(#[from] rustls::Error),
    /// It is not a certificate, or the key does not belong to it.
    #[error("reading a certificate: {0}")]
    Read(String),
    /// It is not the certificate of an authority.
    #[error("the certificate is not that of an authority")]
    NoAuthority,
}

/// The validity of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    not_before: Timestamp,
    not_after: Timestamp,
}

impl Validity {
    fn from(now: Timestamp, length: SignedDuration) -> Self {
        Self {
            not_before: now.checked_sub(SKEW).unwrap_or(Timestamp::MIN),
            not_after: now.checked_add(length).unwrap_or(Timestamp::MAX),
        }
    }

    /// When it is renewed: when a third of its lifetime is left.
    pub fn renewal(self) -> Timestamp {
        let third = self.not_after.duration_since(self.not_before) / 3;
        self.not_after.checked_sub(third).unwrap_or(self.not_after)
    }

    /// Whether it is due for renewal. A certificate that is not valid yet is due, too: a clock that was ahead issued it.
    pub fn is_due(self, now: Timestamp) -> bool {
        now < self.not_before || self.renewal() <= now
    }

    /// Whether it has expired.
    pub fn has_ended(self, now: Timestamp) -> bool {
        self.not_after <= now
    }
}

/// A certificate authority.
#[derive(Clone)]
pub struct Authority {
    certificate: String,
    key: String,
    validity: Validity,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("validity", &self.validity).finish_non_exhaustive()
    }
}

impl Authority {
    /// Creates an authority.
    pub fn make(now: Timestamp) -> Result<Self, CertificateError> {
        let validity = Validity::from(now, AUTHORITY);
        let mut params = params(validity);
        // The name distinguishes an authority from its successor.
        params.distinguished_name.push(DnType::CommonName, format!("plumb-webhook-ca@{}", now.as_second()));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { certificate, key: key.serialize_pem(), validity })
    }

    /// Parses an authority.
    pub fn read(certificate: &str, key: &str) -> Result<Self, CertificateError> {
        let der = first_certificate(certificate.as_bytes())?;
        let (validity, is_authority, public_key) = facts(&der)?;
        if !is_authority {
            return Err(CertificateError::NoAuthority);
        }
        if public_key != rcgen::PublicKeyData::subject_public_key_info(&KeyPair::from_pem(key)?) {
            return Err(CertificateError::Read("it does not belong to the key".to_owned()));
        }
        Ok(Self { certificate: certificate.to_owned(), key: key.to_owned(), validity })
    }

    /// Its certificate, as PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Its private key, as PEM.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// When it is valid.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Issues a certificate for a server that is reached under some names, which are host names or addresses.
    pub fn issue(&self, names: &[String], now: Timestamp) -> Result<Leaf, CertificateError> {
        let issuer = Issuer::from_ca_cert_pem(&self.certificate, KeyPair::from_pem(&self.key)?)?;
        let mut validity = Validity::from(now, LEAF);
        validity.not_after = validity.not_after.min(self.validity.not_after);
        let mut params = params(validity);
        params.distinguished_name.push(DnType::CommonName, names.first().map_or("webhook", String::as_str));
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.subject_alt_names = names.iter().map(|name| alternative(name)).collect::<Result<_, _>>()?;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?;
        Leaf::read(certificate.pem().as_bytes(), key.serialize_pem().as_bytes())
    }
}

/// A serving certificate with its key.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// In the form that rustls needs.
    pub certified: Arc<CertifiedKey>,
    /// When it is valid.
    pub validity: Validity,
}

impl Leaf {
    /// Reads a chain of certificates and the key of the first.
    pub fn read(certificates: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        let unreadable = |error: rustls::pki_types::pem::Error| CertificateError::Read(error.to_string());
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(certificates).collect::<Result<_, _>>().map_err(unreadable)?;
        let first = chain.first().ok_or_else(|| CertificateError::Read("there is none".to_owned()))?;
        let (validity, ..) = facts(first)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(unreadable)?;
        let provider = rustls::crypto::ring::default_provider();
        let certified = Arc::new(CertifiedKey::from_der(chain, key, &provider)?);
        Ok(Self { certified, validity })
    }
}

fn params(validity: Validity) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = std::time::SystemTime::from(validity.not_before).into();
    params.not_after = std::time::SystemTime::from(validity.not_after).into();
    params.serial_number = Some(SerialNumber::from_slice(uuid::Uuid::new_v4().as_bytes()));
    params
}

fn alternative(name: &str) -> Result<SanType, CertificateError> {
    match name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        Ok(address) => Ok(SanType::IpAddress(address)),
        Err(_) => Ok(SanType::DnsName(name.try_into()?)),
    }
}

fn first_certificate(pem: &[u8]) -> Result<CertificateDer<'static>, CertificateError> {
    CertificateDer::from_pem_slice(pem).map_err(|error| CertificateError::Read(error.to_string()))
}

/// Parses the validity of a certificate, whether it is an authority's, and its public key.
fn facts(der: &[u8]) -> Result<(Validity, bool, Vec<u8>), CertificateError> {
    let unreadable = |error: String| CertificateError::Read(error);
    let (_, certificate) = X509Certificate::from_der(der).map_err(|error| unreadable(error.to_string()))?;
    let at = |time: i64| Timestamp::from_second(time).map_err(|error| unreadable(error.to_string()));
    let validity = Validity {
        not_before: at(certificate.validity().not_before.timestamp())?,
        not_after: at(certificate.validity().not_after.timestamp())?,
    };
    Ok((validity, certificate.is_ca(), certificate.public_key().raw.to_owned()))
}
