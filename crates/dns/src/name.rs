//! Names as they are in messages: labels with their lengths, up to the empty label of the root.

use std::fmt;

use crate::message::Malformed;

/// The longest name, its lengths and the root included (RFC 1035, section 2.3.4).
const MAX_NAME: usize = 255;
const MAX_LABEL: u8 = 63;
/// The most labels that fit a name.
const MAX_LABELS: usize = 127;

/// A name in lower case.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Box<[u8]>);

impl Name {
    /// Parses a name as text, with or without the dot of the root. `None` if it is no name.
    pub fn from_text(text: &str) -> Option<Self> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Some(Self(Box::new([0])));
        }
        Self::from_labels(text.split('.').map(str::as_bytes), &[0])
    }

    /// The labels, followed by a name in the form of messages.
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

/// A name that is looked up: in lower case, with the positions of its labels. It needs no allocation.
#[derive(Clone)]
pub struct LookupName {
    bytes: [u8; MAX_NAME],
    length: usize,
    starts: [u8; MAX_LABELS],
    count: usize,
}

impl LookupName {
    /// Parses a name as text. `None` if it is no name.
    pub fn from_text(text: &str) -> Option<Self> {
        Name::from_text(text).map(|name| Self::from(&name))
    }

    /// Reads the name that a message begins with. A question has no compressed name, since there is nothing before it.
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
            // Of 255 bytes the last is the root.
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

    /// How many labels it has.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Where a label starts. That of the count is where the root is.
    pub(crate) fn start(&self, label: usize) -> usize {
        if label < self.count { usize::from(self.starts[label]) } else { self.length - 1 }
    }

    /// A label, without its length.
    pub(crate) fn label(&self, label: usize) -> &[u8] {
        &self.bytes[(self.start(label) + 1).min(self.length)..self.start(label + 1)]
    }

    /// Labels with their lengths, up to another label.
    pub(crate) fn labels(&self, from: usize, to: usize) -> &[u8] {
        &self.bytes[self.start(from)..self.start(to)]
    }

    /// The rest from a label on, the root included.
    pub(crate) fn rest(&self, label: usize) -> &[u8] {
        &self.bytes[self.start(label)..self.length]
    }

    /// With how many labels it is below a domain, or 0 if it is the domain. `None` if it is neither.
    pub(crate) fn below(&self, domain: &Name) -> Option<usize> {
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
        // A `Name` is valid, so it can be read; the root stands for one that is not.
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
        assert_eq!(name.below(&Name::from_text("cluster.local.").unwrap()), Some(3));
        assert_eq!(name.below(&Name::from_text("local").unwrap()), Some(4));
        assert_eq!(name.below(&Name::from_text("").unwrap()), Some(5));
        for other in ["uster.local", "cluster", "x.web.shop.svc.cluster.local"] {
            assert_eq!(name.below(&Name::from_text(other).unwrap()), None, "{other}");
        }
        let same = Name::from_text("web.shop.svc.cluster.local").unwrap();
        assert_eq!(name.below(&same), Some(0));
        assert_eq!(same.to_string(), "web.shop.svc.cluster.local.");
    }

    #[test]
    fn labels_that_look_like_a_length_end_no_domain() {
        // The label `\x05local` is no domain `local`.
        let name = LookupName::read(b"\x06\x05local\x00").unwrap();
        assert_eq!(name.below(&Name::from_text("local").unwrap()), None);
    }

    #[test]
    fn names_that_are_too_long_are_refused() {
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
