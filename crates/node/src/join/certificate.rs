//! A certificate of this node with its key, in memory and on disk.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::RwLock;
use rcgen::KeyPair;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

/// Why a certificate cannot be used or stored.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The file cannot be read or written.
    #[error("cannot {doing} {}", path.display())]
    File {
        /// The step that failed.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The PEM does not have a certificate with its key.
    #[error("{0} does not hold a certificate with its key; remove it, and join again with a new token")]
    Unfit(String),
    /// The key cannot be used for TLS.
    #[error("cannot use a certificate for tls")]
    Tls(#[from] rustls::Error),
}

/// A certificate with its key.
#[derive(Clone)]
pub struct NodeCertificate {
    certified: Arc<CertifiedKey>,
    pem: String,
    /// The user name: its common name.
    pub user: String,
    /// Its addresses (subject alternative names).
    pub addresses: Vec<IpAddr>,
    /// Its public key, with its algorithm, in DER.
    pub public_key: Vec<u8>,
    /// Not before.
    pub since: Timestamp,
    /// Not after.
    pub until: Timestamp,
}

impl fmt::Debug for NodeCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeCertificate")
            .field("user", &self.user)
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

impl NodeCertificate {
    /// Parses a certificate and its key, both in PEM. `of` names the source in errors.
    pub fn parse(pem: &str, of: &str) -> Result<Self, CertificateError> {
        let unfit = || CertificateError::Unfit(of.to_owned());
        let certificates = CertificateDer::pem_slice_iter(pem.as_bytes());
        let chain: Vec<_> = certificates.collect::<Result<_, _>>().map_err(|_| unfit())?;
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| unfit())?;
        let first = chain.first().ok_or_else(unfit)?;
        let (_, read) = X509Certificate::from_der(first).map_err(|_| unfit())?;
        let at =
            |time: x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp()).map_err(|_| unfit());
        let (since, until) = (at(read.validity().not_before)?, at(read.validity().not_after)?);
        let name = read.subject().iter_common_name().last().and_then(|name| name.as_str().ok());
        let user = name.unwrap_or_default().to_owned();
        let addresses = addresses(&read);
        let public_key = read.public_key().raw.to_owned();
        let provider = rustls::crypto::ring::default_provider();
        let certified = Arc::new(CertifiedKey::from_der(chain, key, &provider)?);
        Ok(Self { certified, pem: pem.to_owned(), user, addresses, public_key, since, until })
    }

    /// Reads one from a file; none if there is no file.
    pub fn load(path: &Path) -> Result<Option<Self>, CertificateError> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, &path.display().to_string()).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(CertificateError::File { doing: "read", path: path.to_owned(), source }),
        }
    }

    /// Writes it atomically to a file that only its owner may read.
    pub fn save(&self, path: &Path) -> Result<(), CertificateError> {
        replace(path, &self.pem, 0o600)
    }

    /// Its key.
    pub fn key(&self) -> Result<KeyPair, CertificateError> {
        read_key(&self.pem).ok_or_else(|| CertificateError::Unfit("a certificate of this node".to_owned()))
    }

    /// Whether it should be renewed: a third of its lifetime is left, or less.
    pub fn is_due(&self, now: Timestamp) -> bool {
        let life = self.until.as_second() - self.since.as_second();
        now < self.since || self.until.as_second() - now.as_second() <= life / 3
    }

    /// Whether it has not expired.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        now < self.until
    }
}

/// The private key in a text of PEM blocks.
pub(super) fn read_key(pem: &str) -> Option<KeyPair> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).ok().and_then(|key| KeyPair::try_from(&key).ok())
}

/// The key in a file, which is created if it is missing: a node that retries after a crash uses the same key.
pub fn load_or_create_key(path: &Path) -> Result<KeyPair, CertificateError> {
    let unfit = || CertificateError::Unfit(path.display().to_string());
    match fs::read_to_string(path) {
        Ok(text) => read_key(&text).ok_or_else(unfit),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key = KeyPair::generate().map_err(|_| unfit())?;
            replace(path, &key.serialize_pem(), 0o600)?;
            Ok(key)
        }
        Err(source) => Err(CertificateError::File { doing: "read", path: path.to_owned(), source }),
    }
}

fn addresses(certificate: &X509Certificate<'_>) -> Vec<IpAddr> {
    let Ok(Some(alternatives)) = certificate.subject_alternative_name() else { return Vec::new() };
    let address = |name: &GeneralName<'_>| match name {
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)).ok()
        }
        _ => None,
    };
    alternatives.value.general_names.iter().filter_map(address).collect()
}

/// Replaces a file atomically and durably.
pub(super) fn replace(path: &Path, text: &str, mode: u32) -> Result<(), CertificateError> {
    let failed = |doing| move |source| CertificateError::File { doing, path: path.to_owned(), source };
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(failed("make the folder of"))?;
    let aside = path.with_extension("new");
    let write = || {
        // A file that a crash left behind may have another mode.
        match fs::remove_file(&aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&aside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&aside, path)?;
        fs::File::open(folder)?.sync_all()
    };
    write().map_err(failed("write"))
}

/// The current certificate, if there is one yet: rotation replaces it without a restart.
#[derive(Debug, Default)]
pub struct CertificateResolver(RwLock<Option<Arc<CertifiedKey>>>);

impl CertificateResolver {
    /// Uses a certificate from now on.
    pub fn set(&self, certificate: &NodeCertificate) {
        *self.0.write() = Some(certificate.certified.clone());
    }
}

impl ResolvesClientCert for CertificateResolver {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.read().clone()
    }

    fn has_certs(&self) -> bool {
        self.0.read().is_some()
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().clone()
    }
}
