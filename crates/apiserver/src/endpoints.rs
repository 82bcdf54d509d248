//! The endpoints: what handles a request for objects of any kind once it is authenticated and authorized, and how the
//! response is made.
//!
//! ```text
//!   server ▸ read, watch, discovery           bytes copied from the store
//!          ▸ write ▸ patching, field_managers  decoded, changed, admitted, validated, stored
//!          ▸ delete, subresource, reviews
//!                    └──────▶ response, then response_encoding
//! ```
//!
//! Upstream has these in `endpoints/handlers`. None of them imports the server, which calls them.

pub(crate) mod delegate;
pub(crate) mod delete;
pub(crate) mod discovery;
pub(crate) mod field_managers;
pub(crate) mod list_options;
pub(crate) mod metrics_api;
pub(crate) mod nodes;
pub(crate) mod patching;
pub(crate) mod read;
pub(crate) mod resource_scope;
pub(crate) mod response;
pub(crate) mod response_encoding;
pub(crate) mod reviews;
pub(crate) mod subresource;
pub(crate) mod watch;
pub(crate) mod write;
pub(crate) mod write_options;
