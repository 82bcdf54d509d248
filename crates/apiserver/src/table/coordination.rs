//! Who leads.

use serde_json::json;

use super::column::{AGE, Column, NAME};
use super::layout::Layout;

pub(super) const LAYOUTS: &[Layout] = &[Layout::new(
    "coordination.k8s.io",
    "Lease",
    &[NAME, Column::text("Holder", "who holds the lease"), AGE],
    |object| json!([object.name(), object.text("/spec/holderIdentity"), object.age()]),
)];
