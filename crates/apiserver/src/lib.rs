//! The Kubernetes API: discovery, REST, patches, watches, tables, resizes.
//!
//! ```text
//!   request ▸ user (authn) ▸ target ▸ kind (a row of kinds) ▸ authorization ▸ limits (in_flight)
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
//! The modules are layers: `server` imports the handlers, the handlers import the request (`call`), the request imports the
//! state of the server (`state`), that imports admission, and admission imports the state of the cluster (`cluster`): the
//! stored objects and the kinds. No module imports another one that imports it, directly or through others.

pub mod accounts;
pub mod admission;
mod aggregation;
pub mod allocation;
mod alpha;
pub mod authn;
pub mod authz;
mod body;
mod bootstrap_roles;
mod call;
pub mod cluster;
mod completion;
mod controllers;
pub mod custom;
mod delegate;
mod delete;
mod discard;
mod discovery;
mod encoders;
pub mod error;
mod events;
mod exchange;
pub mod expression;
mod go;
mod health;
mod in_flight;
mod inside;
pub mod kinds;
pub mod kubeconfig;
mod kubelet;
mod list_options;
mod managers;
mod metrics;
mod metrics_api;
mod negotiation;
mod nodes;
pub mod object;
mod openapi;
mod ordered;
mod outgoing;
mod patching;
mod pieces;
pub mod pki;
mod present;
mod read;
mod request_body;
mod reviews;
mod scope;
pub mod selector;
pub mod serve;
mod server;
mod share;
mod shutdown;
mod state;
pub mod stored;
mod subresource;
pub mod table;
pub mod target;
pub mod usage;
pub mod user;
pub mod validation;
mod version;
pub mod warnings;
mod watch;
mod webhook;
pub mod write;
mod write_options;
mod yaml;

pub use body::Body;
pub use error::ApiError;
pub use in_flight::Limits;
pub use inside::Inside;
pub use kinds::conversion::{Conversion, Pair, StoredAs};
pub use kubelet::{KubeletClient, KubeletClientError};
pub use state::{ApiServer, BuiltinKinds, Config};
pub use version::VERSION;
