//! The content of a certificate.

use std::{collections::BTreeSet, net::IpAddr};

use jiff::{SignedDuration, Timestamp};
use x509_parser::{
    certificate::X509Certificate,
    extensions::{GeneralName, ParsedExtension},
    prelude::FromDer as _,
};

/// The validity of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
}

impl Validity {
    /// The clocks of machines differ: a new certificate is valid since a little before now.
    const SKEW: i64 = 5 * 60;

    /// From now on, for `days`.
    pub(super) fn from_now(now: Timestamp, days: i64) -> Self {
        Self::lasting(now, SignedDuration::from_hours(days * 24))
    }

    /// From now on, for as long as this.
    pub(super) fn lasting(now: Timestamp, length: SignedDuration) -> Self {
        let at = |second: i64| Timestamp::from_second(second).unwrap_or(Timestamp::MAX);
        Self {
            not_before: at(now.as_second().saturating_sub(Self::SKEW)),
            not_after: at(now.as_second().saturating_add(length.as_secs())),
        }
    }

    /// The same, but no longer than `other`.
    pub(super) fn within(self, other: Self) -> Self {
        Self { not_after: self.not_after.min(other.not_after), ..self }
    }

    /// Whether it is time to renew: a third of the lifetime is left, or less; or it is not valid yet, because the clock was
    /// ahead.
    pub(super) fn due(self, now: Timestamp) -> bool {
        let life = self.not_after.as_second() - self.not_before.as_second();
        let left = self.not_after.as_second() - now.as_second();
        now < self.not_before || left <= life / 3
    }
}

/// The content of a certificate.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) validity: Validity,
    /// The subject, encoded.
    pub(super) subject: Vec<u8>,
    pub(super) common_name: Option<String>,
    /// The public key with its algorithm, encoded.
    pub(super) public_key: Vec<u8>,
    pub(super) key_identifier: Option<Vec<u8>>,
    pub(super) is_authority: bool,
    /// Its host names and addresses.
    pub(super) names: BTreeSet<String>,
}

impl Facts {
    /// Parses a certificate. `None` if it is none.
    pub(super) fn read(der: &[u8]) -> Option<Self> {
        let certificate = parse(der)?;
        let validity = certificate.validity();
        Some(Self {
            validity: Validity {
                not_before: Timestamp::from_second(validity.not_before.timestamp()).ok()?,
                not_after: Timestamp::from_second(validity.not_after.timestamp()).ok()?,
            },
            subject: certificate.subject().as_raw().to_owned(),
            common_name: common_name(&certificate),
            public_key: certificate.public_key().raw.to_owned(),
            key_identifier: certificate.extensions().iter().find_map(|extension| {
                match extension.parsed_extension() {
                    ParsedExtension::SubjectKeyIdentifier(identifier) => Some(identifier.0.to_owned()),
                    _ => None,
                }
            }),
            is_authority: certificate.is_ca(),
            names: names(&certificate),
        })
    }
}

/// Whether the certificate was signed by the holder of `public_key` (with its algorithm, encoded).
pub(super) fn is_signed_by(der: &[u8], public_key: &[u8]) -> bool {
    let Some(certificate) = parse(der) else { return false };
    x509_parser::x509::SubjectPublicKeyInfo::from_der(public_key)
        .is_ok_and(|(_, key)| certificate.verify_signature(Some(&key)).is_ok())
}

fn parse(der: &[u8]) -> Option<X509Certificate<'_>> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Some(certificate),
        _ => None,
    }
}

fn common_name(certificate: &X509Certificate<'_>) -> Option<String> {
    let name = certificate.subject().iter_common_name().next()?;
    name.as_str().ok().map(str::to_owned)
}

fn names(certificate: &X509Certificate<'_>) -> BTreeSet<String> {
    let Ok(Some(alternatives)) = certificate.subject_alternative_name() else { return BTreeSet::new() };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
        _ => None,
    };
    alternatives.value.general_names.iter().filter_map(name).collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_due_when_a_third_of_its_life_is_left() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let validity = Validity { not_before: at(1_000), not_after: at(4_000) };
        for (now, due) in
            [(999, true), (1_000, false), (2_999, false), (3_000, true), (4_000, true), (9_000, true)]
        {
            assert_eq!(validity.due(at(now)), due, "{now}");
        }
    }

    #[test]
    fn invalid_bytes_are_no_certificate() {
        for bytes in [&b""[..], b"0", b"\x30\x00", &[0x30, 0x82, 0xff, 0xff]] {
            assert!(Facts::read(bytes).is_none());
            assert!(!is_signed_by(bytes, bytes));
        }
    }
}
