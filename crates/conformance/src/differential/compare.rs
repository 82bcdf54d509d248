//! Differences between two responses.

use std::fmt;

use serde_json::Value;

use super::mask::Mask;
use super::response::Response;

/// A difference between two responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its location: `code`, `message`, `cause spec.containers`, `object /spec/replicas`, …
    pub at: String,
    /// The value of the reference.
    pub reference: Option<String>,
    /// The value of the subject.
    pub subject: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |side: &Option<String>| side.clone().unwrap_or_else(|| "(nothing)".to_owned());
        write!(
            f,
            "{}\n      kubernetes: {}\n      plumb:      {}",
            self.at,
            shown(&self.reference),
            shown(&self.subject)
        )
    }
}

/// A response and its mask.
pub(super) type Side<'a> = (&'a Response, &'a Mask);

/// All differences between two responses.
pub(super) fn differences(reference: Side<'_>, subject: Side<'_>) -> Vec<Difference> {
    let mut found = Vec::new();
    if reference.0.code != subject.0.code || subject.0.code == 0 {
        differ(&mut found, "code", Some(in_a_line(reference)), Some(in_a_line(subject)));
        return found;
    }
    warnings(&mut found, reference, subject);
    if reference.0.object().is_some() && subject.0.object().is_some() {
        let [reference, subject] = [reference, subject].map(|(response, mask)| mask.object(&response.body));
        values(&mut found, "", Some(&reference), Some(&subject));
        return found;
    }
    refusals(&mut found, reference, subject);
    found
}

/// A refusal in one line.
fn in_a_line((response, mask): Side<'_>) -> String {
    if response.is_success() {
        return response.code.to_string();
    }
    format!("{} {}: {}", response.code, response.text("reason"), mask.text(response.text("message")))
}

fn differ(found: &mut Vec<Difference>, at: &str, reference: Option<String>, subject: Option<String>) {
    found.push(Difference { at: at.to_owned(), reference, subject });
}

fn warnings(found: &mut Vec<Difference>, reference: Side<'_>, subject: Side<'_>) {
    let masked = |(response, mask): Side<'_>| -> Vec<(String, String)> {
        response.warnings.iter().map(|warning| ("warning".to_owned(), mask.text(warning))).collect()
    };
    lists(found, "order of warnings", masked(reference), masked(subject));
}

fn refusals(found: &mut Vec<Difference>, reference: Side<'_>, subject: Side<'_>) {
    let masked = |(response, mask): Side<'_>, field: &str| mask.value(&response.body[field]);
    let about = |(response, _): Side<'_>| response.body["details"]["kind"].clone();
    if about(reference) != about(subject) {
        return differ(found, "refusal", Some(in_a_line(reference)), Some(in_a_line(subject)));
    }
    for field in ["kind", "status", "reason"] {
        let (reference, subject) = (masked(reference, field), masked(subject, field));
        values(found, field, Some(&reference), Some(&subject));
    }
    for field in ["name", "group", "retryAfterSeconds"] {
        let detail = |(response, mask): Side<'_>| mask.value(&response.body["details"][field]);
        let (reference, subject) = (detail(reference), detail(subject));
        values(found, &format!("details {field}"), Some(&reference), Some(&subject));
    }
    let causes = |(response, mask): Side<'_>| -> Vec<(String, String)> {
        let causes = response.body["details"]["causes"].as_array().into_iter().flatten();
        let text = |cause: &Value, field: &str| mask.text(cause[field].as_str().unwrap_or_default());
        causes
            .map(|cause| {
                let at = format!("cause {}", text(cause, "field"));
                let message = without_order(cause["message"].as_str().unwrap_or_default(), mask);
                (at, format!("{}: {message}", text(cause, "reason")))
            })
            .collect()
    };
    let before = found.len();
    lists(found, "order of causes", causes(reference), causes(subject));
    // Where there are causes, the message is made of them; one that shows an object shows it in any order.
    let shows_object = causes(reference).iter().any(|(at, _)| at == "cause patch");
    if found.len() == before && !shows_object {
        let [one, other] = [reference, subject].map(|side| masked(side, "message"));
        if listed(&one) != listed(&other) {
            values(found, "message", Some(&one), Some(&other));
        }
    }
}

/// A message with what it lists in one order: limits are looked at in the order of a map, and so are the fields of what
/// is applied.
fn listed(message: &Value) -> (&str, Vec<&str>) {
    let text = message.as_str().unwrap_or_default();
    let limits =
        text.split_once("is forbidden: [").map(|(head, list)| (head, list.trim_end_matches(']'), ", "));
    let fields = || text.split_once(": errors:\n  ").map(|(head, list)| (head, list, "\n  "));
    let Some((head, list, separator)) = limits.or_else(fields) else { return (text, Vec::new()) };
    let mut parts: Vec<&str> = list.split(separator).collect();
    parts.sort_unstable();
    (head, parts)
}

/// Whether the reference may respond otherwise to the same request: it iterates over maps in random order, and stops
/// at the first unknown field.
pub(super) fn may_change(difference: &Difference) -> bool {
    const APPLIED: &str = "\"failed to create typed patch object ";
    let applied = difference.reference.as_deref().is_some_and(|text| text.starts_with(APPLIED));
    difference.at == "order of causes" || (difference.at == "message" && applied)
}

/// A message that shows a whole object, which was written in an order of the server's own choice, with its fields in
/// one order and without what is never compared.
fn without_order(message: &str, mask: &Mask) -> String {
    const START: &str = "Invalid value: ";
    let shown = || {
        let quoted = message.strip_prefix(START)?;
        let mut texts = serde_json::Deserializer::from_str(quoted).into_iter::<String>();
        let text = texts.next()?.ok()?;
        let object: Value = serde_json::from_str(&text).ok()?;
        let object = object.is_object().then(|| mask.object(&object))?;
        Some(format!("{START}{object}{}", mask.text(&quoted[texts.byte_offset()..])))
    };
    shown().unwrap_or_else(|| mask.text(message))
}

/// Whether two refusals have the same causes in the same order, but for those about one map or about the resources of
/// one container: the reference reads maps in an order of its own choice each time.
pub(super) fn ordered_alike(reference: Side<'_>, subject: Side<'_>) -> bool {
    let causes = |(response, mask): Side<'_>| {
        let causes = response.body["details"]["causes"].as_array().into_iter().flatten();
        let text = |cause: &Value, field: &str| mask.text(cause[field].as_str().unwrap_or_default());
        let mut causes: Vec<(String, String)> =
            causes.map(|cause| (text(cause, "field"), text(cause, "message"))).collect();
        // What is asked of defined kinds is all in maps.
        let defined = response.body["details"]["kind"] == "Widget";
        for run in causes.chunk_by_mut(|one, other| defined || holder(&one.0) == holder(&other.0)) {
            run.sort_unstable();
        }
        causes
    };
    causes(reference) == causes(subject)
}

/// What a path is about: the map that its key is in, or the resources of a container.
fn holder(path: &str) -> &str {
    if let Some(place) = path.find(".resources") {
        return &path[..place];
    }
    let key = path
        .match_indices('[')
        .find(|(place, _)| !path[place + 1..].starts_with(|letter: char| letter.is_ascii_digit()));
    key.map_or(path, |(place, _)| &path[..place])
}

/// Compares lists of things that stand somewhere: what is only in one, and if nothing is, whether the order is the
/// same.
pub(super) fn lists(
    found: &mut Vec<Difference>,
    order: &str,
    reference: Vec<(String, String)>,
    subject: Vec<(String, String)>,
) {
    if reference == subject {
        return;
    }
    let mut only_subject = subject.clone();
    let mut only_reference = Vec::new();
    for item in &reference {
        match only_subject.iter().position(|other| other == item) {
            Some(place) => drop(only_subject.remove(place)),
            None => only_reference.push(item.clone()),
        }
    }
    if only_reference.is_empty() && only_subject.is_empty() {
        // Some rules are asked twice; what counts is where each refusal comes first.
        let first = |list: &[(String, String)]| {
            let mut first: Vec<(String, String)> = Vec::new();
            for item in list {
                if !first.contains(item) {
                    first.push(item.clone());
                }
            }
            first
        };
        if first(&reference) == first(&subject) {
            return;
        }
        let text = |list: &[(String, String)]| {
            list.iter().map(|(at, text)| format!("{at}: {text}")).collect::<Vec<_>>().join(" | ")
        };
        differ(found, order, Some(text(&reference)), Some(text(&subject)));
        return;
    }
    for (at, text) in only_reference {
        let place = only_subject.iter().position(|(other, _)| *other == at);
        let other = place.map(|place| only_subject.remove(place).1);
        differ(found, &at, Some(text), other);
    }
    for (at, text) in only_subject {
        differ(found, &at, None, Some(text));
    }
}

/// Compares two values, down to where they differ.
pub(super) fn values(
    found: &mut Vec<Difference>,
    at: &str,
    reference: Option<&Value>,
    subject: Option<&Value>,
) {
    if reference == subject {
        return;
    }
    match (reference, subject) {
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            let keys = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
            for key in keys {
                let key_at = if at.is_empty() { format!("object /{key}") } else { format!("{at}/{key}") };
                values(found, &key_at, one.get(key), other.get(key));
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) if one.len() == other.len() => {
            for (i, (one, other)) in one.iter().zip(other).enumerate() {
                values(found, &format!("{at}/{i}"), Some(one), Some(other));
            }
        }
        _ => {
            let text = |value: Option<&Value>| {
                value.map(|value| match value {
                    Value::String(text) => format!("{text:?}"),
                    other => other.to_string(),
                })
            };
            differ(found, at, text(reference), text(subject));
        }
    }
}
