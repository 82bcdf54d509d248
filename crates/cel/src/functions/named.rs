//! The named formats (`format.dns1123Label()`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plumb_validation::names;

use super::{Answer, Regexes};
use crate::value::Value;

/// The formats, each of which has a function.
pub(super) const CONSTANTS: [&str; 13] = [
    "format.dns1123Label",
    "format.dns1123Subdomain",
    "format.dns1035Label",
    "format.dns1123LabelPrefix",
    "format.dns1123SubdomainPrefix",
    "format.dns1035LabelPrefix",
    "format.qualifiedName",
    "format.labelValue",
    "format.uri",
    "format.uuid",
    "format.byte",
    "format.date",
    "format.datetime",
];

pub(super) fn call<'a>(function: &str, args: &[Value<'a>], regexes: &Regexes) -> Option<Answer<'a>> {
    Some(match (function, args) {
        ("format.named", [Value::Text(name)]) => {
            let full = format!("format.{name}");
            let known = CONSTANTS.into_iter().find(|known| *known == full);
            Ok(Value::Optional(known.map(|name| Box::new(Value::Format(name)))))
        }
        (name, []) => Ok(Value::Format(CONSTANTS.into_iter().find(|known| *known == name)?)),
        ("validate", [Value::Format(name), Value::Text(text)]) => {
            let messages = violations(name, text, regexes);
            let messages: Vec<Value<'a>> = messages.into_iter().map(Value::text).collect();
            Ok(Value::Optional((!messages.is_empty()).then(|| Box::new(Value::list(messages)))))
        }
        _ => return None,
    })
}

fn violations(name: &str, text: &str, regexes: &Regexes) -> Vec<String> {
    match name.strip_prefix("format.").unwrap_or(name) {
        "dns1123Label" => names::dns_label(text),
        "dns1123LabelPrefix" => names::dns_label_prefix(text),
        "dns1123Subdomain" => names::dns_subdomain(text),
        "dns1123SubdomainPrefix" => names::dns_subdomain_prefix(text),
        "dns1035Label" => names::dns_1035_label(text),
        "dns1035LabelPrefix" => names::dns_1035_label_prefix(text),
        "labelValue" => names::label_value(text),
        "qualifiedName" => names::qualified_name(text),
        "uri" => super::url::parse_error(text).into_iter().collect(),
        "uuid" => {
            let form = "(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}";
            single(matches_whole(text, form, regexes), "does not match the UUID format")
        }
        "byte" => single(!text.is_empty() && STANDARD.decode(text).is_ok(), "invalid base64"),
        "date" => single(text.parse::<jiff::civil::Date>().is_ok(), "invalid date"),
        "datetime" => {
            let two_digits = text.as_bytes().get(13) == Some(&b':');
            let moment = super::parse_timestamp(&text.to_ascii_uppercase());
            single(two_digits && moment.is_some(), "invalid datetime")
        }
        _ => Vec::new(),
    }
}

/// The message if the text is invalid.
fn single(is_valid: bool, message: &str) -> Vec<String> {
    if is_valid { Vec::new() } else { vec![message.to_owned()] }
}

fn matches_whole(text: &str, pattern: &str, regexes: &Regexes) -> bool {
    regexes.with(&format!("^(?:{pattern})$"), |regex| regex.is_match(text)).unwrap_or(false)
}
