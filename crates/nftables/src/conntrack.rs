//! The connections that the kernel tracks (`nf_conntrack`), over the netlink sockets of netfilter.
//!
//! A UDP socket that goes on sending keeps its entry, and with it the translation of the first packet, however long ago the
//! destination ended. Such entries have to be deleted.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

use crate::message::{Attributes, Family, HEADER, write};

const NFNL_SUBSYS_CTNETLINK: u16 = 1;
const IPCTNL_MSG_CT_GET: u16 = 1;
const IPCTNL_MSG_CT_DELETE: u16 = 2;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLA_TYPE_MASK: u16 = 0x3fff;

const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_ID: u16 = 12;
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;

/// The addresses of packets of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    /// Where they come from.
    pub source: SocketAddrV4,
    /// Where they go.
    pub destination: SocketAddrV4,
}

/// A tracked connection over IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The number of its protocol.
    pub protocol: u8,
    /// What its first packet had, before any translation.
    pub original: Tuple,
    /// What its answers have, before any translation.
    pub reply: Tuple,
}

impl Connection {
    /// Whether its destination was translated: answers come from another address or port.
    pub fn is_destination_translated(&self) -> bool {
        self.original.destination != self.reply.source
    }
}

/// Deletes those connections of the network namespace of the calling thread that `is_stale` selects, and returns how many they
/// were. It reads all of them.
pub fn delete(mut is_stale: impl FnMut(&Connection) -> bool) -> io::Result<usize> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut request = Vec::new();
    write(&mut request, Family::Ip, kind(IPCTNL_MSG_CT_GET), NLM_F_DUMP, 1, &Attributes::default());
    socket.send(&request, 0)?;
    let mut stale = Vec::new();
    'dump: loop {
        let (answer, _) = socket.recv_from_full()?;
        for message in messages(&answer) {
            match message.kind {
                NLMSG_DONE => break 'dump,
                NLMSG_ERROR => return Err(error_of(message.body)),
                _ => stale.extend(Entry::parse(message.body).filter(|entry| is_stale(&entry.connection))),
            }
        }
    }
    let mut deleted = 0;
    for entry in &stale {
        let mut request = Vec::new();
        let attributes =
            Attributes::default().bytes(CTA_TUPLE_ORIG | 0x8000, &entry.original).bytes(CTA_ID, &entry.id);
        write(&mut request, Family::Ip, kind(IPCTNL_MSG_CT_DELETE), NLM_F_ACK, 2, &attributes);
        socket.send(&request, 0)?;
        let (answer, _) = socket.recv_from_full()?;
        let result = messages(&answer).find(|message| message.kind == NLMSG_ERROR);
        match result.map(|message| error_of(message.body)) {
            // It has ended since.
            Some(error) if error.kind() == io::ErrorKind::NotFound => {}
            Some(error) if error.raw_os_error() != Some(0) => return Err(error),
            _ => deleted += 1,
        }
    }
    Ok(deleted)
}

const fn kind(message: u16) -> u16 {
    (NFNL_SUBSYS_CTNETLINK << 8) | message
}

/// A connection with what it is deleted by.
#[derive(Debug)]
struct Entry {
    connection: Connection,
    /// The attributes of its original direction, which has the zone as well.
    original: Vec<u8>,
    id: Vec<u8>,
}

impl Entry {
    /// Reads the body of a message; `None` if it is of another family or protocol without ports.
    fn parse(body: &[u8]) -> Option<Self> {
        let body = body.get(4..)?;
        let original = attribute(body, CTA_TUPLE_ORIG)?;
        let (protocol, first) = tuple(original)?;
        let (_, answers) = tuple(attribute(body, CTA_TUPLE_REPLY)?)?;
        Some(Self {
            connection: Connection { protocol, original: first, reply: answers },
            original: original.to_vec(),
            id: attribute(body, CTA_ID)?.to_vec(),
        })
    }
}

fn tuple(bytes: &[u8]) -> Option<(u8, Tuple)> {
    let (addresses, protocol) = (attribute(bytes, CTA_TUPLE_IP)?, attribute(bytes, CTA_TUPLE_PROTO)?);
    let address = |kind| Some(Ipv4Addr::from(<[u8; 4]>::try_from(attribute(addresses, kind)?).ok()?));
    let port = |kind| Some(u16::from_be_bytes(attribute(protocol, kind)?.try_into().ok()?));
    let source = SocketAddrV4::new(address(CTA_IP_V4_SRC)?, port(CTA_PROTO_SRC_PORT)?);
    let destination = SocketAddrV4::new(address(CTA_IP_V4_DST)?, port(CTA_PROTO_DST_PORT)?);
    Some((*attribute(protocol, CTA_PROTO_NUM)?.first()?, Tuple { source, destination }))
}

/// The value of the first attribute of a kind.
fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    let mut rest = bytes;
    loop {
        let length = usize::from(u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?));
        let found = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?) & NLA_TYPE_MASK;
        let value = rest.get(4..length)?;
        if found == kind {
            return Some(value);
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

struct Message<'a> {
    kind: u16,
    body: &'a [u8],
}

fn messages(mut rest: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(rest.get(..4)?.try_into().ok()?);
        let length = usize::try_from(length).ok()?;
        let body = rest.get(HEADER..length)?;
        let kind = u16::from_ne_bytes(rest.get(4..6)?.try_into().ok()?);
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        Some(Message { kind, body })
    })
}

/// The error in an `NLMSG_ERROR`; number 0 is success.
fn error_of(body: &[u8]) -> io::Error {
    let code = body.get(..4).and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes);
    code.map_or_else(
        || io::Error::other("the kernel's answer cannot be decoded"),
        |code| io::Error::from_raw_os_error(code.saturating_neg()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes() -> Attributes {
        let side = |source: [u8; 4], destination: [u8; 4], ports: [u16; 2]| {
            let addresses =
                Attributes::default().bytes(CTA_IP_V4_SRC, &source).bytes(CTA_IP_V4_DST, &destination);
            let protocol = Attributes::default()
                .bytes(CTA_PROTO_NUM, &[17])
                .bytes(CTA_PROTO_SRC_PORT, &ports[0].to_be_bytes())
                .bytes(CTA_PROTO_DST_PORT, &ports[1].to_be_bytes());
            Attributes::default().nested(CTA_TUPLE_IP, &addresses).nested(CTA_TUPLE_PROTO, &protocol)
        };
        Attributes::default()
            .nested(CTA_TUPLE_ORIG, &side([10, 0, 0, 1], [10, 96, 0, 7], [4000, 53]))
            .nested(CTA_TUPLE_REPLY, &side([10, 0, 0, 2], [10, 0, 0, 1], [5353, 4000]))
            .number(CTA_ID, 9)
    }

    #[test]
    fn a_connection_is_read_whatever_comes() {
        let mut bytes = Vec::new();
        write(&mut bytes, Family::Ip, kind(IPCTNL_MSG_CT_GET), 0, 1, &attributes());
        let found: Vec<Message<'_>> = messages(&bytes).collect();
        let entry = Entry::parse(found[0].body).unwrap();
        assert_eq!(entry.connection.protocol, 17);
        assert_eq!(entry.connection.original.destination.to_string(), "10.96.0.7:53");
        assert_eq!(entry.connection.reply.source.to_string(), "10.0.0.2:5353");
        assert!(entry.connection.is_destination_translated());
        assert_eq!(entry.id, [0, 0, 0, 9]);
        for end in 0..bytes.len() {
            assert_eq!(messages(&bytes[..end]).count(), 0);
            if let Some(body) = bytes.get(HEADER..end) {
                assert!(Entry::parse(body).is_none());
            }
        }
    }
}
