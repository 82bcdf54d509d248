//! How Go prints values. Some of upstream's messages carry them.

use serde_json::Value;

/// A value as Go's `%v` prints it: `map[a:[1 2] b:<nil>]`.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => format!("[{}]", list.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            let entries: Vec<String> =
                entries.into_iter().map(|(key, value)| format!("{key}:{}", shown(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn maps_are_sorted_and_nothing_is_nil() {
        let value = json!({"b": null, "a": [1, "x", {"c": true}]});
        assert_eq!(shown(&value), "map[a:[1 x map[c:true]] b:<nil>]");
    }
}
