//! API priority and fairness (KEP-1040), apart from the server that enforces it: which priority level a request belongs to,
//! how many seats it needs, and which request of a level is dispatched next.
//!
//! ```text
//!   request ▸ FlowSchema (by matchingPrecedence) ▸ flow (user or namespace) ▸ hand of queues (shuffle sharding)
//!                    │                                                              │
//!                    ▼                                                              ▼
//!             priority level ── seats (nominal, lent, borrowed) ──▶ QueueSet: fair queuing by virtual time
//! ```
//!
//! | question | module |
//! |---|---|
//! | which schema does a request match? | [`schema`] |
//! | what does a priority level ask for? | [`level`] |
//! | which queues may a flow use? | [`shuffle`] |
//! | is a request dispatched, queued or rejected, and which one is next? | [`queue_set`] |
//! | how many seats does a request occupy? | [`work`] |
//! | how many seats does each level have now? | [`borrowing`] |
//! | after which time should a rejected client retry? | [`dropped`] |
//! | which objects does every cluster have, and how are they maintained? | [`bootstrap`] |
//!
//! Nothing here reads a clock or waits: time is a [`Duration`](std::time::Duration) since some origin, and a waiting request is a
//! ticket that its caller gets back when the request is dispatched.

pub mod bootstrap;
pub mod borrowing;
pub mod dropped;
pub mod level;
mod queue;
pub mod queue_set;
pub mod schema;
pub mod shuffle;
mod slab;
pub mod work;

/// The API group of the kinds.
pub const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// The plural of `FlowSchema`.
pub const SCHEMAS: &str = "flowschemas";
/// The plural of `PriorityLevelConfiguration`.
pub const LEVELS: &str = "prioritylevelconfigurations";
/// The name of the mandatory schema and level of requests without a limit.
pub const EXEMPT: &str = "exempt";
/// The name of the mandatory schema and level of requests that no other schema matches.
pub const CATCH_ALL: &str = "catch-all";
