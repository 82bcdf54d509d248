//! The descriptions of types and fields in `data/descriptions.tsv`, for `kubectl explain`.
//!
//! A row describes a type (`Pod`), a field of a type (`PodSpec.containers`), a field of all types with metadata
//! (`Object.status`), a field of all conditions (`*Condition.reason`), or a field of every type (`*.fsType`).

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::schema::{Field, Struct};

/// The descriptions by the first column.
static DESCRIPTIONS: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let rows = include_str!("../../data/descriptions.tsv").lines().skip(1);
    rows.filter_map(|row| row.split_once('\t')).collect()
});

/// The description of a type.
pub(super) fn of_type(of: &Struct) -> Option<&'static str> {
    DESCRIPTIONS.get(of.name).copied()
}

/// The description of a field of a type.
pub(super) fn of_field(owner: &Struct, field: &Field) -> Option<&'static str> {
    // A field of an embedded struct is described where it is declared.
    let declaring = field.through.and_then(|path| path.rsplit('.').next());
    let object = owner.field("metadata").map(|_| "Object");
    let condition = owner.name.ends_with("Condition").then_some("*Condition");
    let owners = [Some(owner.name), declaring, object, condition, Some("*")];
    owners.into_iter().flatten().find_map(|owner| {
        let of = format!("{owner}.{}", field.json);
        DESCRIPTIONS.get(of.as_str()).copied()
    })
}
