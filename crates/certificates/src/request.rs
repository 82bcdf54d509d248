//! The content of a certificate signing request.

use std::net::IpAddr;

use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer as _;

/// Why a certificate signing request cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The text is not a PEM block of the right type.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Block,
    /// The content of the PEM block is malformed.
    #[error("malformed certificate request")]
    Malformed,
    /// The requester does not have the private key, or the request was changed after it was signed.
    #[error("the signature does not belong to the request and its key")]
    Signature,
}

/// The content of a certificate signing request: the public key, the subject and the subject alternative names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The DER-encoded subject.
    pub subject: Vec<u8>,
    /// The DER-encoded public key with its algorithm.
    pub public_key: Vec<u8>,
    /// The common name, which is the user.
    pub common_name: String,
    /// The organizations, which are the groups.
    pub organizations: Vec<String>,
    /// DNS names.
    pub hosts: Vec<String>,
    /// IP addresses.
    pub addresses: Vec<IpAddr>,
    /// Email addresses.
    pub mails: Vec<String>,
    /// URIs.
    pub uris: Vec<String>,
}

impl Request {
    /// Parses a PEM-encoded request, and verifies its signature with its public key.
    pub fn parse(pem: &[u8]) -> Result<Self, Unreadable> {
        let (_, pem) = x509_parser::pem::parse_x509_pem(pem).map_err(|_| Unreadable::Block)?;
        if pem.label != "CERTIFICATE REQUEST" {
            return Err(Unreadable::Block);
        }
        let (rest, request) =
            X509CertificationRequest::from_der(&pem.contents).map_err(|_| Unreadable::Malformed)?;
        if !rest.is_empty() {
            return Err(Unreadable::Malformed);
        }
        request.verify_signature().map_err(|_| Unreadable::Signature)?;
        let subject = &request.certification_request_info.subject;
        let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            value.as_str().map(str::to_owned).map_err(|_| Unreadable::Malformed)
        };
        let mut found = Self {
            subject: subject.as_raw().to_owned(),
            public_key: request.certification_request_info.subject_pki.raw.to_owned(),
            // Like Go, the last of several common names is used.
            common_name: subject.iter_common_name().last().map(text).transpose()?.unwrap_or_default(),
            organizations: subject.iter_organization().map(text).collect::<Result<_, _>>()?,
            hosts: Vec::new(),
            addresses: Vec::new(),
            mails: Vec::new(),
            uris: Vec::new(),
        };
        for extension in request.requested_extensions().into_iter().flatten() {
            if let ParsedExtension::SubjectAlternativeName(alternatives) = extension {
                for name in &alternatives.general_names {
                    found.add_alternative_name(name)?;
                }
            }
        }
        Ok(found)
    }

    fn add_alternative_name(&mut self, name: &GeneralName<'_>) -> Result<(), Unreadable> {
        match name {
            GeneralName::DNSName(name) => self.hosts.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => self.addresses.push(address(bytes)?),
            GeneralName::RFC822Name(name) => self.mails.push((*name).to_owned()),
            GeneralName::URI(name) => self.uris.push((*name).to_owned()),
            // No signer supports other types of names.
            _ => return Err(Unreadable::Malformed),
        }
        Ok(())
    }
}

/// Parses an IP address of 4 or 16 bytes.
fn address(bytes: &[u8]) -> Result<IpAddr, Unreadable> {
    let ipv4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    ipv4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).map_err(|_| Unreadable::Malformed)
}
