//! The expressions that a rule consists of. They work on registers; one that does not match ends the rule.

use crate::message::Attributes;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is dropped.
    Drop,
    /// This chain does nothing more with it.
    Accept,
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
    /// Loads the first five bytes of the hardware address that a frame goes to.
    EthernetDestinationPrefix(Register),
    /// Loads the hardware address that the sender of an ARP packet claims.
    ArpSenderHardware(Register),
    /// Loads the IPv4 address that the sender of an ARP packet claims.
    ArpSenderAddress(Register),
    /// Loads the protocol of the transport, such as 6 for TCP.
    TransportProtocol(Register),
    /// Loads the source address.
    SourceAddress(Register),
    /// Loads the destination address.
    DestinationAddress(Register),
    /// Loads the destination port, which is in the same place for TCP, UDP and SCTP.
    DestinationPort(Register),
    /// Loads the kind of the destination address, such as [`LOCAL`], by the routes of the machine.
    DestinationKind(Register),
    /// Loads the status of the connection, such as [`DESTINATION_TRANSLATED`].
    ConnectionStatus(Register),
    /// Loads four bytes.
    Value(Register, [u8; 4]),
    /// Masks four bytes.
    Mask(Register, [u8; 4]),
    /// Goes on if a register has this value.
    Equals(Register, Vec<u8>),
    /// Goes on if it has not.
    Differs(Register, Vec<u8>),
    /// Goes on if a map has the key that is in a register, and loads its value into another.
    Lookup {
        /// The name of the map.
        map: &'static str,
        /// Holds the key.
        key: Register,
        /// Receives the value.
        value: Register,
    },
    /// Goes on if a set has the key that is in a register.
    Contained {
        /// The name of the set.
        set: &'static str,
        /// Holds the key.
        key: Register,
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
    /// Decides.
    Verdict(Verdict),
}

/// `ETH_P_IP`.
pub const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
/// `ETH_P_ARP`.
pub const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
/// `RTN_LOCAL`: an address of this machine.
pub const LOCAL: u32 = 2;
/// `IPS_DST_NAT`: the destination of the connection was translated.
pub const DESTINATION_TRANSLATED: u32 = 1 << 5;

const NFT_META_PROTOCOL: u32 = 1;
const NFT_META_IIFNAME: u32 = 6;
const NFT_META_OIFNAME: u32 = 7;
const NFT_META_L4PROTO: u32 = 16;
const NFT_PAYLOAD_LL_HEADER: u32 = 0;
const NFT_PAYLOAD_NETWORK_HEADER: u32 = 1;
const NFT_PAYLOAD_TRANSPORT_HEADER: u32 = 2;
const NFT_FIB_RESULT_ADDRTYPE: u32 = 3;
const NFTA_FIB_F_DADDR: u32 = 1 << 1;
const NFT_CT_STATUS: u32 = 2;
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
        let compare = |register: &Register, operator, value: &[u8]| {
            ("cmp", none().number(1, register.number()).number(2, operator).data(3, value))
        };
        let (name, data) = match self {
            Self::InputInterface(register) => meta(register, NFT_META_IIFNAME),
            Self::OutputInterface(register) => meta(register, NFT_META_OIFNAME),
            Self::Protocol(register) => meta(register, NFT_META_PROTOCOL),
            Self::EthernetSource(register) => payload(register, NFT_PAYLOAD_LL_HEADER, 6, 6),
            Self::EthernetDestinationPrefix(register) => payload(register, NFT_PAYLOAD_LL_HEADER, 0, 5),
            // ARP over Ethernet for IPv4: eight bytes, the two addresses of the sender, those of the target.
            Self::ArpSenderHardware(register) => payload(register, NFT_PAYLOAD_NETWORK_HEADER, 8, 6),
            Self::ArpSenderAddress(register) => payload(register, NFT_PAYLOAD_NETWORK_HEADER, 14, 4),
            Self::TransportProtocol(register) => meta(register, NFT_META_L4PROTO),
            Self::SourceAddress(register) => payload(register, NFT_PAYLOAD_NETWORK_HEADER, 12, 4),
            Self::DestinationAddress(register) => payload(register, NFT_PAYLOAD_NETWORK_HEADER, 16, 4),
            Self::DestinationPort(register) => payload(register, NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2),
            Self::DestinationKind(register) => {
                let data = none().number(1, register.number()).number(2, NFT_FIB_RESULT_ADDRTYPE);
                ("fib", data.number(3, NFTA_FIB_F_DADDR))
            }
            Self::ConnectionStatus(register) => {
                ("ct", none().number(1, register.number()).number(2, NFT_CT_STATUS))
            }
            Self::Value(register, value) => ("immediate", none().number(1, register.number()).data(2, value)),
            Self::Mask(register, mask) => {
                let data = none().number(1, register.number()).number(2, register.number()).number(3, 4);
                ("bitwise", data.data(4, mask).data(5, &[0; 4]))
            }
            Self::Equals(register, value) => compare(register, NFT_CMP_EQ, value),
            Self::Differs(register, value) => compare(register, NFT_CMP_NEQ, value),
            Self::Lookup { map, key, value } => {
                ("lookup", none().text(1, map).number(2, key.number()).number(3, value.number()))
            }
            Self::Contained { set, key } => ("lookup", none().text(1, set).number(2, key.number())),
            Self::TranslateDestination { address, port } => {
                let data = none().number(1, NFT_NAT_DNAT).number(2, NFPROTO_IPV4);
                ("nat", data.number(3, address.number()).number(5, port.number()))
            }
            Self::Masquerade => ("masq", none()),
            Self::Verdict(verdict) => {
                let code = match verdict {
                    Verdict::Drop => 0,
                    Verdict::Accept => 1,
                };
                let verdict = none().nested(NFTA_DATA_VERDICT, &none().number(1, code));
                ("immediate", none().number(1, NFT_REG_VERDICT).nested(2, &verdict))
            }
        };
        Attributes::default().text(1, name).nested(2, &data)
    }
}

/// The name of an interface, as the kernel compares it.
pub fn interface(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(IFNAMSIZ, 0);
    bytes
}
