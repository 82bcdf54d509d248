//! The service proxy: connections to the addresses of a Service go to one of its endpoints, as kube-proxy 1.36 decides.
//!
//! ```text
//!   Services, EndpointSlices, the Node ──▶ State ──▶ PortRules of the Services that changed      pure
//!                                                        │
//!                      Table: what the kernel has ──▶ Transaction: what differs                  pure
//!                                                        │
//!                                    KernelTable ──▶ one batch of nf_tables ──▶ the kernel
//! ```
//!
//! A change touches the rules of the Services that changed alone. The first batch replaces the table as a whole, once all is
//! known: until then the rules of a former agent go on.

mod decide;
mod endpoint;
mod health;
mod kernel;
mod kernel_table;
mod machine;
mod metrics;
mod name;
mod probe;
mod programmer;
mod proxy;
mod service;
mod state;
mod transaction;

pub use kernel_table::Pods;
pub use name::{Protocol, ServiceName, ServicePortName};
pub use probe::missing;
pub use programmer::{Programmer, RulesConfig};
pub use proxy::{Config, Services, remove};
pub use service::Network;
pub use state::Event;
