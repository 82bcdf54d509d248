//! The messages of `nf_tables` that a pod network needs, over netlink: no `nft` program and no C library is called.
//!
//! ```text
//!   Batch: BATCH_BEGIN ▸ NEWTABLE ▸ NEWSET ▸ NEWCHAIN ▸ NEWRULE … ▸ BATCH_END ──▶ Batch::commit, all or nothing
//! ```
//!
//! A batch is a transaction of the kernel: packets see the rules before it or those after it. Numbers in attributes are
//! big-endian, headers have the byte order of the machine. The names of the kernel are in `linux/netfilter/nf_tables.h`.

mod expression;
mod message;
mod socket;

pub use expression::{
    DESTINATION_TRANSLATED, ETHERTYPE_ARP, ETHERTYPE_IPV4, Expression, LOCAL, Register, Verdict, interface,
};
pub use message::{Batch, Chain, ChainKind, Element, Family, Hook, Map, Set, address_and_port, types};
pub use socket::{errno, has_table, has_table_of, on_change};
