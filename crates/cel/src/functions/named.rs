//! Forms of names, under the names they have themselves.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

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
    const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
    const OLD_LABEL: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
    const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
    let bare = text.strip_suffix('-').map_or_else(|| text.to_owned(), |rest| format!("{rest}a"));
    let subdomain = format!(r"{LABEL}(\.{LABEL})*");
    match name.strip_prefix("format.").unwrap_or(name) {
        "dns1123Label" => matched(text, LABEL, 63, &says_label(), regexes),
        "dns1123LabelPrefix" => matched(&bare, LABEL, 63, &says_label(), regexes),
        "dns1123Subdomain" => matched(text, &subdomain, 253, &says_subdomain(), regexes),
        "dns1123SubdomainPrefix" => matched(&bare, &subdomain, 253, &says_subdomain(), regexes),
        "dns1035Label" => matched(text, OLD_LABEL, 63, &says_old_label(), regexes),
        "dns1035LabelPrefix" => matched(&bare, OLD_LABEL, 63, &says_old_label(), regexes),
        "labelValue" if text.is_empty() => Vec::new(),
        "labelValue" => matched(text, QUALIFIED, 63, &says_value(), regexes),
        "qualifiedName" => {
            let (prefix, name) = text.split_once('/').map_or((None, text), |(p, name)| (Some(p), name));
            let mut all = Vec::new();
            if let Some(prefix) = prefix {
                if prefix.is_empty() {
                    all.push("prefix part must be non-empty".to_owned());
                } else {
                    let wrong = matched(prefix, &subdomain, 253, &says_subdomain(), regexes);
                    all.extend(wrong.into_iter().map(|why| format!("prefix part {why}")));
                }
            }
            if name.is_empty() {
                all.push("name part must be non-empty".to_owned());
            }
            let wrong = matched(name, QUALIFIED, 63, &says_name(), regexes);
            all.extend(wrong.into_iter().map(|why| format!("name part {why}")));
            all
        }
        "uri" => single(text.contains("://") || text.starts_with('/'), "invalid URI for request"),
        "uuid" => {
            let form = "(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}";
            single(whole(text, form, regexes), "does not match the UUID format")
        }
        "byte" => single(STANDARD.decode(text).is_ok(), "invalid base64"),
        "date" => single(text.parse::<jiff::civil::Date>().is_ok(), "invalid date"),
        "datetime" => single(super::parse_timestamp(text).is_some(), "invalid datetime"),
        _ => Vec::new(),
    }
}

fn single(fine: bool, why: &str) -> Vec<String> {
    if fine { Vec::new() } else { vec![why.to_owned()] }
}

fn whole(text: &str, pattern: &str, regexes: &Regexes) -> bool {
    regexes.with(&format!("^(?:{pattern})$"), |regex| regex.is_match(text)).unwrap_or(false)
}

fn matched(text: &str, pattern: &str, most: usize, rule: &str, regexes: &Regexes) -> Vec<String> {
    let mut all = Vec::new();
    if text.len() > most {
        all.push(format!("must be no more than {most} bytes"));
    }
    if !whole(text, pattern, regexes) {
        all.push(rule.to_owned());
    }
    all
}

fn says_label() -> String {
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')".to_owned()
}

fn says_subdomain() -> String {
    r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')".to_owned()
}

fn says_old_label() -> String {
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')".to_owned()
}

fn says_value() -> String {
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')".to_owned()
}

fn says_name() -> String {
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')".to_owned()
}
