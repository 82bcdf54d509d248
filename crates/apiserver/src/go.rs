//! How Go prints values. Some of upstream's messages carry them.

use std::fmt::Write as _;
use std::time::Duration;

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

/// A duration as Go prints it: `1h0m0.5s`, `1.5ms`, `0s`.
pub(crate) fn duration(length: Duration) -> String {
    let nanos = length.as_nanos();
    let (seconds, rest) = (length.as_secs(), length.subsec_nanos());
    if seconds == 0 && rest > 0 {
        let (unit, digits, name) = match nanos {
            1_000_000.. => (1_000_000, 6, "ms"),
            1_000.. => (1_000, 3, "µs"),
            _ => (1, 0, "ns"),
        };
        return format!("{}{}{name}", nanos / unit, fraction(nanos % unit, digits));
    }
    let mut text = String::new();
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    if hours > 0 {
        let _ = write!(text, "{hours}h");
    }
    if hours > 0 || minutes > 0 {
        let _ = write!(text, "{minutes}m");
    }
    text + &format!("{}{}s", seconds % 60, fraction(rest.into(), 9))
}

/// What follows the point of a number, without the zeros at its end; nothing if it is zero.
fn fraction(rest: u128, digits: usize) -> String {
    if rest == 0 {
        return String::new();
    }
    format!(".{rest:0digits$}").trim_end_matches('0').to_owned()
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

    #[test]
    fn durations_are_written_in_the_units_they_need() {
        for (nanos, text) in [
            (0, "0s"),
            (7, "7ns"),
            (1_500, "1.5µs"),
            (2_000_000, "2ms"),
            (15_000_000_000, "15s"),
            (10_040_000_000, "10.04s"),
            (60_000_000_000, "1m0s"),
            (3_600_500_000_000, "1h0m0.5s"),
        ] {
            assert_eq!(duration(Duration::from_nanos(nanos)), text);
        }
    }
}
