//! The Kubernetes API: discovery, REST, patches, watches, tables, resizes.
//!
//! ```text
//!   request ▸ who asks ▸ what about (target) ▸ kind (a row of kinds)
//!                │
//!                ├─ read, watch ──────────────────────────────▶ bytes copied from the store
//!                └─ write, delete ▸ decode ▸ patch ▸ prepare ▸ validate ▸ store (again if someone came between)
//! ```
//!
//! A kind is a row of a table ([`kinds`]); what is special about it is in its strategy. Objects are held as
//! encoded bytes, which reads and watches copy; only a write decodes them, and only the rules of a resize,
//! which are `plumb-resize`'s, see them as types.

pub mod authn;
pub mod defaults;
pub mod kubeconfig;
pub mod pki;
pub mod serve;
pub mod validation;
