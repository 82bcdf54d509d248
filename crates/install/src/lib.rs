//! Plumb's controllers on a real Kubernetes: the objects that `plumb install` prints or applies, and `plumb uninstall`
//! removes.
//!
//! ```text
//!   Options ──▶ manifests: Vec<DynamicObject> ─┬─▶ yaml      plumb install | kubectl apply -f -
//!                                              ├─▶ apply     plumb install --apply
//!                                              ├─▶ uninstall plumb uninstall
//!                                              └─▶ chart     deploy/helm/plumb
//! ```
//!
//! [`manifests`] is pure, and the only description of an installation. The rules of the roles come from [`plumb_roles`], the
//! definitions of custom resources from the Rust types.

pub mod apply;
pub mod chart;
mod component;
mod manifests;
pub mod uninstall;
pub mod upstream;

pub use component::{ChosenTwice, Component, UnknownComponent, check_parts};
pub use manifests::{LABELS, Options, PART_OF, crds, manifests};

use kube::core::DynamicObject;

/// The objects as a stream of YAML documents.
///
/// # Errors
/// If an object has a value that YAML lacks; none of [`manifests`] has.
pub fn yaml(objects: &[DynamicObject]) -> Result<String, serde_saphyr::SerializeError> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&document(object)?);
    }
    Ok(text)
}

/// One object as a YAML document.
fn document(object: &impl serde::Serialize) -> Result<String, serde_saphyr::SerializeError> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: true, folded_wrap_chars: 1 << 20 };
    serde_saphyr::to_string_with_options(object, options)
}
