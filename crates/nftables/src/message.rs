//! Netlink messages with their attributes.

pub(crate) const NFNL_SUBSYS_NFTABLES: u16 = 10;
const GETTABLE: u16 = 1;

const NLM_F_REQUEST: u16 = 0x1;
const NLA_F_NESTED: u16 = 0x8000;

const NFPROTO_UNSPEC: u8 = 0;
const NFTA_LIST_ELEM: u16 = 1;
const NFTA_DATA_VALUE: u16 = 1;

/// The length of a netlink message header.
pub(crate) const HEADER: usize = 16;

/// Attributes of a message, or of an attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    pub(crate) fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        // The kernel's attributes of this module are far below 64 KiB; a longer one would be refused by it.
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(crate) fn number(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    pub(crate) fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes)
    }

    pub(crate) fn nested(self, kind: u16, inner: &Self) -> Self {
        self.bytes(kind | NLA_F_NESTED, &inner.0)
    }

    pub(crate) fn long(self, kind: u16, value: u64) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    /// How many bytes they fill.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// `NFTA_DATA_VALUE` in an attribute.
    pub(crate) fn data(self, kind: u16, value: &[u8]) -> Self {
        self.nested(kind, &Self::default().bytes(NFTA_DATA_VALUE, value))
    }

    pub(crate) fn list(self, kind: u16, elements: impl IntoIterator<Item = Self>) -> Self {
        let inner =
            elements.into_iter().fold(Self::default(), |list, element| list.nested(NFTA_LIST_ELEM, &element));
        self.nested(kind, &inner)
    }
}

/// The family of a table: which packets its chains see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4 and IPv6 packets.
    Inet = 1,
    /// IPv4 packets.
    Ip = 2,
    /// Whatever an interface receives, before the bridge or a protocol of the machine has it.
    Netdev = 5,
    /// Frames of bridges.
    Bridge = 7,
}

/// A request for a table.
pub(crate) fn table_request(family: Family, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let kind = (NFNL_SUBSYS_NFTABLES << 8) | GETTABLE;
    write(&mut bytes, family, kind, 0, 0, &Attributes::default().text(1, name));
    bytes
}

/// Appends a message; returns where its flags are.
pub(crate) fn write(
    bytes: &mut Vec<u8>,
    family: Family,
    kind: u16,
    flags: u16,
    sequence: u32,
    attributes: &Attributes,
) -> usize {
    // `struct nfgenmsg`: family, version, and for the limits of a batch the subsystem.
    let is_limit = kind >> 8 == 0;
    let (family, resource) =
        if is_limit { (NFPROTO_UNSPEC, NFNL_SUBSYS_NFTABLES) } else { (family as u8, 0) };
    let length = u32::try_from(HEADER + 4 + attributes.0.len()).unwrap_or(u32::MAX);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    let at = bytes.len();
    bytes.extend((NLM_F_REQUEST | flags).to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([family, 0]);
    bytes.extend(resource.to_be_bytes());
    bytes.extend(&attributes.0);
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_to_four_bytes_and_their_length_is_without_the_padding() {
        let attributes = Attributes::default().text(3, "nat").bytes(9, &[7]).number(2, 1);
        let expected = [&[8, 0, 3, 0][..], b"nat\0", &[5, 0, 9, 0, 7, 0, 0, 0], &[8, 0, 2, 0, 0, 0, 0, 1]];
        if cfg!(target_endian = "little") {
            assert_eq!(attributes.0, expected.concat());
        }
        assert_eq!(attributes.0.len(), 24);
    }
}
