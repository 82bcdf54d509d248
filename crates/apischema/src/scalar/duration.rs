//! Spans of time, as Go reads and writes them: `1h30m0s`, `250ms`.

use std::fmt::Write as _;

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads a span; the error is Go's sentence about it.
pub(crate) fn parse(text: &str) -> Result<i64, String> {
    let wrong = || format!("time: invalid duration {text:?}");
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let whole = digits(rest);
        let mut tail = &rest[whole.len()..];
        let mut fraction = "";
        if let Some(after) = tail.strip_prefix('.') {
            fraction = digits(after);
            tail = &after[fraction.len()..];
        }
        if whole.is_empty() && fraction.is_empty() {
            return Err(wrong());
        }
        let length = tail.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, after) = tail.split_at(length);
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {text:?}"));
        }
        let Some((_, nanos)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!("time: unknown unit {unit:?} in duration {text:?}"));
        };
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| wrong())? };
        total = whole
            .checked_mul(i128::from(*nanos))
            .and_then(|part| part.checked_add(total))
            .filter(|total| *total <= i128::from(i64::MAX) + 1)
            .ok_or_else(wrong)?;
        let mut share = i128::from(*nanos);
        for digit in fraction.bytes() {
            share /= 10;
            total += share * i128::from(digit - b'0');
        }
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).map_err(|_| wrong())
}

fn digits(text: &str) -> &str {
    &text[..text.bytes().take_while(u8::is_ascii_digit).count()]
}

/// A span in nanoseconds as JSON has it.
pub(crate) fn text(nanos: i64) -> String {
    let magnitude = nanos.unsigned_abs();
    let sign = if nanos < 0 { "-" } else { "" };
    let mut out = String::from(sign);
    if magnitude == 0 {
        return "0s".to_owned();
    }
    let (unit, name) = match magnitude {
        0..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let (whole, part) = (magnitude / unit, magnitude % unit);
    let whole = if unit == 1_000_000_000 {
        let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
        if hours > 0 {
            let _ = write!(out, "{hours}h");
        }
        if hours > 0 || minutes > 0 {
            let _ = write!(out, "{minutes}m");
        }
        seconds
    } else {
        whole
    };
    let _ = write!(out, "{whole}");
    if part > 0 {
        let width = unit.ilog10() as usize;
        let fraction = format!("{part:0width$}");
        let _ = write!(out, ".{}", fraction.trim_end_matches('0'));
    }
    out + name
}

#[cfg(test)]
mod tests {
    use super::{parse, text};

    #[test]
    fn spans_read_and_write_as_go_does() {
        for (given, nanos, written) in [
            ("0", 0, "0s"),
            ("30s", 30_000_000_000, "30s"),
            ("1h", 3_600_000_000_000, "1h0m0s"),
            ("1.5h", 5_400_000_000_000, "1h30m0s"),
            ("90m1.5s", 5_401_500_000_000, "1h30m1.5s"),
            ("-250ms", -250_000_000, "-250ms"),
            ("1500us", 1_500_000, "1.5ms"),
            ("7ns", 7, "7ns"),
        ] {
            assert_eq!(parse(given), Ok(nanos), "{given}");
            assert_eq!(text(nanos), written);
        }
        for given in ["", "x", "5", "1.h.", "9999999999999999h", "3d"] {
            assert!(parse(given).is_err(), "{given}");
        }
        assert_eq!(parse(&text(i64::MIN)), Ok(i64::MIN));
    }
}
