//! Schemas of the types that several fields share, and how their values are read.

use std::fmt;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error, Visitor};
use serde_json::{Value, json};

/// A number of pods, or a percentage of the replicas.
pub(super) fn int_or_percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "pattern": "^[0-9]+%$", "minimum": 0, "x-kubernetes-int-or-string": true })
}

/// A number that may be written as text.
pub(super) fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-int-or-string": true })
}

/// An object with any fields.
pub(super) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A list of objects with any fields.
pub(super) fn any_objects(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": any_object(generator) })
}

/// A pod template: any fields, of which a few are restricted.
pub(super) fn template(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "metadata": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "spec": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {
                    "restartPolicy": { "type": "string", "enum": ["Always"] },
                    "activeDeadlineSeconds": { "type": "integer", "format": "int64" },
                },
                "x-kubernetes-validations": [{
                    "rule": "!has(self.activeDeadlineSeconds)",
                    "message": "activeDeadlineSeconds in cloneset is not Supported",
                }],
            },
        },
    })
}

/// A label selector.
pub(super) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": { "type": "object", "additionalProperties": { "type": "string" } },
            "matchExpressions": {
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "type": "string" },
                        "operator": { "type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"] },
                        "values": {
                            "type": "array",
                            "x-kubernetes-list-type": "atomic",
                            "items": { "type": "string" },
                        },
                    },
                },
            },
        },
    })
}

/// The selector of a workload, which is not empty and does not change.
pub(super) fn workload_selector(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = label_selector(generator);
    schema.insert(
        "x-kubernetes-validations".to_owned(),
        json!([
            {
                "rule": "(has(self.matchLabels) && size(self.matchLabels) > 0) \
                         || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",
                "message": "empty selector is invalid for cloneset",
            },
            { "rule": "self == oldSelf", "message": "field is immutable" },
        ]),
    );
    schema
}

/// What OpenKruise's webhook checks of the pace of an update, where a field has its policy.
pub(super) fn pace_rules(policy: &str) -> Value {
    let is_zero = |field: &str| format!("(self.{field} == 0 || self.{field} == '0%')");
    let (surge, unavailable) = (is_zero("maxSurge"), is_zero("maxUnavailable"));
    json!([
        {
            "rule": format!(
                "!has(self.{policy}) || self.{policy} != 'InPlaceOnly' || !has(self.maxSurge) || {surge}"
            ),
            "message": format!("can not use maxSurge with {policy} InPlaceOnly"),
        },
        {
            "rule": format!(
                "!has(self.maxUnavailable) || !{unavailable} || (has(self.maxSurge) && !{surge})"
            ),
            "message": "maxUnavailable and maxSurge should not both be less than 1",
        },
    ])
}

/// A time in RFC 3339, or null: Go writes a zero `metav1.Time` as null.
pub(super) fn nullable_date_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time", "nullable": true })
}

/// Reads an optional number or text. A number beyond 32 bits counts as the largest: the schema does not limit it.
pub(super) fn read_int_or_string<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<IntOrString>, D::Error> {
    struct ValueVisitor;

    impl<'de> Visitor<'de> for ValueVisitor {
        type Value = Option<IntOrString>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number or text")
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
            deserializer.deserialize_any(self)
        }

        fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
            let limit = if value < 0 { i32::MIN } else { i32::MAX };
            Ok(Some(IntOrString::Int(i32::try_from(value).unwrap_or(limit))))
        }

        fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
            Ok(Some(IntOrString::Int(i32::try_from(value).unwrap_or(i32::MAX))))
        }

        fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
            Ok(Some(IntOrString::String(value.to_owned())))
        }
    }

    deserializer.deserialize_option(ValueVisitor)
}
