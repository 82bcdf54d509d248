use super::StrategicError;
use crate::schema::{Field, Schema, Shape, StructId, TypeId};

/// The type of the value that is patched.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// A struct.
    Struct(StructId),
    /// Another type, whose fields the table does not have.
    Opaque(TypeId),
}

/// A list, and how it is merged.
#[derive(Debug)]
pub(super) struct List {
    pub(super) element: Target,
    pub(super) merged: bool,
    pub(super) key: Option<&'static str>,
}

impl Target {
    fn for_type(schema: &Schema, ty: TypeId) -> Self {
        let ty = schema.pointee(ty);
        match schema[ty].shape {
            Shape::Struct(id) => Self::Struct(id),
            _ => Self::Opaque(ty),
        }
    }

    /// The type of an object field, and whether its patch strategy is `replace`.
    pub(super) fn field(self, schema: &Schema, name: &str) -> Result<(Self, bool), StrategicError> {
        let field = self.lookup(schema, name)?;
        Ok((Self::for_type(schema, field.ty), field.patch.replace))
    }

    /// The type of a list field.
    pub(super) fn list(self, schema: &Schema, name: &str) -> Result<List, StrategicError> {
        let field = self.lookup(schema, name)?;
        match schema[schema.pointee(field.ty)].shape {
            Shape::List(element) | Shape::WrappedList(element) => Ok(List {
                element: Self::for_type(schema, element),
                merged: field.patch.merge,
                key: field.patch.merge_key,
            }),
            _ => {
                let kind = self.go_kind(schema);
                Err(StrategicError::Other(format!("expected slice or array type, but got: {kind}")))
            }
        }
    }

    fn lookup<'s>(self, schema: &'s Schema, name: &str) -> Result<&'s Field, StrategicError> {
        let unknown = |owner: &str| {
            let sentence = format!("unable to find api field in struct {owner} for the json field {name:?}");
            StrategicError::Other(sentence)
        };
        match self {
            Self::Struct(id) => schema[id].field(name).ok_or_else(|| unknown(schema[id].name)),
            Self::Opaque(ty) => match self.go_kind(schema) {
                "struct" => Err(unknown(schema[ty].go.rsplit('.').next().unwrap_or_default())),
                kind => Err(StrategicError::Other(format!(
                    "merging an object in json but data type is not struct, instead is: {kind}"
                ))),
            },
        }
    }

    /// The kind of the type in Go's reflection, which error messages display.
    pub(super) fn go_kind(self, schema: &Schema) -> &'static str {
        let Self::Opaque(ty) = self else { return "struct" };
        match schema[ty].shape {
            Shape::Text => "string",
            Shape::Bool => "bool",
            Shape::Int32 => "int32",
            Shape::Int64 => "int64",
            Shape::Double => "float64",
            Shape::Bytes | Shape::List(_) | Shape::WrappedList(_) => "slice",
            Shape::Map(_) => "map",
            Shape::Pointer(_) => "ptr",
            Shape::Any => "interface",
            _ => "struct",
        }
    }
}
