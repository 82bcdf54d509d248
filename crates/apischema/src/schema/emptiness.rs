//! Where an empty list or map means something else than none.
//!
//! Stored, the two are the same: protobuf has no word for an empty list. But until then kube-apiserver holds what came
//! as it came, and some of its rules ask whether anything came, or show it.

/// The fields whose rules tell an empty value from none: the struct, and the name in JSON.
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

/// Whether an empty value of a field is told from none.
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
                assert!(field.tells_empty && field.omit == Omit::Empty, "{owner}.{name}");
                assert!(matches!(schema[field.ty].shape, Shape::List(_) | Shape::Map(_)), "{owner}.{name}");
            }
        }
    }
}
