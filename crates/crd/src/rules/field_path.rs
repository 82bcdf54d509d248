//! Field paths of rules and selectable fields: `.spec.x`, `.spec.map['key']`.

use crate::schema::Schema;

/// Why a field path is invalid for a schema, with upstream's messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FieldPathError {
    #[error("unexpected end of JSON path")]
    UnexpectedEnd,
    #[error("array notation is not allowed")]
    ArrayNotation,
    #[error("expected single quoted string but got {0}")]
    NotQuoted(String),
    #[error("expected [ or . but got: {0}")]
    NotASeparator(String),
    #[error("does not refer to a valid field")]
    InvalidField,
}

/// A field path that was resolved in a schema.
pub(crate) struct Resolved<'s> {
    /// The path as error messages display it.
    pub(crate) path: String,
    /// The first name of the path.
    pub(crate) first_name: String,
    /// The schema of the field.
    pub(crate) schema: &'s Schema,
}

/// Resolves a field path in a schema; `brackets` allows the notation `['key']`.
pub(crate) fn field_path<'s>(
    text: &str,
    schema: &'s Schema,
    brackets: bool,
) -> Result<Resolved<'s>, FieldPathError> {
    let mut current = Some(schema);
    let mut path = String::new();
    let mut first_name = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let name = if let Some(tail) = rest.strip_prefix('[') {
            if !brackets {
                return Err(FieldPathError::ArrayNotation);
            }
            let tail = tail.strip_prefix('\'').ok_or_else(|| FieldPathError::NotQuoted(tail.to_owned()))?;
            let close = tail.find('\'').ok_or(FieldPathError::UnexpectedEnd)?;
            let (name, tail) = tail.split_at(close);
            rest = tail[1..].strip_prefix(']').ok_or(FieldPathError::UnexpectedEnd)?;
            name
        } else if let Some(tail) = rest.strip_prefix('.') {
            let stop = tail.find(['.', '[', ']']).unwrap_or(tail.len());
            if stop == 0 {
                return Err(if tail.is_empty() {
                    FieldPathError::UnexpectedEnd
                } else {
                    FieldPathError::InvalidField
                });
            }
            let (name, tail) = tail.split_at(stop);
            rest = tail;
            name
        } else {
            let stop = rest.find(['.', '[', ']']).unwrap_or(rest.len()).max(1);
            return Err(FieldPathError::NotASeparator(rest[..stop].to_owned()));
        };
        let schema = current.ok_or(FieldPathError::InvalidField)?;
        if !schema.properties.is_empty() {
            current = Some(schema.properties.get(name).ok_or(FieldPathError::InvalidField)?);
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(name);
        } else if schema.additional.is_some() {
            current = schema.additional_schema();
            path.extend(["[", name, "]"]);
        } else {
            return Err(FieldPathError::InvalidField);
        }
        if first_name.is_empty() {
            name.clone_into(&mut first_name);
        }
    }
    current.map(|schema| Resolved { path, first_name, schema }).ok_or(FieldPathError::InvalidField)
}
