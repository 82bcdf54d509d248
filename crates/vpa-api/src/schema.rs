//! Schemas of the types that several objects share, and how their values are read.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::ResourceList;

/// What Kubernetes requires of the text of a quantity.
const QUANTITY_PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// A quantity: text of a certain form, or an integer.
pub(super) fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "pattern": QUANTITY_PATTERN,
        "x-kubernetes-int-or-string": true,
    })
}

/// Quantities by the name of the resource.
pub(super) fn resource_list(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "additionalProperties": quantity(generator) })
}

/// A time in RFC 3339.
pub(super) fn date_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// A time in RFC 3339, or null: Go writes a zero `metav1.Time` as null.
pub(super) fn nullable_date_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time", "nullable": true })
}

/// An object with any fields.
pub(super) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A number, without a format.
pub(super) fn number(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "number" })
}

/// An integer, without a format.
pub(super) fn integer(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer" })
}

/// A quantity as it is read: the schema allows integers, which k8s-openapi's type does not.
struct IntOrText(Quantity);

impl<'de> Deserialize<'de> for IntOrText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IntOrTextVisitor;

        impl<'de> Visitor<'de> for IntOrTextVisitor {
            type Value = IntOrText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity: a string or an integer")
            }

            // The admission webhook sees an object before the API server compares it with the schema. It reports the text of
            // the map as an invalid quantity, with its path; upstream's webhook denies such a VPA too.
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<IntOrText, A::Error> {
                let value = serde_json::Value::deserialize(MapAccessDeserializer::new(map))?;
                Ok(IntOrText(Quantity(value.to_string())))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<IntOrText, E> {
                Ok(IntOrText(Quantity(value.to_string())))
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<IntOrText, E> {
                Ok(IntOrText(Quantity(value.to_string())))
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<IntOrText, E> {
                Ok(IntOrText(Quantity(value.to_string())))
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<IntOrText, E> {
                Ok(IntOrText(Quantity(value.to_owned())))
            }
        }

        deserializer.deserialize_any(IntOrTextVisitor)
    }
}

/// Reads an optional quantity.
pub(super) fn read_quantity<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Quantity>, D::Error> {
    Ok(Option::<IntOrText>::deserialize(deserializer)?.map(|quantity| quantity.0))
}

/// Reads a list of quantities; null is an empty one.
pub(super) fn read_resource_list<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<ResourceList, D::Error> {
    let read: Option<BTreeMap<String, IntOrText>> = Option::deserialize(deserializer)?;
    Ok(read.unwrap_or_default().into_iter().map(|(name, quantity)| (name, quantity.0)).collect())
}

/// Weights by the index of their bucket, as a checkpoint carries them: `{"7": 10000, "8": 42}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketWeights {
    /// Index and weight of each bucket, in the order of the indexes when we write, in any order when we read.
    Weights(Vec<(i64, u32)>),
    /// Something else; why it is no map from indexes to weights.
    Malformed(String),
}

impl BucketWeights {
    /// Whether no bucket has a weight.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Weights(weights) if weights.is_empty())
    }
}

impl Default for BucketWeights {
    fn default() -> Self {
        Self::Weights(Vec::new())
    }
}

impl Serialize for BucketWeights {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Weights(weights) => serializer.collect_map(weights.iter().copied()),
            Self::Malformed(reason) => Err(serde::ser::Error::custom(reason)),
        }
    }
}

impl<'de> Deserialize<'de> for BucketWeights {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WeightsVisitor;

        impl<'de> Visitor<'de> for WeightsVisitor {
            type Value = BucketWeights;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("weights by bucket index")
            }

            fn visit_unit<E: Error>(self) -> Result<BucketWeights, E> {
                Ok(BucketWeights::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<BucketWeights, A::Error> {
                let mut weights = Vec::with_capacity(map.size_hint().unwrap_or(0).min(1024));
                let mut malformed = None;
                while let Some((index, weight)) = map.next_entry::<String, serde_json::Value>()? {
                    let read =
                        index.parse().ok().zip(weight.as_u64().and_then(|weight| u32::try_from(weight).ok()));
                    match read {
                        Some(entry) => weights.push(entry),
                        None => malformed = Some(format!("bucket {index:?} has the weight {weight}")),
                    }
                }
                Ok(malformed.map_or(BucketWeights::Weights(weights), BucketWeights::Malformed))
            }
        }

        deserializer.deserialize_any(WeightsVisitor)
    }
}

/// An enum whose variants are texts. A text that none of them has becomes `Other`: objects that a newer schema admitted
/// can be read, and the component that acts on the field decides what an unknown value means.
macro_rules! string_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
            /// A value that this version does not know.
            Other(String),
        }

        impl $name {
            /// The value as it is written.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => stringify!($variant),)*
                    Self::Other(text) => text,
                }
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                match text.as_str() {
                    $(stringify!($variant) => Self::$variant,)*
                    _ => Self::Other(text),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer).map(Self::from)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": [$(stringify!($variant)),*] })
            }
        }
    };
}
pub(super) use string_enum;
