//! The DNS server of a cluster, which the agent of each node runs.
//!
//! ```text
//!   API: Services, EndpointSlices ──▶ watch ──▶ zone (an index) ──┐
//!                                                                 ├──▶ server: UDP, TCP ──▶ pods
//!   resolvers of the machine ◀──▶ forward ──▶ cache ──────────────┘
//! ```
//!
//! Names of the cluster domain follow [Kubernetes' DNS specification 1.1][spec] and, where it leaves something open,
//! CoreDNS with `pods insecure`. They are answered from an index that a watch keeps up to date, and are never cached. All
//! other names are forwarded to the resolvers of the machine.
//!
//! # Why not hickory-server
//!
//! hickory-server with its resolver adds 37 crates to the dependencies, and hickory-proto alone 23, the tables of Unicode for
//! internationalized names among them, which a server that compares bytes does not need. What is left is small: one question is decoded,
//! records of seven types are written, and answers of other servers are passed on as they came, with other ids and TTLs.
//! hickory-proto would decode each of those and encode it again. The tests decode every response with another library
//! (simple-dns).
//!
//! [spec]: https://github.com/kubernetes/dns/blob/master/docs/specification.md

mod answer;
mod cache;
mod forward;
mod message;
mod metrics;
mod name;
mod server;
mod watch;
mod zone;

pub use forward::ForwardConfig;
pub use metrics::Metrics;
pub use name::{LookupName, Name};
pub use server::{Config, Server};
pub use watch::run as watch;
pub use zone::{Answer, RecordType, ServiceRecord, Zone};

#[doc(hidden)]
pub use message::fuzz;
