//! The Kubernetes API: discovery, REST, patches, watches, tables, resizes.
//!
//! ```text
//!   request ▸ user (authn) ▸ url ▸ kind (a row of kinds) ▸ authorization ▸ limits (in_flight)
//!                │
//!                ├─ read, watch ──────────▶ bytes copied from the store
//!                └─ write, delete ▸ decode ▸ patch ▸ admission, prepare, validate ▸ store (again after a conflict)
//! ```
//!
//! A kind is a row of a table ([`kinds`]); what is special about it is in its strategy. This crate has no strategies: the server is
//! made with them, as [`BuiltinKinds`], and `plumb-kinds` has those of Kubernetes.
//! Objects are stored as encoded bytes, which reads and watches copy. Only a write decodes them, and only the rules of a
//! resize, which are `plumb-resize`'s, decode them to types.
//!
//! The modules are layers: `server` imports the handlers (`endpoints`), the handlers import the request (`request`), that imports
//! the state of the server (`state`), that imports admission, and admission imports the state of the cluster (`cluster`): the
//! stored objects and the kinds. No module imports another one that imports it, directly or through others.

pub mod accounts;
pub mod admission;
mod aggregation;
pub mod allocation;
mod alpha;
mod audit;
pub mod authn;
pub mod authz;
mod bootstrap_roles;
pub mod cluster;
mod codec;
mod completion;
mod controllers;
pub mod custom;
mod discard;
mod encoders;
mod endpoints;
pub mod error;
mod events;
pub mod expression;
mod fair_share;
mod fragments;
mod go;
mod health;
mod in_flight;
mod in_process;
pub mod kinds;
pub mod kubeconfig;
mod kubelet;
mod metrics;
mod negotiation;
pub mod object;
mod openapi;
mod ordered;
pub mod pki;
mod request;
mod request_body;
mod response_body;
pub mod selector;
pub mod serve;
mod server;
mod shutdown;
mod state;
pub mod stored;
pub mod table;
pub mod url;
pub mod usage;
pub mod user;
pub mod validation;
mod version;
pub mod warnings;
mod watch_lines;
mod webhook;
mod yaml;

pub use aggregation::local_condition;
pub use error::ApiError;
pub use in_flight::Limits;
pub use in_process::InProcessService;
pub use kinds::conversion::{Conversion, Pair, StoredAs};
pub use kubelet::{KubeletClient, KubeletClientError};
pub use response_body::Body;
pub use state::{ApiServer, BuiltinKinds, Config};
pub use version::VERSION;
