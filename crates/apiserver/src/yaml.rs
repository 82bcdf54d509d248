//! YAML bodies, in and out. What is read becomes the value that JSON would have been, and goes on as that.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

use plumb_apischema::json::{Decoded, StrictError};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{
    DefaultMessageFormatter, DuplicateKeyPolicy, Localizer, Location, MessageFormatter, SerializeError,
    Spanned,
};

/// Why a document cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum YamlError {
    /// It is no text.
    #[error("yaml: invalid UTF-8")]
    Utf8,
    /// It is no YAML.
    #[error("yaml: {0}")]
    Syntax(#[from] serde_saphyr::Error),
}

impl YamlError {
    /// What is wrong, and not where.
    pub(crate) fn without_location(&self) -> String {
        match self {
            Self::Utf8 => self.to_string(),
            Self::Syntax(error) => format!("yaml: {}", error.render_with_formatter(&WithoutLocation)),
        }
    }
}

/// The usual words, without a line and a column.
struct WithoutLocation;

impl Localizer for WithoutLocation {
    fn attach_location<'a>(&self, base: Cow<'a, str>, _: Location) -> Cow<'a, str> {
        base
    }
}

impl MessageFormatter for WithoutLocation {
    fn localizer(&self) -> &dyn Localizer {
        self
    }

    fn format_message<'a>(&self, error: &'a serde_saphyr::Error) -> Cow<'a, str> {
        DefaultMessageFormatter.format_message(error)
    }
}

/// Reads a document. Duplicate keys are reported and the last one counts, as upstream has it.
pub(crate) fn parse(body: &[u8]) -> Result<Decoded, YamlError> {
    let text = std::str::from_utf8(body).map_err(|_| YamlError::Utf8)?;
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    let repeated = RefCell::new(Vec::new());
    let node = Node { repeated: &repeated };
    let read = serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
        node.deserialize(deserializer)
    });
    let value = read?;
    let repeated = repeated.into_inner();
    let strict = if repeated.is_empty() {
        Vec::new()
    } else {
        vec![StrictError::Yaml(format!("yaml: unmarshal errors:\n{}", repeated.join("\n")))]
    };
    Ok(Decoded { value, strict })
}

/// A value as YAML: keys in the order of the alphabet, as everything is that went through upstream's encoder.
pub(crate) fn print(value: &Value) -> Result<String, SerializeError> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: true, folded_wrap_chars: 1 << 20 };
    serde_saphyr::to_string_with_options(value, options)
}

/// A value of a document, wherever it stands.
#[derive(Clone, Copy)]
struct Node<'r> {
    /// The keys that were there before, by line.
    repeated: &'r RefCell<Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Value, E> {
        Number::from_f64(number).map(Value::Number).ok_or_else(|| E::custom("json: unsupported value"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        let mut seen = HashSet::new();
        while let Some(key) = access.next_key::<Spanned<String>>()? {
            let value = access.next_value_seed(self)?;
            if !seen.insert(key.value.clone()) {
                let line = key.referenced.line();
                let reported = format!("  line {line}: key {:?} already set in map", key.value);
                self.repeated.borrow_mut().push(reported);
            }
            fields.insert(key.value, value);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_is_the_value_that_json_would_be() {
        let text = "a: 1\nb: [x, true, null, 1.5]\nc:\n  d: \"1\"\n  1: two\ne: |\n  l1\n  l2\n";
        let parsed = parse(text.as_bytes()).unwrap();
        assert_eq!(
            parsed.value,
            json!({ "a": 1, "b": ["x", true, null, 1.5], "c": { "d": "1", "1": "two" }, "e": "l1\nl2\n" })
        );
        assert!(parsed.strict.is_empty());
        assert!(parse(b"a: [").is_err());
        assert!(parse(b"a: \xff").is_err());
        assert_eq!(parse(b"").unwrap().value, Value::Null);
    }

    #[test]
    fn duplicate_keys_are_reported_by_line_and_the_last_counts() {
        let parsed = parse(b"a: 1\nb:\n  c: 1\n  c: 2\na: 3\n").unwrap();
        assert_eq!(parsed.value, json!({ "a": 3, "b": { "c": 2 } }));
        let reported: Vec<String> = parsed.strict.iter().map(ToString::to_string).collect();
        assert_eq!(
            reported,
            [
                "yaml: unmarshal errors:\n  line 4: key \"c\" already set in map\n  line 5: key \"a\" already set in map"
            ]
        );
    }

    #[test]
    fn printed_yaml_is_read_back() {
        let texts = [
            "yes",
            "no",
            "on",
            "null",
            "~",
            "1",
            "1e3",
            "0x1f",
            "012",
            "1:30",
            "",
            " a ",
            "a: b",
            "#x",
            "- x",
            "2026-01-02T03:04:05Z",
            "l1\nl2\n",
            "l1\n\n",
            "tab\there",
            "é",
            "*a",
            "&b",
            "{",
            "100m",
        ];
        let value = json!({ "texts": texts, "numbers": [1, -2, 1.5], "empty": {}, "none": [], "null": null });
        let printed = print(&value).unwrap();
        assert_eq!(parse(printed.as_bytes()).unwrap().value, value, "{printed}");
    }
}
