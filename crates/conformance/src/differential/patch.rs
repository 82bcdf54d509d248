//! The same change in every form a client may send it in.

use plumb_apischema::Schema;
use plumb_apischema::schema::{Field, Shape, StructId};
use serde_json::{Map, Value, json};

/// Operations (RFC 6902) that make `new` of `old`.
pub(super) fn operations(old: &Value, new: &Value) -> Value {
    let mut found = Vec::new();
    compare(old, new, "", &mut found);
    Value::Array(found)
}

fn compare(old: &Value, new: &Value, at: &str, found: &mut Vec<Value>) {
    match (old, new) {
        (old, new) if old == new => {}
        (Value::Object(old), Value::Object(new)) => {
            for (key, value) in old {
                let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                match new.get(key) {
                    Some(new) => compare(value, new, &at, found),
                    None => found.push(json!({"op": "remove", "path": at})),
                }
            }
            for (key, value) in new.iter().filter(|(key, _)| !old.contains_key(*key)) {
                let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                found.push(json!({"op": "add", "path": at, "value": value}));
            }
        }
        (Value::Array(old), Value::Array(new)) if new.starts_with(old) => {
            for value in &new[old.len()..] {
                found.push(json!({"op": "add", "path": format!("{at}/-"), "value": value}));
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (i, (old, new)) in old.iter().zip(new).enumerate() {
                compare(old, new, &format!("{at}/{i}"), found);
            }
        }
        _ => found.push(json!({"op": "replace", "path": at, "value": new})),
    }
}

/// Applies operations; `None` if one finds no place. Only what [`operations`] makes is understood.
pub(super) fn apply(object: &Value, operations: &Value) -> Option<Value> {
    let mut object = object.clone();
    for operation in operations.as_array()? {
        let path = operation["path"].as_str()?;
        let value = || operation.get("value").cloned();
        match operation["op"].as_str()? {
            "remove" => {
                object.pointer(path)?;
                super::edit::remove(&mut object, path);
            }
            "replace" => *object.pointer_mut(path)? = value()?,
            "add" => {
                if let Some(list) = path.strip_suffix("/-") {
                    object.pointer_mut(list)?.as_array_mut()?.push(value()?);
                } else {
                    object.pointer(path.rsplit_once('/')?.0)?.as_object()?;
                    super::edit::set(&mut object, path, value()?);
                }
            }
            _ => return None,
        }
    }
    Some(object)
}

/// The object to be laid over `old` (RFC 7396) so that it becomes `new`.
pub(super) fn merge(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return new.clone() };
    let mut patch = Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        match old.get(key) {
            Some(old) if old == value => {}
            Some(old) => drop(patch.insert(key.clone(), merge(old, value))),
            None => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    Value::Object(patch)
}

/// The same, with lists merged by their keys.
pub(super) fn strategic(body: StructId, old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return new.clone() };
    let schema = Schema::builtin();
    let mut patch = Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        let Some(before) = old.get(key) else {
            patch.insert(key.clone(), value.clone());
            continue;
        };
        if before == value {
            continue;
        }
        let field = schema[body].field(key);
        let inner = field.and_then(|field| match schema[schema.pointee(field.ty)].shape {
            Shape::Struct(id) => Some(id),
            _ => None,
        });
        match (field, inner, before, value) {
            (_, Some(id), _, _) => drop(patch.insert(key.clone(), strategic(id, before, value))),
            (Some(field), _, Value::Array(before), Value::Array(after)) if field.patch.merge => {
                list(field, before, after, key, &mut patch);
            }
            (_, _, Value::Object(_), Value::Object(_)) => {
                patch.insert(key.clone(), merge(before, value));
            }
            _ => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    Value::Object(patch)
}

fn list(field: &Field, before: &[Value], after: &[Value], key: &str, patch: &mut Map<String, Value>) {
    let Some(name) = field.patch.merge_key else {
        let gone: Vec<&Value> = before.iter().filter(|element| !after.contains(element)).collect();
        let new: Vec<&Value> = after.iter().filter(|element| !before.contains(element)).collect();
        if !gone.is_empty() {
            patch.insert(format!("$deleteFromPrimitiveList/{key}"), json!(gone));
        }
        if !new.is_empty() {
            patch.insert(key.to_owned(), json!(new));
        }
        return;
    };
    let find = |list: &[Value], id: &Value| list.iter().find(|element| &element[name] == id).cloned();
    let mut changes = Vec::new();
    for element in after {
        match find(before, &element[name]) {
            Some(same) if same == *element => {}
            Some(other) => {
                let inner = Schema::builtin().struct_behind(field.ty);
                let mut change =
                    inner.map_or_else(|| merge(&other, element), |id| strategic(id, &other, element));
                if let Some(change) = change.as_object_mut() {
                    change.insert(name.to_owned(), element[name].clone());
                }
                changes.push(change);
            }
            None => changes.push(element.clone()),
        }
    }
    for element in before.iter().filter(|element| find(after, &element[name]).is_none()) {
        changes.push(json!({"$patch": "delete", name: element[name]}));
    }
    let order: Vec<Value> = after.iter().map(|element| json!({name: element[name]})).collect();
    patch.insert(format!("$setElementOrder/{key}"), json!(order));
    patch.insert(key.to_owned(), json!(changes));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_make_the_new_object_of_the_old_one() {
        let old = json!({"a": 1, "b": {"c/d": [1, 2], "e": [1]}, "f": [{"g": 1}]});
        let new = json!({"b": {"c/d": [1, 2, 3], "e": []}, "f": [{"g": 2}], "h": null});
        let operations = operations(&old, &new);
        assert_eq!(apply(&old, &operations), Some(new));
    }
}
