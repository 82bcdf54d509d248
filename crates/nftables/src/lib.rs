//! The messages of `nf_tables` that a pod network needs, over netlink: no `nft` program and no C library is called.
//!
//! ```text
//!   Batch: BATCH_BEGIN ▸ NEWTABLE ▸ NEWSET ▸ NEWCHAIN ▸ NEWRULE … ▸ BATCH_END ──▶ Batch::commit, all or nothing
//! ```
//!
//! A batch is a transaction of the kernel: packets see the rules before it or those after it. Numbers in attributes are
//! big-endian, headers have the byte order of the machine. The names of the kernel are in `linux/netfilter/nf_tables.h`.

mod batch;
pub mod conntrack;
mod expression;
mod message;
mod object;
mod socket;

pub use batch::Batch;
pub use expression::{
    CONNECTION_ESTABLISHED, CONNECTION_INVALID, CONNECTION_NEW, CONNECTION_RELATED, CONNECTION_UNTRACKED,
    DESTINATION_TRANSLATED, Direction, ETHERTYPE_ARP, ETHERTYPE_IPV4, Expression, ICMP, ICMP_REDIRECT, LOCAL,
    Register, Rejection, Verdict, interface,
};
pub use message::Family;
pub use object::{
    Chain, ChainKind, Element, Hook, Interval, Map, Set, SetName, SetOptions, VerdictMap, address_and_port,
    types,
};
pub use socket::{errno, has_table, has_table_of, on_change};
