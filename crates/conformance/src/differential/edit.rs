//! Small changes of an object, right and wrong.

use plumb_apischema::Schema;
use plumb_apischema::schema::{Shape, StructId, TypeId};
use serde_json::{Value, json};

use super::random::Random;
use super::words;

/// A location in an object, and what belongs there.
struct FieldLocation {
    pointer: String,
    /// `None` below what the schema does not describe.
    ty: Option<TypeId>,
    /// The name of the field, or of the one that the list or map is in.
    field: String,
}

/// Changes an object of a struct in one location below `under`, if there is one.
pub(super) fn edit(random: &mut Random, body: Option<StructId>, object: &mut Value, under: &str) {
    let mut locations = Vec::new();
    if let Value::Object(map) = &*object {
        for (field, value) in map {
            let known = body.map_or_else(metadata, Some);
            let ty = known.and_then(|body| Schema::builtin()[body].field(field)).map(|field| field.ty);
            visit(value, ty, field, &format!("/{}", escape(field)), &mut locations);
        }
    }
    // Clients do not write server-managed fields, and the path determines the kind.
    let untouched = ["/metadata/managedFields", "/metadata/creationTimestamp", "/apiVersion", "/kind"];
    locations.retain(|location| {
        let shielded = untouched.iter().any(|prefix| location.pointer.starts_with(prefix));
        location.pointer.starts_with(under) && (!shielded || random.percent(5))
    });
    let Some(location) = random.pick(&locations) else { return };
    change(random, object, location);
}

/// What every object has is known of kinds that are not in the table, too.
fn metadata() -> Option<StructId> {
    Schema::builtin().kind("meta.k8s.io", "v1", "PartialObjectMetadata").map(|kind| kind.body)
}

fn visit(value: &Value, ty: Option<TypeId>, field: &str, pointer: &str, locations: &mut Vec<FieldLocation>) {
    locations.push(FieldLocation { pointer: pointer.to_owned(), ty, field: field.to_owned() });
    let schema = Schema::builtin();
    let ty = ty.map(|ty| schema.pointee(ty));
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let pointer = format!("{pointer}/{}", escape(key));
                match ty.map(|ty| schema[ty].shape) {
                    Some(Shape::Struct(id)) => {
                        let ty = schema[id].field(key).map(|field| field.ty);
                        visit(value, ty, key, &pointer, locations);
                    }
                    Some(Shape::Map(inner)) => visit(value, Some(inner), field, &pointer, locations),
                    _ => visit(value, None, key, &pointer, locations),
                }
            }
        }
        Value::Array(list) => {
            let inner = match ty.map(|ty| schema[ty].shape) {
                Some(Shape::List(inner) | Shape::WrappedList(inner)) => Some(inner),
                _ => None,
            };
            for (i, value) in list.iter().enumerate() {
                visit(value, inner, field, &format!("{pointer}/{i}"), locations);
            }
        }
        _ => {}
    }
}

fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

fn change(random: &mut Random, object: &mut Value, location: &FieldLocation) {
    let Some(value) = object.pointer(&location.pointer).cloned() else { return };
    let schema = Schema::builtin();
    let shape = location.ty.map(|ty| schema[schema.pointee(ty)].shape);
    if location.pointer == "/metadata/name" {
        // Names stay different from case to case.
        let name = value.as_str().unwrap_or_default();
        let long = |length: usize| format!("{name}{}", "x".repeat(length.saturating_sub(name.len())));
        let names = [
            name.to_uppercase(),
            format!("{name}."),
            format!("{name}.a"),
            format!("{name}_"),
            String::new(),
            format!("{name}-"),
            format!("-{name}"),
            long(52),
            long(53),
            long(63),
            long(64),
            long(253),
            long(254),
            format!("{name}/a"),
            format!("{name}%"),
            format!("0{name}"),
            "..".to_owned(),
        ];
        return set(object, &location.pointer, json!(names[random.below(names.len())]));
    }
    if ["/kind", "/apiVersion"].contains(&location.pointer.as_str()) && random.percent(50) {
        return set(object, &location.pointer, json!(words::another_kind(random)));
    }
    match (shape, random.below(100)) {
        (_, 0..=24) => remove(object, &location.pointer),
        (Some(Shape::Struct(id)), _) if value.is_object() => {
            let fields = schema[id].fields();
            let Some(field) = random.pick(fields) else { return };
            if random.percent(6) {
                return set(object, &format!("{}/unknownField", location.pointer), json!("a"));
            }
            let made = words::value(random, field.ty, field.json);
            set(object, &format!("{}/{}", location.pointer, escape(field.json)), made);
        }
        (Some(Shape::List(inner)), chance) => {
            let Some(list) = object.pointer_mut(&location.pointer).and_then(Value::as_array_mut) else {
                return;
            };
            match (list.first().cloned(), chance) {
                (Some(first), 25..=49) => list.push(first),
                (Some(_), 50..=59) => list.reverse(),
                (Some(_), 60..=64) => list.clear(),
                _ => {
                    let made = words::value(random, inner, &location.field);
                    if let Some(list) = object.pointer_mut(&location.pointer).and_then(Value::as_array_mut) {
                        list.push(made);
                    }
                }
            }
        }
        (Some(Shape::Map(inner)), _) => {
            let keys =
                ["a", "A", "a b", "a/b", "a/b/c", "cpu", "memory", "example.com/a", "", "kubernetes.io/a"];
            let key = keys[random.below(keys.len())];
            let made = words::value(random, inner, &location.field);
            set(object, &format!("{}/{}", location.pointer, escape(key)), made);
        }
        (_, 25..=27) => set(object, &location.pointer, Value::Null),
        (Some(_), _) => {
            let made = location.ty.map(|ty| words::value(random, ty, &location.field)).unwrap_or_default();
            set(object, &location.pointer, made);
        }
        (None, 28..=60) => set(object, &location.pointer, words::wrong(random)),
        (None, _) if value.is_object() => {
            let made = words::wrong(random);
            set(object, &format!("{}/{}", location.pointer, words::field(random)), made);
        }
        (None, _) => set(object, &location.pointer, words::of_no_type(random, &location.field)),
    }
}

/// Sets a value, whose holder is there.
pub(super) fn set(object: &mut Value, pointer: &str, value: Value) {
    let Some((holder, key)) = pointer.rsplit_once('/') else { return };
    let key = key.replace("~1", "/").replace("~0", "~");
    match object.pointer_mut(holder) {
        Some(Value::Object(map)) => {
            map.insert(key, value);
        }
        Some(Value::Array(list)) => {
            if let Some(slot) = key.parse::<usize>().ok().and_then(|location| list.get_mut(location)) {
                *slot = value;
            }
        }
        _ => {}
    }
}

/// Removes a value.
pub(super) fn remove(object: &mut Value, pointer: &str) {
    let Some((holder, key)) = pointer.rsplit_once('/') else { return };
    let key = key.replace("~1", "/").replace("~0", "~");
    match object.pointer_mut(holder) {
        Some(Value::Object(map)) => drop(map.remove(&key)),
        Some(Value::Array(list)) => {
            if let Ok(location) = key.parse::<usize>()
                && location < list.len()
            {
                list.remove(location);
            }
        }
        _ => {}
    }
}

/// Every location in a value, the outer before the inner.
pub(super) fn locations(value: &Value) -> Vec<String> {
    fn walk(value: &Value, here: &str, found: &mut Vec<String>) {
        found.push(here.to_owned());
        match value {
            Value::Object(map) => {
                map.iter().for_each(|(key, value)| walk(value, &format!("{here}/{}", escape(key)), found));
            }
            Value::Array(list) => {
                list.iter().enumerate().for_each(|(i, value)| walk(value, &format!("{here}/{i}"), found));
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(value, "", &mut found);
    found
}
