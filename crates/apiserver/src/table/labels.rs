//! Labels and selectors as text.

use super::view::{View, or};

/// A map of labels: `a=b,c=d`, or `<none>`.
pub fn labels(object: View<'_>, path: &str) -> String {
    let mut pairs: Vec<String> = object.entries(path).map(|(key, value)| format!("{key}={value}")).collect();
    pairs.sort_unstable();
    or(pairs.join(","), "<none>")
}

/// A label selector: `a=b,c in (d,e),!f`, or `<none>`, or `<error>` if it is invalid.
pub fn selector(object: View<'_>, path: &str) -> String {
    match requirements(object, path) {
        Some(text) => or(text, "<none>"),
        None => "<error>".to_owned(),
    }
}

/// The requirements of a label selector, ordered by label. None if one of them is invalid.
pub fn requirements(object: View<'_>, path: &str) -> Option<String> {
    let Some(selector) = object.at(path) else { return Some(String::new()) };
    let mut all: Vec<(&str, String)> =
        selector.entries("/matchLabels").map(|(key, value)| (key, format!("{key}={value}"))).collect();
    for expression in selector.items("/matchExpressions") {
        let key = expression.text("/key");
        let mut values = expression.texts("/values");
        values.sort_unstable();
        let text = match (expression.text("/operator"), values.as_slice()) {
            ("In", [_, ..]) => format!("{key} in ({})", values.join(",")),
            ("NotIn", [_, ..]) => format!("{key} notin ({})", values.join(",")),
            ("Exists", []) => key.to_owned(),
            ("DoesNotExist", []) => format!("!{key}"),
            _ => return None,
        };
        all.push((key, text));
    }
    all.sort_by_key(|(key, _)| *key);
    Some(all.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_that_no_label_can_meet_is_an_error() {
        let expression = |operator: &str, values: &[&str]| json!({ "s": { "matchExpressions": [{ "key": "a", "operator": operator, "values": values }] } });
        let table = [
            (json!({}), "<none>"),
            (json!({ "s": {} }), "<none>"),
            (expression("In", &["c", "b"]), "a in (b,c)"),
            (expression("In", &[]), "<error>"),
            (expression("Exists", &["b"]), "<error>"),
            (expression("Near", &["b"]), "<error>"),
        ];
        for (object, expected) in table {
            assert_eq!(selector(View::new(&object, Timestamp::UNIX_EPOCH), "/s"), expected, "{object}");
        }
    }
}
