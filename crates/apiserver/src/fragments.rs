//! Parts of encoded objects, found without decoding the objects.
//!
//! A stored object begins with kind, version and metadata, without white space (see [`crate::object`]), so a part is found by
//! skipping values. In other input the functions find nothing, and the caller decodes the object.

use std::ops::Range;

/// Where the metadata of an encoded object is, braces and all.
pub(crate) fn metadata(object: &[u8]) -> Option<Range<usize>> {
    members(object, 0)?.find(|(key, _)| &object[key.clone()] == b"metadata").map(|(_, value)| value)
}

/// Where the resource version of an encoded object is, quotes and all.
pub(crate) fn resource_version(object: &[u8]) -> Option<Range<usize>> {
    let metadata = metadata(object)?;
    let mut members = members(object, metadata.start)?;
    members.find(|(key, _)| &object[key.clone()] == b"resourceVersion").map(|(_, value)| value)
}

/// Where `managedFields` is, with its comma: without this range the rest is valid JSON.
pub(crate) fn managed_fields(object: &[u8]) -> Option<Range<usize>> {
    let metadata = metadata(object)?;
    let (key, value) =
        members(object, metadata.start)?.find(|(key, _)| &object[key.clone()] == b"managedFields")?;
    // The quote before the key.
    let start = key.start - 1;
    Some(match (object.get(value.end), object.get(start - 1)) {
        (Some(b','), _) => start..value.end + 1,
        (_, Some(b',')) => start - 1..value.end,
        _ => start..value.end,
    })
}

/// The members of the JSON object that begins at a place: of each, where its key is (without quotes) and its value.
/// They end early where it is not such an object.
fn members(text: &[u8], at: usize) -> Option<impl Iterator<Item = (Range<usize>, Range<usize>)>> {
    let mut next = (text.get(at) == Some(&b'{')).then_some(at + 1)?;
    Some(std::iter::from_fn(move || {
        let key_end = string_end(text, next)?;
        if text.get(key_end) != Some(&b':') {
            return None;
        }
        let (key, value) = (next + 1..key_end - 1, key_end + 1);
        let end = value_end(text, value)?;
        // Whatever stands after the last member is no comma, and no string begins behind it.
        next = end + 1;
        if text.get(end) != Some(&b',') {
            next = text.len();
        }
        Some((key, value..end))
    }))
}

/// Where a value ends that begins at a place.
fn value_end(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'"' => string_end(text, at),
        b'{' | b'[' => {
            let (mut depth, mut at) = (0_usize, at);
            loop {
                match text.get(at)? {
                    b'"' => {
                        at = string_end(text, at)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
        }
        _ => {
            let rest = text.get(at..)?;
            let length = rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']'))?;
            Some(at + length)
        }
    }
}

/// Where a string ends that begins with its quote at a place.
fn string_end(text: &[u8], at: usize) -> Option<usize> {
    if text.get(at) != Some(&b'"') {
        return None;
    }
    let mut at = at + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn without(text: &str) -> Option<String> {
        let cut = managed_fields(text.as_bytes())?;
        Some(format!("{}{}", &text[..cut.start], &text[cut.end..]))
    }

    #[test]
    fn managed_fields_are_cut_out_wherever_they_stand() {
        for (whole, rest) in [
            (r#"{"metadata":{"managedFields":[{"f":"]"}],"name":"a"}}"#, r#"{"metadata":{"name":"a"}}"#),
            (r#"{"metadata":{"name":"a","managedFields":[{}]},"x":1}"#, r#"{"metadata":{"name":"a"},"x":1}"#),
            (r#"{"metadata":{"managedFields":[]},"x":[1]}"#, r#"{"metadata":{},"x":[1]}"#),
            (
                r#"{"kind":"\"{","metadata":{"a":1,"managedFields":[],"b":2}}"#,
                r#"{"kind":"\"{","metadata":{"a":1,"b":2}}"#,
            ),
        ] {
            assert_eq!(without(whole).as_deref(), Some(rest));
        }
    }

    #[test]
    fn a_value_that_only_looks_like_managed_fields_is_kept() {
        for whole in [
            r#"{"metadata":{"annotations":{"managedFields":"x"}}}"#,
            r#"{"metadata":{"name":"\"managedFields\":[]"}}"#,
            r#"{"spec":{"managedFields":[]},"metadata":{}}"#,
            r#"{"data":{"metadata":{"managedFields":[]}}}"#,
            r#"["metadata"]"#,
            r#"{"metadata":{"managedFields":["#,
            r#"{"metadata"}"#,
            "",
        ] {
            assert_eq!(without(whole), None, "{whole}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn pieces_of_any_object_are_what_reading_it_finds(
            before in any_json(), managers in any_json(), after in any_json(), spec in any_json(),
        ) {
            let mut object = json!({ "kind": "K", "metadata": {
                "a": before, "managedFields": managers, "z": after }, "spec": spec });
            let text = object.to_string();
            let found = metadata(text.as_bytes()).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Value>(&text[found]).unwrap(), &object["metadata"]);
            object["metadata"].as_object_mut().unwrap().remove("managedFields");
            prop_assert_eq!(serde_json::from_str::<Value>(&without(&text).unwrap()).unwrap(), object);
        }

        #[test]
        fn any_bytes_are_searched_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = (metadata(&bytes), managed_fields(&bytes));
        }
    }
}
