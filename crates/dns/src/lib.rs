//! The DNS server of a cluster, which the agent of each node runs.
//!
//! ```text
//!   API: Services, EndpointSlices ──▶ watch ──▶ zone (an index) ──┐
//!                                                                 ├──▶ server: UDP, TCP ──▶ pods
//!   resolvers of the machine ◀──▶ forward ──▶ cache ──────────────┘
//! ```
//!
//! Names of the cluster domain follow the [DNS specification 1.1 of Kubernetes][spec] and, where it leaves something open,
//! CoreDNS with `pods insecure`. The server answers them from an index that watches keep up to date, and never caches them. It
//! forwards all other names to the resolvers of the machine.
//!
//! # Why not hickory-server
//!
//! hickory-server with its resolver adds 37 crates to the dependencies, and hickory-proto alone 23, among them Unicode tables for
//! internationalized names, which a server that compares bytes does not need. The remaining work is small: the server decodes
//! one question, writes records of seven types, and passes on the responses of other servers with other ids and TTLs, which
//! hickory-proto would decode and encode again. The tests decode every response with another library (simple-dns).
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
