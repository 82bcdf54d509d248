//! Values as Go's `%v` prints them in error messages: `map[name:a ports:[80 81]]`.

use std::fmt;

use serde_json::Value;

/// The maximum length of a value in an error message.
const MAX_LENGTH: usize = 4096;

/// Formats a value as `%v`, truncated to [`MAX_LENGTH`].
pub(crate) fn go_format(value: &Value) -> String {
    let mut text = Limited(String::new());
    // The only error is that the limit was reached.
    let _ = write_value(value, &mut text);
    text.0
}

struct Limited(String);

impl fmt::Write for Limited {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.push_str(text);
        if self.0.len() > MAX_LENGTH {
            let end = (0..=MAX_LENGTH).rev().find(|&at| self.0.is_char_boundary(at)).unwrap_or(0);
            self.0.truncate(end);
            return Err(fmt::Error);
        }
        Ok(())
    }
}

fn write_value(value: &Value, out: &mut impl fmt::Write) -> fmt::Result {
    match value {
        Value::Null => out.write_str("<nil>"),
        Value::Bool(value) => write!(out, "{value}"),
        Value::Number(number) => write!(out, "{number}"),
        Value::String(text) => out.write_str(text),
        Value::Array(list) => {
            out.write_char('[')?;
            for (index, element) in list.iter().enumerate() {
                if index > 0 {
                    out.write_char(' ')?;
                }
                write_value(element, out)?;
            }
            out.write_char(']')
        }
        Value::Object(object) => {
            let mut entries: Vec<_> = object.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            out.write_str("map[")?;
            for (index, (key, value)) in entries.into_iter().enumerate() {
                if index > 0 {
                    out.write_char(' ')?;
                }
                write!(out, "{key}:")?;
                write_value(value, out)?;
            }
            out.write_char(']')
        }
    }
}

/// The Go type of a value that was decoded without a schema.
pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
