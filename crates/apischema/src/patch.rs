//! The three kinds of patch, on JSON values.
//!
//! | content type | function |
//! |---|---|
//! | `application/merge-patch+json` | [`merge`] |
//! | `application/json-patch+json` | [`json::apply`] |
//! | `application/strategic-merge-patch+json` | [`strategic::apply`] |
//!
//! All three follow upstream where it and the RFC part, and refuse in upstream's words.
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

pub mod json;
mod merging;
pub(crate) mod said;
pub mod strategic;

pub use merging::merge;
