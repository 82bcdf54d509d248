//! The OpenAPI format `duration`, which has more units than Go.

use super::{HOUR, MICROSECOND, MILLISECOND, MINUTE, NANOSECOND, SECOND, parse};

/// The units: abbreviations, the prefix of longer names, and nanoseconds.
const UNITS: [(&[&str], &str, u64); 8] = [
    (&["ns"], "nano", NANOSECOND),
    (&["us", "\u{b5}s"], "micro", MICROSECOND),
    (&["ms"], "milli", MILLISECOND),
    (&["s"], "sec", SECOND),
    (&["m"], "min", MINUTE),
    (&["h", "hr"], "hour", HOUR),
    (&["d"], "day", 24 * HOUR),
    (&["w", "wk"], "week", 7 * 24 * HOUR),
];

/// Parses the OpenAPI format `duration`, which schemas of custom resources use: a Go duration, or integers with units up to
/// weeks (`1d`, `2 weeks 3 days`). Returns nanoseconds.
///
/// SPEC: kube-openapi skips unknown units beside known ones and lets the sum overflow; here both are invalid.
pub fn parse_openapi(text: &str) -> Option<i64> {
    if let Ok(nanos) = parse(text) {
        return Some(nanos);
    }
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (number, after) = super::split_digits(rest);
        let after = after.trim_start();
        let length = after.find(|c: char| !c.is_ascii_alphabetic() && c != '\u{b5}').unwrap_or(after.len());
        let (unit, after) = after.split_at(length);
        let part = number.parse::<u64>().ok()?.checked_mul(nanos(&unit.to_lowercase())?)?;
        total = total.checked_add(part)?;
        rest = after.trim_start();
    }
    i64::try_from(total).ok()
}

/// The nanoseconds of a unit.
fn nanos(unit: &str) -> Option<u64> {
    let found = UNITS.iter().find(|(short, word, _)| short.contains(&unit) || unit.starts_with(word));
    found.map(|(_, _, nanos)| *nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_weeks_and_unit_names_are_accepted() {
        const HOURS: i64 = 3_600_000_000_000;
        for (text, nanos) in [
            ("1h30m", Some(HOURS * 3 / 2)),
            ("-1.5h", Some(-HOURS * 3 / 2)),
            ("1d", Some(24 * HOURS)),
            ("2 weeks 3 days", Some((2 * 7 + 3) * 24 * HOURS)),
            (" 1 Hour ", Some(HOURS)),
            ("3 micros", Some(3_000)),
            ("7\u{b5}s", Some(7_000)),
            ("", None),
            (" ", None),
            ("1", None),
            ("1.5d", None),
            ("-1d", None),
            ("1 fortnight", None),
            ("days", None),
            ("999999999999999999 weeks", None),
        ] {
            assert_eq!(parse_openapi(text), nanos, "{text}");
        }
    }
}
