//! The three kinds of patch, on JSON values.
//!
//! | content type | function |
//! |---|---|
//! | `application/merge-patch+json` | [`merge`] |
//! | `application/json-patch+json` | [`json::apply`] |
//! | `application/strategic-merge-patch+json` | [`strategic::apply`] |
//!
//! All three follow upstream where it differs from the RFC, and have upstream's error messages. That is why they are not those
//! of the crate `json-patch`, which follows the RFC and knows no strategic merge patch.
//!
//! ```
//! use plumb_apischema::{Schema, patch::strategic};
//! use serde_json::json;
//!
//! let schema = Schema::builtin();
//! let pod = schema.kind("", "v1", "Pod").ok_or("no pods")?;
//! let live = json!({"spec": {"containers": [
//!     {"name": "a", "image": "x", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}},
//!     {"name": "b", "image": "y"}]}});
//! let patch = json!({"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "2"}}}]}});
//!
//! let patched = strategic::apply(schema, pod, live, patch).map_err(|_| "refused")?;
//! assert_eq!(patched["spec"]["containers"][0], json!(
//!     {"name": "a", "image": "x", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}));
//! assert_eq!(patched["spec"]["containers"][1]["name"], "b");
//! # Ok::<(), &str>(())
//! ```

pub(crate) mod go_format;
pub mod json;
mod merging;
pub mod strategic;

pub use merging::merge;
