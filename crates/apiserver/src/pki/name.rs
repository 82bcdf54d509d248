//! Names in certificates.
//!
//! `rcgen` has one value for each attribute of a name, while a Kubernetes user with two groups needs two organizations, and a
//! foreign authority may have any name. So it creates certificates with a placeholder, and this module replaces issuer and
//! subject in the encoded certificate.

use rcgen::{KeyPair, SigningKey as _};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const BIT_STRING: u8 = 0x03;

/// 2.5.4.3
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
/// 2.5.4.10
const ORGANIZATION: [u8; 3] = [0x55, 0x04, 0x0a];

/// Places in the sequence that is signed: version, serial number, algorithm, issuer, validity, subject, key, extensions.
const ISSUER: usize = 3;
const SUBJECT: usize = 5;

/// The name of `common_name` of `organizations`, encoded.
pub(super) fn encode(common_name: &str, organizations: &[&str]) -> Vec<u8> {
    let organizations = organizations.iter().map(|organization| attribute(&ORGANIZATION, organization));
    let parts: Vec<u8> = organizations.chain([attribute(&COMMON_NAME, common_name)]).flatten().collect();
    element(SEQUENCE, &parts)
}

/// The certificate `made` with these names, signed again. `None` if `made` is no certificate.
pub(super) fn rename(
    made: &[u8],
    issuer: &[u8],
    subject: &[u8],
    key: &KeyPair,
) -> Option<Result<Vec<u8>, rcgen::Error>> {
    let [to_be_signed, algorithm, _signature] = *parts(made)? else { return None };
    let mut fields = parts(to_be_signed)?;
    *fields.get_mut(ISSUER)? = issuer;
    *fields.get_mut(SUBJECT)? = subject;
    let to_be_signed = element(SEQUENCE, &fields.concat());

    Some(key.sign(&to_be_signed).map(|signature| {
        // The leading byte counts unused bits in the last one.
        let signature = element(BIT_STRING, &[&[0], signature.as_slice()].concat());
        element(SEQUENCE, &[to_be_signed.as_slice(), algorithm, &signature].concat())
    }))
}

fn attribute(kind: &[u8], value: &str) -> Vec<u8> {
    let kind = element(OBJECT_IDENTIFIER, kind);
    let value = element(UTF8_STRING, value.as_bytes());
    element(SET, &element(SEQUENCE, &[kind, value].concat()))
}

/// One element: its tag, its length, its content.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let significant = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut encoded = vec![tag];
    match *significant {
        [] => encoded.push(0),
        [short] if short < 0x80 => encoded.push(short),
        // At most eight bytes of length: the sum fits.
        _ => encoded.extend([0x80 | u8::try_from(significant.len()).unwrap_or(8)].iter().chain(significant)),
    }
    encoded.extend(content);
    encoded
}

/// The elements of a sequence, each with its tag and length.
fn parts(sequence: &[u8]) -> Option<Vec<&[u8]>> {
    let (header, length) = head(sequence)?;
    let mut rest = sequence.get(header..header.checked_add(length)?)?;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (header, length) = head(rest)?;
        let (part, after) = rest.split_at_checked(header.checked_add(length)?)?;
        found.push(part);
        rest = after;
    }
    Some(found)
}

/// The sizes of the first element's head and content.
fn head(bytes: &[u8]) -> Option<(usize, usize)> {
    let first = usize::from(*bytes.get(1)?);
    if first < 0x80 {
        return Some((2, first));
    }
    let size = first - 0x80;
    if size > 4 {
        return None;
    }
    let length = bytes.get(2..2 + size)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    Some((2 + size, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_comes_back_whatever_its_length() {
        for size in [0, 1, 127, 128, 255, 256, 65_535, 65_536] {
            let inner = element(UTF8_STRING, &vec![b'x'; size]);
            let outer = element(SEQUENCE, &[inner.clone(), inner.clone()].concat());
            assert_eq!(parts(&outer), Some(vec![inner.as_slice(), inner.as_slice()]), "{size}");
        }
    }

    #[test]
    fn truncated_bytes_are_no_sequence() {
        let whole = encode("someone", &["a", "b"]);
        for size in 0..whole.len() {
            assert_eq!(parts(&whole[..size]), None, "{size}");
        }
        assert_eq!(parts(&[SEQUENCE, 0x85, 1, 1, 1, 1, 1]), None);
        assert_eq!(parts(&[SEQUENCE, 2, OBJECT_IDENTIFIER, 0x84]), None);
    }
}
