//! Values as Go prints them in a sentence: `map[name:a ports:[80 81]]`.

use std::fmt;

use serde_json::Value;

/// How long a value may be in a sentence.
const MOST: usize = 4096;

/// A value as `%v` prints it; a long one is cut.
pub(crate) fn said(value: &Value) -> String {
    let mut text = Short(String::new());
    // It stops when it is full.
    let _ = say(value, &mut text);
    text.0
}

struct Short(String);

impl fmt::Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.push_str(text);
        if self.0.len() > MOST {
            let end = (0..=MOST).rev().find(|&at| self.0.is_char_boundary(at)).unwrap_or(0);
            self.0.truncate(end);
            return Err(fmt::Error);
        }
        Ok(())
    }
}

fn say(value: &Value, out: &mut impl fmt::Write) -> fmt::Result {
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
                say(element, out)?;
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
                say(value, out)?;
            }
            out.write_char(']')
        }
    }
}

/// The Go type of a value that was read without a schema.
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
