//! Custom resources: how they are decoded, stored and served.
//!
//! ```text
//!   definition written ──▶ reconcile: names accepted, rows made ──▶ kinds (the next request sees them)
//!                                                                     │
//!   object ──▶ decode ▸ prune ▸ default ▸ validate ─▶ stored in the storage version
//!   stored bytes ──▶ copied, if they are of the requested version and were written under its schema;
//!                    else decoded, pruned and defaulted again
//! ```

mod controller;
mod conversion;
mod definitions;
mod reconcile;
mod scale;
mod show;
mod table;

pub(crate) use controller::{reconcile_now, run};
pub(crate) use conversion::{
    REVIEW_BYTES, all_in_version, between_versions, dry_run, has_converter, in_storage_version, in_version,
    is_stored_as,
};
pub use definitions::{Definitions, accept_names};
pub use definitions::{prepare, release};
pub(crate) use scale::{scale_of, set_replicas};
pub(crate) use show::{Presenter, presented, presented_value};
pub(crate) use table::table;

/// The finalizer of a definition, until its objects are deleted.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
