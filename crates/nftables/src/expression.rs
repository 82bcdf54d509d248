//! The expressions that a rule consists of. They work on registers; one that does not match ends the rule.

use std::borrow::Cow;
use std::time::Duration;

use crate::message::Attributes;
use crate::object::SetName;

/// One of the sixteen registers of four bytes. A longer value fills those that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register(pub u8);

impl Register {
    /// `NFT_REG32_00` and so on.
    fn number(self) -> u32 {
        8 + u32::from(self.0)
    }
}

/// The verdict on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is dropped.
    Drop,
    /// This chain does nothing more with it.
    Accept,
    /// The rules of another chain are next, then those after this one.
    Jump(Cow<'static, str>),
    /// The rules of another chain are next, then those after the last jump.
    Goto(Cow<'static, str>),
    /// The rules after the last jump are next; in a base chain the packet is accepted.
    Return,
}

impl Verdict {
    /// `NFTA_DATA_VERDICT`.
    pub(crate) fn attributes(&self) -> Attributes {
        let chain =
            |code: i32, chain: &str| Attributes::default().number(1, code.cast_unsigned()).text(2, chain);
        let verdict = match self {
            Self::Drop => Attributes::default().number(1, 0),
            Self::Accept => Attributes::default().number(1, 1),
            Self::Jump(name) => chain(NFT_JUMP, name),
            Self::Goto(name) => chain(NFT_GOTO, name),
            Self::Return => Attributes::default().number(1, NFT_RETURN.cast_unsigned()),
        };
        Attributes::default().nested(NFTA_DATA_VERDICT, &verdict)
    }
}

/// How the sender of a packet is notified that it was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// ICMP: the port is unreachable.
    PortUnreachable,
    /// The TCP connection is reset; for rules that match TCP alone.
    TcpReset,
}

/// Which direction of a connection an expression is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// That of its first packet.
    Original = 0,
    /// That of the answers.
    Reply = 1,
}

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// Loads the name of the interface that the packet came in by.
    InputInterface(Register),
    /// Loads the name of the interface that the packet leaves by.
    OutputInterface(Register),
    /// Loads the protocol of the packet in a frame, such as [`ETHERTYPE_IPV4`].
    Protocol(Register),
    /// Loads the hardware address that a frame comes from.
    EthernetSource(Register),
    /// Loads the hardware address that a frame goes to.
    EthernetDestination(Register),
    /// Loads the first five bytes of the hardware address that a frame goes to.
    EthernetDestinationPrefix(Register),
    /// Loads the hardware address that the sender of an ARP packet claims.
    ArpSenderHardware(Register),
    /// Loads the IPv4 address that the sender of an ARP packet claims.
    ArpSenderAddress(Register),
    /// Loads the IPv4 address that an ARP packet asks for.
    ArpTargetAddress(Register),
    /// Loads the protocol of the transport, such as 6 for TCP.
    TransportProtocol(Register),
    /// Loads the source address.
    SourceAddress(Register),
    /// Loads the destination address.
    DestinationAddress(Register),
    /// Loads the destination port, which is in the same place for TCP, UDP and SCTP.
    DestinationPort(Register),
    /// Loads the type of an ICMP packet, such as [`ICMP_REDIRECT`].
    IcmpType(Register),
    /// Loads the kind of the destination address, such as [`LOCAL`], by the routes of the machine.
    DestinationKind(Register),
    /// Loads the source port, which is in the same place for TCP, UDP and SCTP.
    SourcePort(Register),
    /// Loads the family of the packet: 2 for IPv4, 10 for IPv6.
    NetworkFamily(Register),
    /// Loads the mark of the packet, in the byte order of the machine.
    PacketMark(Register),
    /// Sets the mark of the packet.
    SetPacketMark(Register),
    /// Loads the state of the connection, such as [`CONNECTION_NEW`], in the byte order of the machine.
    ConnectionState(Register),
    /// Loads the status of the connection, such as [`DESTINATION_TRANSLATED`].
    ConnectionStatus(Register),
    /// Loads the direction of the packet in its connection: one byte, a [`Direction`].
    ConnectionDirection(Register),
    /// Loads the mark of the connection, in the byte order of the machine.
    ConnectionMark(Register),
    /// Sets the mark of the connection.
    SetConnectionMark(Register),
    /// Loads the IPv4 source address of the connection, before translations in the original direction.
    ConnectionSource(Register, Direction),
    /// Loads the IPv4 destination address of the connection, before translations in the original direction.
    ConnectionDestination(Register, Direction),
    /// Loads the destination port of the connection.
    ConnectionDestinationPort(Register, Direction),
    /// Loads the source port of the connection.
    ConnectionSourcePort(Register, Direction),
    /// Loads the protocol of the connection, which for an ICMP error is that of the connection that it is about.
    ConnectionProtocol(Register),
    /// Loads four bytes.
    Value(Register, [u8; 4]),
    /// Masks four bytes.
    Mask(Register, [u8; 4]),
    /// Masks four bytes, then changes those bits that are set in the second value.
    MaskAndXor(Register, [u8; 4], [u8; 4]),
    /// Loads a random number below a modulus, in the byte order of the machine.
    Random {
        /// Receives the number.
        register: Register,
        /// One more than the largest number.
        modulus: u32,
    },
    /// Loads a hash below a modulus, in the byte order of the machine.
    Hash {
        /// The first register of what is hashed.
        source: Register,
        /// Its length in bytes.
        length: u32,
        /// Receives the hash.
        register: Register,
        /// One more than the largest hash.
        modulus: u32,
        /// Another seed gives other hashes.
        seed: u32,
    },
    /// Goes on if a register has this value.
    Equals(Register, Vec<u8>),
    /// Goes on if it has not.
    Differs(Register, Vec<u8>),
    /// Goes on if the value of a register is at least the first one and at most the second.
    InRange(Register, Vec<u8>, Vec<u8>),
    /// Goes on if a map has the key that is in a register, and loads its value into another.
    Lookup {
        /// The map.
        map: SetName,
        /// Holds the key.
        key: Register,
        /// Receives the value.
        value: Register,
    },
    /// Decides as a verdict map says, if it has the key that is in a register.
    LookupVerdict {
        /// The map.
        map: SetName,
        /// Holds the key.
        key: Register,
    },
    /// Goes on if a set has the key that is in a register.
    Contained {
        /// The set.
        set: SetName,
        /// Holds the key.
        key: Register,
    },
    /// Goes on if a set does not have the key that is in a register.
    NotContained {
        /// The set.
        set: SetName,
        /// Holds the key.
        key: Register,
    },
    /// Adds an element to a dynamic set or map, or restarts the timeout of the one with this key. The value of a key that a map
    /// has is replaced only once it has timed out.
    Update {
        /// The set or map.
        set: SetName,
        /// Holds the key.
        key: Register,
        /// Holds the value, for a map.
        value: Option<Register>,
        /// How long the element stays, if not as long as the set says.
        timeout: Option<Duration>,
    },
    /// Deletes an element of a dynamic set or map, if it has it.
    Remove {
        /// The set or map.
        set: SetName,
        /// Holds the key.
        key: Register,
        /// Any register, for a map: the kernel requires one of the length of a value.
        value: Option<Register>,
    },
    /// Sends the connection to the address in one register and the port in another.
    TranslateDestination {
        /// Holds the new address.
        address: Register,
        /// Holds the new port.
        port: Register,
    },
    /// Sends the connection from the address of the interface that it leaves by.
    Masquerade,
    /// Has the packet belong to no connection; in a chain before connections are tracked.
    NoTrack,
    /// Drops the packet and notifies its sender.
    Reject(Rejection),
    /// Decides.
    Verdict(Verdict),
}

/// `ETH_P_IP`.
pub const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
/// `ETH_P_ARP`.
pub const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
/// `IPPROTO_ICMP`.
pub const ICMP: u8 = 1;
/// `ICMP_REDIRECT`: a router tells a host of a shorter way.
pub const ICMP_REDIRECT: u8 = 5;
/// `RTN_LOCAL`: an address of this machine.
pub const LOCAL: u32 = 2;
/// `NF_CT_STATE_INVALID_BIT`: the packet belongs to no connection.
pub const CONNECTION_INVALID: u32 = 1;
/// `NF_CT_STATE_UNTRACKED_BIT`: a rule has said that the packet is not to belong to a connection.
pub const CONNECTION_UNTRACKED: u32 = 1 << 6;
/// `NF_CT_STATE_BIT(IP_CT_ESTABLISHED)`: the connection has had packets in both directions.
pub const CONNECTION_ESTABLISHED: u32 = 1 << 1;
/// `NF_CT_STATE_BIT(IP_CT_RELATED)`: the packet belongs to another connection, such as an ICMP error about it.
pub const CONNECTION_RELATED: u32 = 1 << 2;
/// `NF_CT_STATE_BIT(IP_CT_NEW)`: the packet begins a connection.
pub const CONNECTION_NEW: u32 = 1 << 3;
/// `IPS_DST_NAT`: the destination of the connection was translated.
pub const DESTINATION_TRANSLATED: u32 = 1 << 5;

const NFT_META_PROTOCOL: u32 = 1;
const NFT_META_MARK: u32 = 3;
const NFT_META_IIFNAME: u32 = 6;
const NFT_META_OIFNAME: u32 = 7;
const NFT_META_NFPROTO: u32 = 15;
const NFT_META_L4PROTO: u32 = 16;
const NFT_PAYLOAD_LL_HEADER: u32 = 0;
const NFT_PAYLOAD_NETWORK_HEADER: u32 = 1;
const NFT_PAYLOAD_TRANSPORT_HEADER: u32 = 2;
const NFT_FIB_RESULT_ADDRTYPE: u32 = 3;
const NFTA_FIB_F_DADDR: u32 = 1 << 1;
const NFT_CT_STATE: u32 = 0;
const NFT_CT_DIRECTION: u32 = 1;
const NFT_CT_STATUS: u32 = 2;
const NFT_CT_MARK: u32 = 3;
const NFT_CT_PROTOCOL: u32 = 10;
const NFT_CT_PROTO_SRC: u32 = 11;
const NFT_CT_PROTO_DST: u32 = 12;
const NFT_CT_SRC_IP: u32 = 19;
const NFT_CT_DST_IP: u32 = 20;
const NFT_RANGE_EQ: u32 = 0;
const NFT_LOOKUP_F_INV: u32 = 1;
const NFT_NG_RANDOM: u32 = 1;
const NFT_HASH_JENKINS: u32 = 0;
const NFT_DYNSET_OP_UPDATE: u32 = 1;
const NFT_DYNSET_OP_DELETE: u32 = 2;
const NFT_REJECT_ICMP_UNREACH: u32 = 0;
const NFT_REJECT_TCP_RST: u32 = 1;
const ICMP_PORT_UNREACH: u8 = 3;
const NFT_JUMP: i32 = -3;
const NFT_GOTO: i32 = -4;
const NFT_RETURN: i32 = -5;
const NFT_CMP_EQ: u32 = 0;
const NFT_CMP_NEQ: u32 = 1;
const NFT_NAT_DNAT: u32 = 1;
const NFPROTO_IPV4: u32 = 2;
const NFT_REG_VERDICT: u32 = 0;
const NFTA_DATA_VERDICT: u16 = 2;
const IFNAMSIZ: usize = 16;

impl Expression {
    /// Goes on if the interface in a register has this name.
    pub fn is_interface(register: Register, name: &str) -> Self {
        Self::Equals(register, interface(name))
    }

    /// Goes on if it has another one.
    pub fn is_other_interface(register: Register, name: &str) -> Self {
        Self::Differs(register, interface(name))
    }

    /// `NFTA_EXPR_NAME` and `NFTA_EXPR_DATA`.
    pub(crate) fn attributes(&self) -> Attributes {
        let none = Attributes::default;
        let meta = |register: &Register, key| ("meta", none().number(1, register.number()).number(2, key));
        let payload = |register: &Register, base, offset, length| {
            let data = none().number(1, register.number()).number(2, base);
            ("payload", data.number(3, offset).number(4, length))
        };
        let connection =
            |register: &Register, key| ("ct", none().number(1, register.number()).number(2, key));
        let directed = |register: &Register, key, direction: Direction| {
            let data = none().number(1, register.number()).number(2, key);
            ("ct", data.bytes(3, &[direction as u8]))
        };
        let lookup = |set: &SetName| {
            let data = none().text(1, &set.name);
            set.number.map_or(data.clone(), |number| data.number(4, number))
        };
        let compare = |register: &Register, operator, value: &[u8]| {
            ("cmp", none().number(1, register.number()).number(2, operator).data(3, value))
        };
        let bitwise = |register: &Register, mask: &[u8], xor: &[u8]| {
            let data = none().number(1, register.number()).number(2, register.number()).number(3, 4);
            ("bitwise", data.data(4, mask).data(5, xor))
        };
        let (name, data) = match self {
            Self::InputInterface(register) => meta(register, NFT_META_IIFNAME),
            Self::OutputInterface(register) => meta(register, NFT_META_OIFNAME),
            Self::Protocol(register) => meta(register, NFT_META_PROTOCOL),
            Self::EthernetSource(register) => payload(register, NFT_PAYLOAD_LL_HEADER, 6, 6),
            Self::EthernetDestination(register) => payload(register, NFT_PAYLOAD_LL_HEADER, 0, 6),
            Self::EthernetDestinationPrefix(register) => payload(register, NFT_PAYLOAD_LL_HEADER, 0, 5),
            // ARP over Ethernet for IPv4: eight bytes, the two addresses of the sender, those of the target.
            Self::ArpSenderHardware(register) => payload(register, NFT_PAYLOAD_NETWORK_HEADER, 8, 6),
            Self::ArpSenderAddress(register) => payload(register, NFT_PAYLOAD_NETWORK_HEADER, 14, 4),
            Self::ArpTargetAddress(register) => payload(register, NFT_PAYLOAD_NETWORK_HEADER, 24, 4),
            Self::TransportProtocol(register) => meta(register, NFT_META_L4PROTO),
            Self::SourceAddress(register) => payload(register, NFT_PAYLOAD_NETWORK_HEADER, 12, 4),
            Self::DestinationAddress(register) => payload(register, NFT_PAYLOAD_NETWORK_HEADER, 16, 4),
            Self::DestinationPort(register) => payload(register, NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2),
            Self::IcmpType(register) => payload(register, NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1),
            Self::DestinationKind(register) => {
                let data = none().number(1, register.number()).number(2, NFT_FIB_RESULT_ADDRTYPE);
                ("fib", data.number(3, NFTA_FIB_F_DADDR))
            }
            Self::SourcePort(register) => payload(register, NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2),
            Self::NetworkFamily(register) => meta(register, NFT_META_NFPROTO),
            Self::PacketMark(register) => meta(register, NFT_META_MARK),
            Self::SetPacketMark(register) => {
                ("meta", none().number(2, NFT_META_MARK).number(3, register.number()))
            }
            Self::ConnectionState(register) => connection(register, NFT_CT_STATE),
            Self::ConnectionStatus(register) => connection(register, NFT_CT_STATUS),
            Self::ConnectionDirection(register) => connection(register, NFT_CT_DIRECTION),
            Self::ConnectionMark(register) => connection(register, NFT_CT_MARK),
            Self::SetConnectionMark(register) => {
                ("ct", none().number(2, NFT_CT_MARK).number(4, register.number()))
            }
            Self::ConnectionSource(register, direction) => directed(register, NFT_CT_SRC_IP, *direction),
            Self::ConnectionDestination(register, direction) => directed(register, NFT_CT_DST_IP, *direction),
            Self::ConnectionDestinationPort(register, direction) => {
                directed(register, NFT_CT_PROTO_DST, *direction)
            }
            Self::ConnectionSourcePort(register, direction) => {
                directed(register, NFT_CT_PROTO_SRC, *direction)
            }
            Self::ConnectionProtocol(register) => connection(register, NFT_CT_PROTOCOL),
            Self::Value(register, value) => ("immediate", none().number(1, register.number()).data(2, value)),
            Self::Mask(register, mask) => bitwise(register, mask, &[0; 4]),
            Self::MaskAndXor(register, mask, xor) => bitwise(register, mask, xor),
            Self::Random { register, modulus } => {
                ("numgen", none().number(1, register.number()).number(2, *modulus).number(3, NFT_NG_RANDOM))
            }
            Self::Hash { source, length, register, modulus, seed } => {
                let data = none().number(1, source.number()).number(2, register.number()).number(3, *length);
                ("hash", data.number(4, *modulus).number(5, *seed).number(7, NFT_HASH_JENKINS))
            }
            Self::Equals(register, value) => compare(register, NFT_CMP_EQ, value),
            Self::Differs(register, value) => compare(register, NFT_CMP_NEQ, value),
            Self::InRange(register, first, last) => {
                let data = none().number(1, register.number()).number(2, NFT_RANGE_EQ);
                ("range", data.data(3, first).data(4, last))
            }
            Self::Lookup { map, key, value } => {
                ("lookup", lookup(map).number(2, key.number()).number(3, value.number()))
            }
            Self::LookupVerdict { map, key } => {
                ("lookup", lookup(map).number(2, key.number()).number(3, NFT_REG_VERDICT))
            }
            Self::Contained { set, key } => ("lookup", lookup(set).number(2, key.number())),
            Self::NotContained { set, key } => {
                ("lookup", lookup(set).number(2, key.number()).number(5, NFT_LOOKUP_F_INV))
            }
            Self::Update { set, key, value, timeout } => {
                let mut data = dynset(set, NFT_DYNSET_OP_UPDATE, *key, *value);
                if let Some(timeout) = timeout {
                    data = data.long(6, u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
                }
                ("dynset", data)
            }
            Self::Remove { set, key, value } => ("dynset", dynset(set, NFT_DYNSET_OP_DELETE, *key, *value)),
            Self::TranslateDestination { address, port } => {
                let data = none().number(1, NFT_NAT_DNAT).number(2, NFPROTO_IPV4);
                ("nat", data.number(3, address.number()).number(5, port.number()))
            }
            Self::Masquerade => ("masq", none()),
            Self::NoTrack => ("notrack", none()),
            Self::Reject(Rejection::PortUnreachable) => {
                let data = none().number(1, NFT_REJECT_ICMP_UNREACH);
                ("reject", data.bytes(2, &[ICMP_PORT_UNREACH]))
            }
            Self::Reject(Rejection::TcpReset) => ("reject", none().number(1, NFT_REJECT_TCP_RST)),
            Self::Verdict(verdict) => {
                ("immediate", none().number(1, NFT_REG_VERDICT).nested(2, &verdict.attributes()))
            }
        };
        Attributes::default().text(1, name).nested(2, &data)
    }
}

fn dynset(set: &SetName, operation: u32, key: Register, value: Option<Register>) -> Attributes {
    let mut data = Attributes::default().text(1, &set.name).number(3, operation).number(4, key.number());
    if let Some(number) = set.number {
        data = data.number(2, number);
    }
    value.map_or(data.clone(), |value| data.number(5, value.number()))
}

/// The name of an interface, as the kernel compares it.
pub fn interface(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(IFNAMSIZ, 0);
    bytes
}
