//! The built-in kinds of the Kubernetes API, for the API server, which knows no kind.
//!
//! ```text
//!   plumb-apiserver   socket ▸ request ▸ handler ▸ patch ▸ admission ▸ store: the same for every kind
//!        ▲                    calls what it was made with: BuiltinKinds
//!        │
//!   plumb-kinds       registry    what is special about each kind: a Strategy, one file per kind
//!                     defaults    the defaults of fields, by type
//!                     admission   the plugins that decide by kind
//! ```
//!
//! [`api_server`] makes an API server with these kinds.

mod admission;
pub mod defaults;
pub mod registry;
mod server;
mod system_objects;
mod validation;
mod warnings;

pub use admission::{AdmissionConfiguration, AdmissionConfigurationError, admission_plugins};
pub use server::{Features, api_server, configured_api_server};
