//! Names in wire format: labels with their lengths, ending with the empty label of the root.

use std::fmt;

use crate::message::Malformed;

/// The maximum length of a name, with the lengths of its labels and the root (RFC 1035, section 2.3.4).
const MAX_NAME: usize = 255;
const MAX_LABEL: u8 = 63;
/// The maximum number of labels of a name.
const MAX_LABELS: usize = 127;

/// A name in lower case.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Box<[u8]>);

impl Name {
    /// Parses a name as text, with or without the dot of the root. `None` if it is invalid.
    pub fn from_text(text: &str) -> Option<Self> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Some(Self(Box::new([0])));
        }
        Self::from_labels(text.split('.').map(str::as_bytes), &[0])
    }

    /// Joins labels and a suffix in wire format.
    pub(crate) fn from_labels<'a>(labels: impl IntoIterator<Item = &'a [u8]>, rest: &[u8]) -> Option<Self> {
        let mut wire = Vec::new();
        for label in labels {
            let length = u8::try_from(label.len()).ok().filter(|length| (1..=MAX_LABEL).contains(length))?;
            wire.push(length);
            wire.extend(label.iter().map(u8::to_ascii_lowercase));
        }
        wire.extend_from_slice(rest);
        (wire.len() <= MAX_NAME).then(|| Self(wire.into()))
    }

    /// The bytes that it is in messages, the root included.
    pub(crate) fn wire(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = &*self.0;
        while let Some((length, tail)) = rest.split_first().filter(|(length, _)| **length > 0) {
            let (label, tail) = tail.split_at(usize::from(*length).min(tail.len()));
            write!(f, "{}.", label.escape_ascii())?;
            rest = tail;
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A name to look up, in lower case, with the positions of its labels. It needs no allocation.
#[derive(Clone)]
pub struct LookupName {
    bytes: [u8; MAX_NAME],
    length: usize,
    starts: [u8; MAX_LABELS],
    count: usize,
}

impl LookupName {
    /// Parses a name as text. `None` if it is invalid.
    pub fn from_text(text: &str) -> Option<Self> {
        Name::from_text(text).map(|name| Self::from(&name))
    }

    /// Decodes the name at the beginning of a message. The name of a question cannot be compressed, since no name precedes it.
    pub(crate) fn read(message: &[u8]) -> Result<Self, Malformed> {
        let mut name = Self { bytes: [0; MAX_NAME], length: 0, starts: [0; MAX_LABELS], count: 0 };
        loop {
            let at = name.length;
            let length = *message.get(at).ok_or(Malformed)?;
            if length == 0 {
                name.length = at + 1;
                return if name.length <= MAX_NAME { Ok(name) } else { Err(Malformed) };
            }
            let end = at + 1 + usize::from(length);
            // The last of the 255 bytes is the root.
            if length > MAX_LABEL || end >= MAX_NAME {
                return Err(Malformed);
            }
            let label = message.get(at..end).ok_or(Malformed)?;
            name.bytes[at..end].copy_from_slice(label);
            name.bytes[at + 1..end].make_ascii_lowercase();
            name.starts[name.count] = u8::try_from(at).map_err(|_| Malformed)?;
            name.count += 1;
            name.length = end;
        }
    }

    /// The bytes that it is in messages, the root included.
    pub(crate) fn wire(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The number of labels.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The position of a label; for the number of labels, that of the root.
    pub(crate) fn start(&self, label: usize) -> usize {
        if label < self.count { usize::from(self.starts[label]) } else { self.length - 1 }
    }

    /// A label without its length.
    pub(crate) fn label(&self, label: usize) -> &[u8] {
        &self.bytes[(self.start(label) + 1).min(self.length)..self.start(label + 1)]
    }

    /// The labels from one up to another, with their lengths.
    pub(crate) fn labels(&self, from: usize, to: usize) -> &[u8] {
        &self.bytes[self.start(from)..self.start(to)]
    }

    /// The suffix of the name from a label on, with the root.
    pub(crate) fn rest(&self, label: usize) -> &[u8] {
        &self.bytes[self.start(label)..self.length]
    }

    /// The number of labels before a domain, 0 if the name is the domain. `None` if the name is not in the domain.
    pub(crate) fn labels_before(&self, domain: &Name) -> Option<usize> {
        let at = self.length.checked_sub(domain.wire().len())?;
        if self.bytes[at..self.length] != *domain.wire() {
            return None;
        }
        if at + 1 == self.length {
            return Some(self.count);
        }
        let start = u8::try_from(at).ok()?;
        self.starts[..self.count].binary_search(&start).ok()
    }
}

impl From<&Name> for LookupName {
    fn from(name: &Name) -> Self {
        // A `Name` is valid, so it can be decoded; otherwise it would become the root.
        Self::read(name.wire()).unwrap_or(Self {
            bytes: [0; MAX_NAME],
            length: 1,
            starts: [0; MAX_LABELS],
            count: 0,
        })
    }
}

impl fmt::Debug for LookupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Name(self.wire().into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_without_regard_to_case() {
        let name = LookupName::from_text("Web.Shop.svc.Cluster.Local").unwrap();
        assert_eq!((name.count(), name.label(0), name.label(4)), (5, &b"web"[..], &b"local"[..]));
        assert_eq!(name.labels(0, 2), b"\x03web\x04shop");
        assert_eq!(name.labels_before(&Name::from_text("cluster.local.").unwrap()), Some(3));
        assert_eq!(name.labels_before(&Name::from_text("local").unwrap()), Some(4));
        assert_eq!(name.labels_before(&Name::from_text("").unwrap()), Some(5));
        for other in ["uster.local", "cluster", "x.web.shop.svc.cluster.local"] {
            assert_eq!(name.labels_before(&Name::from_text(other).unwrap()), None, "{other}");
        }
        let same = Name::from_text("web.shop.svc.cluster.local").unwrap();
        assert_eq!(name.labels_before(&same), Some(0));
        assert_eq!(same.to_string(), "web.shop.svc.cluster.local.");
    }

    #[test]
    fn a_label_that_contains_a_length_byte_does_not_match_a_domain() {
        // The label `\x05local` is no domain `local`.
        let name = LookupName::read(b"\x06\x05local\x00").unwrap();
        assert_eq!(name.labels_before(&Name::from_text("local").unwrap()), None);
    }

    #[test]
    fn names_that_are_too_long_are_rejected() {
        let labels = |count: usize| vec!["a"; count].join(".");
        assert!(LookupName::from_text(&labels(127)).is_some());
        assert!(LookupName::from_text(&labels(128)).is_none());
        let long = "a".repeat(64);
        for invalid in [&*long, "a..b", ".a"] {
            assert!(LookupName::from_text(invalid).is_none(), "{invalid}");
        }
        assert!(LookupName::read(b"\x03ab").is_err());
        assert!(LookupName::read(b"\xc0\x00").is_err());
        assert!(LookupName::read(b"").is_err());
    }
}
