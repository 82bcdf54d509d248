//! The objects in bodies, as events have them: in JSON.

use std::borrow::Cow;

use bytes::Bytes;
use http::HeaderMap;
use plumb_apischema::{Schema, protobuf};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::codec::media_type;
use crate::yaml;

/// The body of a request.
pub(super) struct RequestBody {
    media_type: String,
    bytes: Bytes,
}

impl RequestBody {
    pub(super) fn new(headers: &HeaderMap, bytes: &Bytes) -> Self {
        Self { media_type: media_type(headers).to_owned(), bytes: bytes.clone() }
    }

    /// The object as it was sent, before defaults; none if it cannot be read, as the response says.
    pub(super) fn object(&self, omit_managed_fields: bool) -> Option<Cow<'_, RawValue>> {
        let value = match &*self.media_type {
            "application/yaml" | "application/apply-patch+yaml" => yaml::parse(&self.bytes).ok()?.value,
            "application/vnd.kubernetes.protobuf" => {
                protobuf::decode(Schema::builtin(), &self.bytes, None).ok()?
            }
            _ => return json(&self.bytes, omit_managed_fields),
        };
        without_managed_fields(value, omit_managed_fields)
    }
}

/// An object in JSON, without a copy if it is recorded as it is.
pub(super) fn json(bytes: &[u8], omit_managed_fields: bool) -> Option<Cow<'_, RawValue>> {
    if omit_managed_fields {
        return without_managed_fields(serde_json::from_slice(bytes).ok()?, true);
    }
    serde_json::from_slice(bytes).ok().map(Cow::Borrowed)
}

fn without_managed_fields(mut value: Value, omit: bool) -> Option<Cow<'static, RawValue>> {
    if omit {
        remove_managed_fields(&mut value);
        for item in list(&mut value, "items") {
            remove_managed_fields(item);
        }
        for row in list(&mut value, "rows") {
            if let Some(object) = row.get_mut("object") {
                remove_managed_fields(object);
            }
        }
    }
    to_raw_value(&value).ok().map(Cow::Owned)
}

fn list<'a>(value: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

fn remove_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::CONTENT_TYPE;

    use super::*;

    fn object(media_type: &'static str, body: &'static str, omit: bool) -> Option<String> {
        let headers = [(CONTENT_TYPE, HeaderValue::from_static(media_type))].into_iter().collect();
        RequestBody::new(&headers, &Bytes::from_static(body.as_bytes()))
            .object(omit)
            .map(|object| object.get().to_owned())
    }

    #[test]
    fn an_object_is_recorded_as_it_was_sent() {
        let table = [
            ("application/json", r#"{"b":1, "a":2}"#, Some(r#"{"b":1, "a":2}"#)),
            ("", "[1]", Some("[1]")),
            ("application/merge-patch+json; charset=utf-8", r#"{"a":null}"#, Some(r#"{"a":null}"#)),
            ("application/yaml", "a: [1]", Some(r#"{"a":[1]}"#)),
            ("application/apply-patch+yaml", "a: {b: c}", Some(r#"{"a":{"b":"c"}}"#)),
            ("application/json", "{", None),
            ("application/vnd.kubernetes.protobuf", "{}", None),
        ];
        for (media_type, body, expected) in table {
            assert_eq!(object(media_type, body, false).as_deref(), expected, "{body}");
        }
    }

    #[test]
    fn managed_fields_can_be_omitted_from_objects_lists_and_tables() {
        let meta = r#"{"metadata":{"managedFields":[{}],"name":"a"}}"#;
        let without = r#"{"metadata":{"name":"a"}}"#;
        let texts = [
            meta.to_owned(),
            format!(r#"{{"items":[{meta}]}}"#),
            format!(r#"{{"rows":[{{"object":{meta}}}]}}"#),
            "[1]".to_owned(),
        ];
        for text in texts {
            let found = json(text.as_bytes(), true).unwrap();
            assert_eq!(found.get(), text.replace(meta, without));
        }
    }
}
