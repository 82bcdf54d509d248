//! A body as it goes over the wire.

use plumb_apischema::{Schema, protobuf};
use serde_json::Value;

use super::case::Step;

/// The media type of a body, and its bytes.
pub(super) fn sent(step: &Step, body: &Value) -> (&'static str, Vec<u8>) {
    if body.is_null() {
        return (step.verb.media_type(), Vec::new());
    }
    // What is no object of its kind can only be sent as JSON.
    if step.protobuf
        && let Ok(bytes) = protobuf::encode(Schema::builtin(), body)
    {
        return ("application/vnd.kubernetes.protobuf", bytes);
    }
    let mut text = String::new();
    write(body, "", &step.twice, &mut text);
    (step.verb.media_type(), text.into_bytes())
}

/// Writes a value, with one of its fields twice.
fn write(value: &Value, at: &str, twice: &str, text: &mut String) {
    match value {
        Value::Object(map) if !twice.is_empty() => {
            text.push('{');
            let mut first = true;
            for (key, value) in map {
                let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                for _ in 0..=usize::from(at == twice) {
                    if !std::mem::take(&mut first) {
                        text.push(',');
                    }
                    text.push_str(&Value::String(key.clone()).to_string());
                    text.push(':');
                    write(value, &at, twice, text);
                }
            }
            text.push('}');
        }
        Value::Array(list) if !twice.is_empty() => {
            text.push('[');
            for (i, value) in list.iter().enumerate() {
                if i > 0 {
                    text.push(',');
                }
                write(value, &format!("{at}/{i}"), twice, text);
            }
            text.push(']');
        }
        other => text.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::Verb;
    use serde_json::json;

    #[test]
    fn a_field_can_be_written_twice() {
        let body = json!({"a": {"b": [{"c": 1}]}});
        let step = Step { twice: "/a/b/0/c".to_owned(), ..Step::new(Verb::Create, body.clone()) };
        assert_eq!(sent(&step, &body), ("application/json", br#"{"a":{"b":[{"c":1,"c":1}]}}"#.to_vec()));
    }
}
