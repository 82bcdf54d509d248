//! Paths that rules and selectable fields name: `.spec.x`, `.spec.map['key']`.

use crate::schema::Schema;

/// A path that leads somewhere in a schema: how messages write it, its first name, and the schema at its end.
/// Else, why not.
pub(crate) fn field_path<'s>(
    text: &str,
    schema: &'s Schema,
    brackets: bool,
) -> Result<(String, String, &'s Schema), String> {
    let mut here = Some(schema);
    let (mut path, mut first) = (String::new(), String::new());
    let mut rest = text;
    let end = || "unexpected end of JSON path".to_owned();
    while !rest.is_empty() {
        let name = if let Some(tail) = rest.strip_prefix('[') {
            if !brackets {
                return Err("array notation is not allowed".to_owned());
            }
            let tail = tail
                .strip_prefix('\'')
                .ok_or_else(|| format!("expected single quoted string but got {tail}"))?;
            let close = tail.find('\'').ok_or_else(end)?;
            let (name, tail) = tail.split_at(close);
            rest = tail[1..].strip_prefix(']').ok_or_else(end)?;
            name
        } else if let Some(tail) = rest.strip_prefix('.') {
            let stop = tail.find(['.', '[', ']']).unwrap_or(tail.len());
            if stop == 0 {
                return Err(if tail.is_empty() {
                    end()
                } else {
                    "does not refer to a valid field".to_owned()
                });
            }
            let (name, tail) = tail.split_at(stop);
            rest = tail;
            name
        } else {
            let stop = rest.find(['.', '[', ']']).unwrap_or(rest.len()).max(1);
            return Err(format!("expected [ or . but got: {}", &rest[..stop]));
        };
        let invalid = || "does not refer to a valid field".to_owned();
        let schema = here.ok_or_else(invalid)?;
        if !schema.properties.is_empty() {
            here = Some(schema.properties.get(name).ok_or_else(invalid)?);
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(name);
        } else if schema.additional.is_some() {
            here = schema.additional_schema();
            path.extend(["[", name, "]"]);
        } else {
            return Err(invalid());
        }
        if first.is_empty() {
            name.clone_into(&mut first);
        }
    }
    here.map(|schema| (path, first, schema)).ok_or_else(|| "does not refer to a valid field".to_owned())
}
