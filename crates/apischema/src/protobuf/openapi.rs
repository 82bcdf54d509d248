//! The document of OpenAPI 2.0 in protobuf: the messages of gnostic's package `openapi.v2`, in which client-go and kubectl
//! ask for `/openapi/v2`.
//!
//! Fields that the messages do not have are omitted, and so are fields with the zero value. Values of any type (defaults,
//! extensions) are YAML, of which JSON is a subset.

use serde_json::{Map, Value};

use super::wire::{FIXED64, put_bytes, put_int, put_tag};

/// The names of fields and their numbers.
type Numbers = &'static [(&'static str, u32)];

/// Encodes a document as a `Document`.
pub fn openapi_v2(document: &Value) -> Vec<u8> {
    let mut message = Message::new(document);
    message.texts(&[("swagger", 1), ("host", 3), ("basePath", 4)]);
    message.lists_of_texts(&[("schemes", 5), ("consumes", 6), ("produces", 7)]);
    message.one("info", 2, |info| {
        let mut message = Message::new(info);
        message.texts(&[("title", 1), ("version", 2), ("description", 3)]);
        message.finish(7)
    });
    message.one("paths", 8, |paths| named(paths, 2, path_item));
    message.one("definitions", 9, |definitions| named(definitions, 1, schema));
    message.finish(16)
}

fn path_item(item: &Value) -> Vec<u8> {
    let mut message = Message::new(item);
    message.texts(&[("$ref", 1)]);
    for (method, number) in
        [("get", 2), ("put", 3), ("post", 4), ("delete", 5), ("options", 6), ("head", 7), ("patch", 8)]
    {
        message.one(method, number, operation);
    }
    message.many("parameters", 9, parameter);
    message.finish(10)
}

fn operation(operation: &Value) -> Vec<u8> {
    let mut message = Message::new(operation);
    message.texts(&[("summary", 2), ("description", 3), ("operationId", 5)]);
    message.lists_of_texts(&[("tags", 1), ("produces", 6), ("consumes", 7), ("schemes", 10)]);
    message.many("parameters", 8, parameter);
    message.one("responses", 9, |responses| named(responses, 1, response));
    message.flags(&[("deprecated", 11)]);
    message.finish(13)
}

/// A `ParametersItem`.
fn parameter(parameter: &Value) -> Vec<u8> {
    if parameter.get("$ref").is_some() {
        return wrapped(2, &reference(parameter));
    }
    let place = parameter["in"].as_str().unwrap_or_default();
    let own = match place {
        "body" => {
            let mut message = Message::new(parameter);
            message.texts(&[("description", 1), ("name", 2), ("in", 3)]);
            message.flags(&[("required", 4)]);
            message.one("schema", 5, schema);
            wrapped(1, &message.finish(6))
        }
        // Those of headers and paths have the same numbers, those of queries and forms one field more.
        "header" => wrapped(2, &wrapped(1, &simple_parameter(parameter, 0))),
        "formData" => wrapped(2, &wrapped(2, &simple_parameter(parameter, 1))),
        "query" => wrapped(2, &wrapped(3, &simple_parameter(parameter, 1))),
        _ => wrapped(2, &wrapped(4, &simple_parameter(parameter, 0))),
    };
    wrapped(1, &own)
}

/// Encodes a parameter that is not a body. `after` is the number of additional fields before `type` in its message.
fn simple_parameter(parameter: &Value, after: u32) -> Vec<u8> {
    let mut message = Message::new(parameter);
    message.flags(&[("required", 1)]);
    message.texts(&[("in", 2), ("description", 3), ("name", 4)]);
    message.text("type", 5 + after);
    message.text("format", 6 + after);
    message.text("pattern", 16 + after);
    message.flag("uniqueItems", 19 + after);
    message.finish(22 + after)
}

/// A `ResponseValue`.
fn response(response: &Value) -> Vec<u8> {
    if response.get("$ref").is_some() {
        return wrapped(2, &reference(response));
    }
    let mut message = Message::new(response);
    message.texts(&[("description", 1)]);
    message.one("schema", 2, |own| wrapped(1, &schema(own)));
    wrapped(1, &message.finish(5))
}

fn reference(reference: &Value) -> Vec<u8> {
    let mut message = Message::new(reference);
    message.texts(&[("$ref", 1), ("description", 2)]);
    message.out
}

fn schema(value: &Value) -> Vec<u8> {
    let mut message = Message::new(value);
    message.texts(&[
        ("$ref", 1),
        ("format", 2),
        ("title", 3),
        ("description", 4),
        ("pattern", 13),
        ("discriminator", 26),
    ]);
    message.any("default", 5);
    message.doubles(&[("multipleOf", 6), ("maximum", 7), ("minimum", 9)]);
    message.flags(&[
        ("exclusiveMaximum", 8),
        ("exclusiveMinimum", 10),
        ("uniqueItems", 16),
        ("readOnly", 27),
    ]);
    message.integers(&[
        ("maxLength", 11),
        ("minLength", 12),
        ("maxItems", 14),
        ("minItems", 15),
        ("maxProperties", 17),
        ("minProperties", 18),
    ]);
    message.lists_of_texts(&[("required", 19)]);
    message.many("enum", 20, any);
    message.one("additionalProperties", 21, |own| match own {
        Value::Bool(allowed) => {
            let mut out = Vec::new();
            put_int(&mut out, 2, i64::from(*allowed));
            out
        }
        own => wrapped(1, &schema(own)),
    });
    message.one("type", 22, |own| each(own).flat_map(|name| text(1, name)).collect());
    message.one("items", 23, |own| each(own).flat_map(|item| wrapped(1, &schema(item))).collect());
    message.many("allOf", 24, schema);
    message.one("properties", 25, |properties| named(properties, 1, schema));
    message.one("externalDocs", 29, |docs| {
        let mut message = Message::new(docs);
        message.texts(&[("description", 1), ("url", 2)]);
        message.finish(3)
    });
    message.any("example", 30);
    message.finish(31)
}

/// The elements of a list; a value that is not a list is the only element.
fn each(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice).iter()
}

/// An `Any`.
fn any(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, 2, value.to_string().as_bytes());
    out
}

/// Encodes a map as a repeated field of names and messages. A property may have any name, even one that looks like an
/// extension.
fn named(map: &Value, number: u32, message: fn(&Value) -> Vec<u8>) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in map.as_object().into_iter().flatten() {
        put_bytes(&mut out, number, &pair(name, &message(value)));
    }
    out
}

/// Encodes a pair of a name and a message.
fn pair(name: &str, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, 1, name.as_bytes());
    put_bytes(&mut out, 2, message);
    out
}

/// Encodes a message whose only field is another message.
fn wrapped(number: u32, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 8);
    put_bytes(&mut out, number, message);
    out
}

fn text(number: u32, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(text) = value.as_str() {
        put_bytes(&mut out, number, text.as_bytes());
    }
    out
}

fn is_extension(name: &str) -> bool {
    name.starts_with("x-")
}

/// A message under construction.
struct Message<'a> {
    fields: Option<&'a Map<String, Value>>,
    out: Vec<u8>,
}

impl<'a> Message<'a> {
    fn new(value: &'a Value) -> Self {
        Self { fields: value.as_object(), out: Vec::new() }
    }

    fn field(&self, name: &str) -> Option<&'a Value> {
        self.fields.and_then(|fields| fields.get(name)).filter(|value| !value.is_null())
    }

    fn text(&mut self, name: &str, number: u32) {
        if let Some(text) = self.field(name).and_then(Value::as_str).filter(|text| !text.is_empty()) {
            put_bytes(&mut self.out, number, text.as_bytes());
        }
    }

    fn texts(&mut self, numbers: Numbers) {
        for (name, number) in numbers {
            self.text(name, *number);
        }
    }

    fn lists_of_texts(&mut self, numbers: Numbers) {
        for (name, number) in numbers {
            for element in self.field(name).into_iter().flat_map(each) {
                self.out.extend(text(*number, element));
            }
        }
    }

    fn flag(&mut self, name: &str, number: u32) {
        if self.field(name).and_then(Value::as_bool) == Some(true) {
            put_int(&mut self.out, number, 1);
        }
    }

    fn flags(&mut self, numbers: Numbers) {
        for (name, number) in numbers {
            self.flag(name, *number);
        }
    }

    fn integers(&mut self, numbers: Numbers) {
        for (name, number) in numbers {
            if let Some(value) = self.field(name).and_then(Value::as_i64).filter(|value| *value != 0) {
                put_int(&mut self.out, *number, value);
            }
        }
    }

    fn doubles(&mut self, numbers: Numbers) {
        for (name, number) in numbers {
            if let Some(value) = self.field(name).and_then(Value::as_f64).filter(|value| *value != 0.0) {
                put_tag(&mut self.out, *number, FIXED64);
                self.out.extend(value.to_le_bytes());
            }
        }
    }

    fn any(&mut self, name: &str, number: u32) {
        self.one(name, number, any);
    }

    fn one(&mut self, name: &str, number: u32, message: impl Fn(&Value) -> Vec<u8>) {
        if let Some(value) = self.field(name) {
            put_bytes(&mut self.out, number, &message(value));
        }
    }

    fn many(&mut self, name: &str, number: u32, message: fn(&Value) -> Vec<u8>) {
        for element in self.field(name).and_then(Value::as_array).into_iter().flatten() {
            put_bytes(&mut self.out, number, &message(element));
        }
    }

    /// Adds the extensions under a field number, and returns the message.
    fn finish(mut self, number: u32) -> Vec<u8> {
        for (name, value) in self.fields.into_iter().flatten().filter(|(name, _)| is_extension(name)) {
            put_bytes(&mut self.out, number, &pair(name, &any(value)));
        }
        self.out
    }
}
