//! The cluster's own certificate authority, and a certificate for each of its users.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

use crate::error::{Error, IoContext as _};

/// A certificate and its key, as files.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// The authority, and the folder it writes to.
pub(crate) struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes a new authority in `folder`.
    pub(crate) fn create(folder: PathBuf) -> Result<Self, Error> {
        fs::create_dir_all(&folder).doing("create", &folder)?;
        let subject = "plumb-testbed";
        let certified = |source| Error::Certificate { subject: subject.to_owned(), source };
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, subject);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().map_err(certified)?;
        let certificate = params.self_signed(&key).map_err(certified)?;
        write(&folder.join("ca.crt"), &certificate.pem())?;
        write(&folder.join("ca.key"), &key.serialize_pem())?;
        Ok(Self { folder, issuer: Issuer::new(params, key) })
    }

    /// The authority's own certificate and key.
    pub(crate) fn identity(&self) -> Identity {
        self.named("ca")
    }

    /// A serving certificate for loopback and `names`.
    pub(crate) fn server(&self, file: &str, names: &[&str]) -> Result<Identity, Error> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names)
            .map_err(|source| Error::Certificate { subject: file.to_owned(), source })?;
        params.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        params.distinguished_name.push(DnType::CommonName, file);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(file, params)
    }

    /// A certificate for a client: the user is `name`, in `groups`.
    pub(crate) fn client(&self, file: &str, name: &str, group: Option<&str>) -> Result<Identity, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(file, params)
    }

    /// The key pair of service account tokens: `(private, public)`.
    pub(crate) fn service_account_keys(&self) -> Result<(PathBuf, PathBuf), Error> {
        let key = KeyPair::generate()
            .map_err(|source| Error::Certificate { subject: "service accounts".to_owned(), source })?;
        let (private, public) = (self.folder.join("sa.key"), self.folder.join("sa.pub"));
        write(&private, &key.serialize_pem())?;
        write(&public, &key.public_key_pem())?;
        Ok((private, public))
    }

    fn sign(&self, file: &str, mut params: CertificateParams) -> Result<Identity, Error> {
        let certified = |source| Error::Certificate { subject: file.to_owned(), source };
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().map_err(certified)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(certified)?;
        let identity = self.named(file);
        write(&identity.certificate, &certificate.pem())?;
        write(&identity.key, &key.serialize_pem())?;
        Ok(identity)
    }

    fn named(&self, file: &str) -> Identity {
        Identity {
            certificate: self.folder.join(format!("{file}.crt")),
            key: self.folder.join(format!("{file}.key")),
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).doing("write", path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).doing("protect", path)
}
