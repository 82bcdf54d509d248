//! A certificate authority, and its renewal.

use std::{collections::BTreeSet, net::IpAddr, path::Path, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use plumb_certificates::{Request, Usage};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType, SerialNumber, SubjectPublicKeyInfo,
};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use super::{
    certificate::{Facts, Validity, is_signed_by},
    error::{PkiError, RENEW_ELSEWHERE, RESTORE_AUTHORITY},
    files,
    keyed::{KeyedCertificate, certificate_pem},
    name,
};

const AUTHORITY_DAYS: i64 = 3650;
pub(super) const LEAF_DAYS: i64 = 365;

/// The role of an authority. Each issues one kind of certificate, and is trusted for nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Signs the API server's certificate. Clients trust it.
    Serving,
    /// Signs client certificates. The API server and the node agents trust it.
    Client,
    /// Signs the serving certificates of node agents. Only the API server trusts it, so a node's certificate can never
    /// pass for the API server's, whatever names are in it.
    NodeServing,
    /// Signs the certificate by which the API server shows itself to aggregated API servers. They trust its word about users,
    /// so that it signs no other certificate.
    FrontProxy,
}

impl Role {
    const fn certificate_file(self) -> &'static str {
        match self {
            Self::Serving => "ca.crt",
            Self::Client => "client-ca.crt",
            Self::NodeServing => "kubelet-serving-ca.crt",
            Self::FrontProxy => "front-proxy-ca.crt",
        }
    }

    const fn key_file(self) -> &'static str {
        match self {
            Self::Serving => "ca.key",
            Self::Client => "client-ca.key",
            Self::NodeServing => "kubelet-serving-ca.key",
            Self::FrontProxy => "front-proxy-ca.key",
        }
    }

    /// The prefix of the common name of an authority that Plumb has created; the time of its creation follows.
    const fn our_name(self) -> &'static str {
        match self {
            Self::Serving => "plumb-ca@",
            Self::Client => "plumb-client-ca@",
            Self::NodeServing => "plumb-kubelet-serving-ca@",
            Self::FrontProxy => "plumb-front-proxy-ca@",
        }
    }
}

/// The common name of the API server in its certificate.
const SERVING_USER: &str = "kube-apiserver";

pub(super) struct Authority {
    role: Role,
    key: Arc<KeyPair>,
    certificate: CertificateDer<'static>,
    facts: Facts,
}

impl Authority {
    /// Opens the authority of a role in `directory`, or creates one, and renews it if it is due.
    pub(super) fn open(directory: &Path, role: Role, now: Timestamp) -> Result<Self, PkiError> {
        let certificate_path = directory.join(role.certificate_file());
        let key_path = directory.join(role.key_file());
        let certificate = files::read(&certificate_path)?;
        let key = match files::read_private(&key_path)? {
            Some(key) => KeyPair::from_pem(&String::from_utf8_lossy(&key))
                .map_err(|error| unfit(&key_path, format!("holds no usable private key ({error})")))?,
            None if certificate.is_some() => {
                let what = format!("is missing, though {} is there", role.certificate_file());
                return Err(unfit(&key_path, what));
            }
            None => {
                let key = KeyPair::generate().map_err(PkiError::make("the authority's key"))?;
                files::replace(&key_path, &key.serialize_pem(), files::PRIVATE)?;
                key
            }
        };
        // A crash during the first start leaves a key without a certificate. It is completed: certificates that the key has
        // signed stay valid under any certificate with that key and name.
        let Some(certificate) = certificate else {
            let subject = name::encode(&format!("{}{}", role.our_name(), now.as_second()), &[]);
            return Self::write(directory, role, Arc::new(key), subject, KeyIdMethod::Sha256, now);
        };

        let mut authority = Self::load(role, &certificate_path, &certificate, Arc::new(key))?;
        authority.renew_if_due(directory, now)?;
        Ok(authority)
    }

    fn load(role: Role, path: &Path, pem: &[u8], key: Arc<KeyPair>) -> Result<Self, PkiError> {
        let mut found = CertificateDer::pem_slice_iter(pem);
        let (Some(Ok(certificate)), None) = (found.next(), found.next()) else {
            return Err(unfit(path, "does not hold just one certificate"));
        };
        let Some(facts) = Facts::read(&certificate) else {
            return Err(unfit(path, "holds a damaged certificate"));
        };
        if facts.public_key != key.subject_public_key_info() {
            return Err(unfit(path, format!("does not belong to {}", role.key_file())));
        }
        if !facts.is_authority {
            return Err(unfit(path, "is not the certificate of an authority"));
        }
        if !is_signed_by(&certificate, &facts.public_key) {
            let key = role.key_file();
            let what = format!("is not signed by {key}: an authority under another one is not supported");
            return Err(unfit(path, what));
        }
        Ok(Self { role, key, certificate, facts })
    }

    /// Renews the authority's certificate if it is due, and returns whether it was. Name and key stay the same, so that issued
    /// certificates are valid under the new one, and new certificates under the old one until it expires.
    ///
    /// A foreign authority is not renewed: its certificate may contain what ours would not.
    pub(super) fn renew_if_due(&mut self, directory: &Path, now: Timestamp) -> Result<bool, PkiError> {
        if !self.facts.validity.due(now) {
            return Ok(false);
        }
        if !self.is_ours() {
            let path = directory.join(self.role.certificate_file());
            let end = self.facts.validity.not_after;
            if end <= now {
                let what = format!("was made elsewhere, and held until {end}");
                return Err(PkiError::unfit(path, what, RENEW_ELSEWHERE));
            }
            tracing::warn!(file = %path.display(), %end, "this authority was made elsewhere and is not renewed here");
            return Ok(false);
        }
        *self = Self::write(
            directory,
            self.role,
            Arc::clone(&self.key),
            self.facts.subject.clone(),
            self.identifier(),
            now,
        )?;
        Ok(true)
    }

    fn write(
        directory: &Path,
        role: Role,
        key: Arc<KeyPair>,
        subject: Vec<u8>,
        identifier: KeyIdMethod,
        now: Timestamp,
    ) -> Result<Self, PkiError> {
        let path = directory.join(role.certificate_file());
        let mut params = params(Validity::from_now(now, AUTHORITY_DAYS));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        params.key_identifier_method = identifier;
        let what = "the authority's certificate";
        let made = params.self_signed(&*key).map_err(PkiError::make(what))?;
        let certificate = renamed(&made, &subject, &subject, &key, what)?;
        let pem = certificate_pem(&certificate);
        files::replace(&path, &pem, files::PUBLIC)?;
        Self::load(role, &path, pem.as_bytes(), key)
    }

    /// A certificate of a server with these names.
    pub(super) fn issue_serving(
        &self,
        names: &BTreeSet<String>,
        now: Timestamp,
    ) -> Result<KeyedCertificate, PkiError> {
        let mut params = params(self.leaf_validity(now));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = names.iter().map(|name| alternative(name)).collect::<Result<_, _>>()?;
        self.issue(params, &name::encode(SERVING_USER, &[]), "the serving certificate")
    }

    /// A certificate of a client with this user name and these groups.
    pub(super) fn issue_client(
        &self,
        user: &str,
        groups: &[&str],
        now: Timestamp,
    ) -> Result<KeyedCertificate, PkiError> {
        if user.is_empty() {
            return Err(PkiError::Name { name: user.to_owned(), what: "a user has a name" });
        }
        if groups.iter().any(|group| group.is_empty()) {
            return Err(PkiError::Name { name: user.to_owned(), what: "a group has a name" });
        }
        let mut params = params(self.leaf_validity(now));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params, &name::encode(user, groups), "a client certificate")
    }

    /// A certificate for the key of a certificate request, with its subject and names.
    pub(super) fn sign(
        &self,
        request: &Request,
        usages: &[Usage],
        lifetime: SignedDuration,
        now: Timestamp,
    ) -> Result<String, PkiError> {
        let what = "a requested certificate";
        let mut params = params(Validity::lasting(now, lifetime).within(self.facts.validity));
        for usage in usages {
            match usage {
                Usage::DigitalSignature => params.key_usages.push(KeyUsagePurpose::DigitalSignature),
                Usage::KeyEncipherment => params.key_usages.push(KeyUsagePurpose::KeyEncipherment),
                Usage::ClientAuth => params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth),
                Usage::ServerAuth => params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth),
            }
        }
        let addresses = request.addresses.iter().map(ToString::to_string);
        let names = request.hosts.iter().cloned().chain(addresses);
        params.subject_alt_names = names.map(|name| alternative(&name)).collect::<Result<_, _>>()?;
        let key = SubjectPublicKeyInfo::from_der(&request.public_key).map_err(PkiError::make(what))?;
        Ok(certificate_pem(&self.certify(params, &key, &request.subject, what)?))
    }

    fn issue(
        &self,
        mut params: CertificateParams,
        subject: &[u8],
        what: &'static str,
    ) -> Result<KeyedCertificate, PkiError> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().map_err(PkiError::make(what))?;
        let certificate = self.certify(params, &key, subject, what)?;
        KeyedCertificate::new(certificate, &key).ok_or_else(|| damaged(what))
    }

    /// A certificate for a key.
    fn certify(
        &self,
        mut params: CertificateParams,
        key: &impl PublicKeyData,
        subject: &[u8],
        what: &'static str,
    ) -> Result<CertificateDer<'static>, PkiError> {
        params.is_ca = IsCa::ExplicitNoCa;
        // Strict clients (Python's ssl since 3.13) refuse a certificate without it.
        params.use_authority_key_identifier_extension = true;
        let mut issuer = CertificateParams::default();
        issuer.key_identifier_method = self.identifier();
        issuer.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let made =
            params.signed_by(key, &Issuer::from_params(&issuer, &*self.key)).map_err(PkiError::make(what))?;
        renamed(&made, &self.facts.subject, subject, &self.key, what)
    }

    pub(super) fn der(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub(super) fn pem(&self) -> String {
        certificate_pem(&self.certificate)
    }

    /// When its certificate became valid.
    pub(super) fn not_before(&self) -> Timestamp {
        self.facts.validity.not_before
    }

    /// Whether it has issued a certificate.
    pub(super) fn issued(&self, certificate: &[u8]) -> bool {
        is_signed_by(certificate, &self.facts.public_key)
    }

    fn is_ours(&self) -> bool {
        let name = self.facts.common_name.as_deref().unwrap_or_default();
        name.starts_with(self.role.our_name()) && self.facts.subject == name::encode(name, &[])
    }

    fn identifier(&self) -> KeyIdMethod {
        self.facts.key_identifier.clone().map_or(KeyIdMethod::Sha256, KeyIdMethod::PreSpecified)
    }

    /// A certificate does not outlive its authority.
    fn leaf_validity(&self, now: Timestamp) -> Validity {
        Validity::from_now(now, LEAF_DAYS).within(self.facts.validity)
    }
}

fn unfit(path: &Path, what: impl Into<String>) -> PkiError {
    PkiError::unfit(path, what, RESTORE_AUTHORITY)
}

fn damaged(what: &'static str) -> PkiError {
    PkiError::Make { what, source: rcgen::Error::CouldNotParseCertificate }
}

fn params(validity: Validity) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = std::time::SystemTime::from(validity.not_before).into();
    params.not_after = std::time::SystemTime::from(validity.not_after).into();
    // The default serial number is derived from the key, so that a renewed authority would have that of the old one.
    params.serial_number = Some(SerialNumber::from_slice(uuid::Uuid::new_v4().as_bytes()));
    params
}

fn renamed(
    made: &rcgen::Certificate,
    issuer: &[u8],
    subject: &[u8],
    key: &KeyPair,
    what: &'static str,
) -> Result<CertificateDer<'static>, PkiError> {
    let renamed = name::rename(made.der(), issuer, subject, key).ok_or_else(|| damaged(what))?;
    Ok(renamed.map_err(PkiError::make(what))?.into())
}

fn alternative(name: &str) -> Result<SanType, PkiError> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let invalid = || PkiError::Name { name: name.to_owned(), what: "neither an address nor a host name" };
    let is_host =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._*".contains(&byte));
    if !is_host {
        return Err(invalid());
    }
    Ok(SanType::DnsName(name.try_into().map_err(|_| invalid())?))
}
