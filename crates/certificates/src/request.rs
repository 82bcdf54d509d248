//! What a request for a certificate says.

use std::net::IpAddr;

use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer as _;

/// Why a text is no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It is not the PEM that it has to be.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Block,
    /// What is in the PEM is something else.
    #[error("malformed certificate request")]
    Malformed,
    /// The requester does not have the key, or the request was changed since it was signed.
    #[error("the signature does not belong to the request and its key")]
    Signature,
}

/// What a request for a certificate says: a key, a name for its holder, and what else it is to be good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The name, encoded.
    pub subject: Vec<u8>,
    /// The public key with its algorithm, encoded.
    pub public_key: Vec<u8>,
    /// The common name: a user.
    pub common_name: String,
    /// The organizations: groups.
    pub organizations: Vec<String>,
    /// Host names.
    pub hosts: Vec<String>,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
    /// Addresses of mail.
    pub mails: Vec<String>,
    /// Anything else that has an address.
    pub uris: Vec<String>,
}

impl Request {
    /// Reads a request in PEM, and verifies its signature with its own key.
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
            // Of several common names the last counts, as in Go.
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
                    found.take(name)?;
                }
            }
        }
        Ok(found)
    }

    fn take(&mut self, name: &GeneralName<'_>) -> Result<(), Unreadable> {
        match name {
            GeneralName::DNSName(name) => self.hosts.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => self.addresses.push(address(bytes)?),
            GeneralName::RFC822Name(name) => self.mails.push((*name).to_owned()),
            GeneralName::URI(name) => self.uris.push((*name).to_owned()),
            // Other types of names have no meaning to any signer.
            _ => return Err(Unreadable::Malformed),
        }
        Ok(())
    }
}

fn address(bytes: &[u8]) -> Result<IpAddr, Unreadable> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).map_err(|_| Unreadable::Malformed)
}
