//! The rules of an in-place pod resize.
//!
//! Every component of Plumb (API server, scheduler, node agent, updater, rollout, command line) has to decide the same
//! about a resize, so the decisions are here, once. There is no I/O in this
//! crate, no async, no clock and no client: state in, decision out.
//!
//! ```text
//!                 desired            allocated             actuated            actual
//!               (the spec)      (admitted by the node)  (last written)    (read back)
//!                    │                  ▲                     ▲                  │
//!   validate ──▶ defaulting             │                     │                  ▼
//!                    └──▶ admission ────┘──────▶ plan ────────┘        status::project ──▶ status::read
//!                            ▲   ledger                                          ▲
//!                          queue                                            cgroup (back)
//! ```
//!
//! | question | module |
//! |---|---|
//! | what is `1.5Gi`, exactly? | [`quantity`], [`list`] |
//! | which resources has a pod, and which QoS class? | [`pod`], [`qos`], [`aggregate`] |
//! | which resources is it accounted for during a resize? | [`accounting`] |
//! | is a resize announced that a restart should wait for? | [`announced`] |
//! | which defaults does the API server set? | [`defaulting`], [`alpha`] |
//! | is the change valid? | [`validate`], with [field errors](plumb_validation::field); [`limit_range`], [`quota`] |
//! | does the node admit it? | [`admission`], and in which order: [`queue`] |
//! | which pods make it fit, as few as possible? | [`fewest`] |
//! | in which steps? | [`plan`], and for memory: [`memory`] |
//! | may a node raise a limit itself, and by how much? | [`growth`] |
//! | how do resources and cgroup values convert? | [`cgroup`], [`oom`] |
//! | what is its status? | [`status`] |
//! | which rules apply? | [`rules`], with [`features`] |
//!
//! The protocol these make together is checked exhaustively for small bounds by a model in the crate's
//! tests, whose transitions call the functions above.

pub mod accounting;
pub mod admission;
pub mod aggregate;
pub mod alpha;
pub mod announced;
pub mod cgroup;
pub mod defaulting;
pub mod features;
pub mod fewest;
pub mod growth;
pub mod limit_range;
pub mod list;
pub mod memory;
pub mod oom;
pub mod plan;
pub mod pod;
pub mod qos;
pub mod quantity;
pub mod queue;
pub mod quota;
pub mod resource;
pub mod rules;
pub mod status;
pub mod validate;

pub use quantity::{Format, Quantity, QuantityError};
