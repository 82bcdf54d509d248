//! Forms of names, under the names they have themselves.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plumb_validation::names;

use super::{Answer, Regexes};
use crate::value::Value;

/// The forms that have a function of their own.
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
            let known = CONSTANTS.into_iter().find(|own| *own == full);
            Ok(Value::Optional(known.map(|name| Box::new(Value::Format(name)))))
        }
        (name, []) => Ok(Value::Format(CONSTANTS.into_iter().find(|own| *own == name)?)),
        ("validate", [Value::Format(name), Value::Text(text)]) => {
            let wrong = complaints(name, text, regexes);
            let wrong: Vec<Value<'a>> = wrong.into_iter().map(Value::text).collect();
            Ok(Value::Optional((!wrong.is_empty()).then(|| Box::new(Value::list(wrong)))))
        }
        _ => return None,
    })
}

fn complaints(name: &str, text: &str, regexes: &Regexes) -> Vec<String> {
    match name.strip_prefix("format.").unwrap_or(name) {
        "dns1123Label" => names::dns_label(text),
        "dns1123LabelPrefix" => names::dns_label_prefix(text),
        "dns1123Subdomain" => names::dns_subdomain(text),
        "dns1123SubdomainPrefix" => names::dns_subdomain_prefix(text),
        "dns1035Label" => names::dns_1035_label(text),
        "dns1035LabelPrefix" => names::dns_1035_label_prefix(text),
        "labelValue" => names::label_value(text),
        "qualifiedName" => names::qualified_name(text),
        "uri" => super::url::complaint(text).into_iter().collect(),
        "uuid" => {
            let form = "(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}";
            single(whole(text, form, regexes), "does not match the UUID format")
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

fn single(fine: bool, why: &str) -> Vec<String> {
    if fine { Vec::new() } else { vec![why.to_owned()] }
}

fn whole(text: &str, pattern: &str, regexes: &Regexes) -> bool {
    regexes.with(&format!("^(?:{pattern})$"), |regex| regex.is_match(text)).unwrap_or(false)
}
