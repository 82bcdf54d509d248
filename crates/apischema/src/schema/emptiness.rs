//! Fields whose empty value differs from a missing one.
//!
//! In storage there is no difference, since protobuf has no empty list. But kube-apiserver validates the decoded object before
//! it is stored, and some of its validation distinguishes an empty from a missing field, or displays it.

/// The fields whose validation distinguishes an empty value from a missing one: the struct, and the JSON name.
const DISTINGUISHED: &[(&str, &str)] = &[
    ("EphemeralContainer", "ports"),
    ("EphemeralContainer", "resizePolicy"),
    ("EphemeralContainer", "restartPolicyRules"),
    ("HPAScalingRules", "policies"),
    ("ObjectMeta", "labels"),
    ("PodSpec", "overhead"),
    ("ResourceQuotaSpec", "scopes"),
    ("ResourceRequirements", "claims"),
    ("ResourceRequirements", "limits"),
    ("ResourceRequirements", "requests"),
    ("ScopedResourceSelectorRequirement", "values"),
    ("VolumeResourceRequirements", "requests"),
];

/// Whether an empty value of a field is distinguished from a missing one.
pub(super) fn is_distinguished(owner: &str, field: &str) -> bool {
    DISTINGUISHED.contains(&(owner, field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Omit, Schema, Shape};

    #[test]
    fn every_field_of_the_list_is_one_of_the_api_and_may_be_left_out() {
        let schema = Schema::builtin();
        for (owner, name) in DISTINGUISHED {
            let fields: Vec<_> = schema
                .structs()
                .filter(|id| schema[*id].name == *owner)
                .filter_map(|id| schema[id].field(name))
                .collect();
            assert!(!fields.is_empty(), "{owner}.{name}");
            for field in fields {
                assert!(field.distinguishes_empty && field.omit == Omit::Empty, "{owner}.{name}");
                assert!(matches!(schema[field.ty].shape, Shape::List(_) | Shape::Map(_)), "{owner}.{name}");
            }
        }
    }
}
