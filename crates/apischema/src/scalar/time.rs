//! Timestamps, as Go parses and formats them in JSON.
//!
//! The module is not based on `jiff`, since error messages name the element of Go's layout that does not parse, and Go accepts
//! what `jiff` rejects: an hour with one digit, offsets up to 24:60.

/// Go's zero time, the first of January of the year 1, in seconds since the epoch.
pub(crate) const NONE: i64 = -62_135_596_800;
/// The first and the last second of the years 0 to 9999, which have four digits.
const FIRST: i64 = -62_167_219_200;
const LAST: i64 = 253_402_300_799;

const SECONDS_LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
const MICROS_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// The precision of a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    Seconds,
    Micros,
}

/// A timestamp: seconds since the epoch, and the nanoseconds of that second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) seconds: i64,
    pub(crate) nanos: u32,
}

impl Moment {
    /// Whether it is Go's zero time.
    pub(crate) fn is_none(self) -> bool {
        self.seconds == NONE && self.nanos == 0
    }

    /// The JSON form in UTC; `None` if the year does not have four digits.
    pub(crate) fn text(self, precision: Precision) -> Option<String> {
        if !(FIRST..=LAST).contains(&self.seconds) {
            return None;
        }
        let days = self.seconds.div_euclid(86_400);
        let second = self.seconds.rem_euclid(86_400);
        let (year, month, day) = civil(days);
        let hour = second / 3600;
        let minute = second / 60 % 60;
        let second = second % 60;
        let head = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
        Some(match precision {
            Precision::Seconds => head + "Z",
            Precision::Micros => format!("{head}.{:06}Z", self.nanos / 1000),
        })
    }
}

/// Why a string is not a timestamp, with Go's messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TimeError {
    /// An element of the layout is missing.
    #[error("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {element:?}")]
    Element { text: String, layout: &'static str, rest: String, element: &'static str },
    /// An element has a number that is too large or too small.
    #[error("parsing time {text:?}: {element} out of range")]
    OutOfRange { text: String, element: &'static str },
    /// The timestamp is followed by other text.
    #[error("parsing time {text:?}: extra text: {extra:?}")]
    ExtraText { text: String, extra: String },
}

/// Parses a timestamp.
pub(crate) fn parse(text: &str, precision: Precision) -> Result<Moment, TimeError> {
    let layout = match precision {
        Precision::Seconds => SECONDS_LAYOUT,
        Precision::Micros => MICROS_LAYOUT,
    };
    let mut reader = Reader { text, rest: text, layout };
    let year = reader.number("2006", 4)?;
    reader.literal("-")?;
    let month = reader.number("01", 2)?;
    reader.in_range("month", (1..=12).contains(&month))?;
    reader.literal("-")?;
    let day = reader.number("02", 2)?;
    reader.literal("T")?;
    let hour = reader.hour()?;
    reader.in_range("hour", hour < 24)?;
    reader.literal(":")?;
    let minute = reader.number("04", 2)?;
    reader.in_range("minute", minute < 60)?;
    reader.literal(":")?;
    let second = reader.number("05", 2)?;
    reader.in_range("second", second < 60)?;
    let nanos = match precision {
        Precision::Seconds => reader.any_fraction(),
        Precision::Micros => reader.micros()?,
    };
    let offset = reader.offset()?;
    if !reader.rest.is_empty() {
        return Err(TimeError::ExtraText { text: text.to_owned(), extra: reader.rest.to_owned() });
    }
    reader.in_range("day", (1..=days_of(year, month)).contains(&day))?;
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
    Ok(Moment { seconds, nanos })
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl Reader<'_> {
    fn refuse<T>(&self, element: &'static str) -> Result<T, TimeError> {
        let text = self.text.to_owned();
        let layout = self.layout;
        let rest = self.rest.to_owned();
        Err(TimeError::Element { text, layout, rest, element })
    }

    fn in_range(&self, element: &'static str, fits: bool) -> Result<(), TimeError> {
        if fits { Ok(()) } else { Err(TimeError::OutOfRange { text: self.text.to_owned(), element }) }
    }

    fn literal(&mut self, literal: &'static str) -> Result<(), TimeError> {
        match self.rest.strip_prefix(literal) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => self.refuse(literal),
        }
    }

    fn number(&mut self, element: &'static str, digits: usize) -> Result<i64, TimeError> {
        match self.rest.split_at_checked(digits) {
            Some((head, rest)) if head.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.rest = rest;
                Ok(head.bytes().fold(0, |sum, byte| sum * 10 + i64::from(byte - b'0')))
            }
            _ => self.refuse(element),
        }
    }

    /// Reads the hour, the only element that Go also accepts with a single digit.
    fn hour(&mut self) -> Result<i64, TimeError> {
        let digits = self.rest.bytes().take(2).take_while(u8::is_ascii_digit).count();
        self.number("15", digits.max(1))
    }

    fn any_fraction(&mut self) -> u32 {
        let Some(tail) = self.rest.strip_prefix(['.', ',']) else { return 0 };
        let digits = tail.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return 0;
        }
        let nanos = tail[..digits].bytes().chain(std::iter::repeat(b'0')).take(9);
        self.rest = &tail[digits..];
        nanos.fold(0, |sum, byte| sum * 10 + u32::from(byte - b'0'))
    }

    fn micros(&mut self) -> Result<u32, TimeError> {
        let element = ".000000";
        let Some(tail) = self.rest.strip_prefix(['.', ',']) else { return self.refuse(element) };
        match tail.split_at_checked(6) {
            Some((head, rest)) if head.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.rest = rest;
                Ok(head.bytes().fold(0, |sum, byte| sum * 10 + u32::from(byte - b'0')) * 1000)
            }
            _ => self.refuse(element),
        }
    }

    /// Reads the UTC offset, in seconds.
    fn offset(&mut self) -> Result<i64, TimeError> {
        let element = "Z07:00";
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let sign = match self.rest.as_bytes() {
            [b'+', _, _, b':', _, _, ..] => 1,
            [b'-', _, _, b':', _, _, ..] => -1,
            _ => return self.refuse(element),
        };
        let pair = |at: usize| {
            self.rest.get(at..at + 2).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let (Some(hours), Some(minutes)) = (pair(1), pair(4)) else { return self.refuse(element) };
        let (hours, minutes): (i64, i64) = (hours.parse().unwrap_or(0), minutes.parse().unwrap_or(0));
        self.in_range("time zone offset hour", hours <= 24)?;
        self.in_range("time zone offset minute", minutes <= 60)?;
        self.rest = &self.rest[6..];
        Ok(sign * (hours * 3600 + minutes * 60))
    }
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since the epoch. Years are counted from March, so that the leap day is the last of its year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of a day since the epoch.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day = days.rem_euclid(146_097);
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::{Precision, parse};

    #[test]
    fn moments_read_and_write_as_go_does() {
        for (text, written) in [
            ("2026-11-14T10:00:00Z", "2026-11-14T10:00:00Z"),
            ("2026-11-14T10:00:00.999Z", "2026-11-14T10:00:00Z"),
            ("2026-11-14T10:00:00+02:00", "2026-11-14T08:00:00Z"),
            ("2024-02-29T23:59:59-01:00", "2024-03-01T00:59:59Z"),
            ("1969-12-31T23:59:59Z", "1969-12-31T23:59:59Z"),
            ("2026-11-14T1:00:00Z", "2026-11-14T01:00:00Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ] {
            assert_eq!(parse(text, Precision::Seconds).unwrap().text(Precision::Seconds).unwrap(), written);
        }
        let micros = parse("2026-11-14T10:00:00.123456Z", Precision::Micros).unwrap();
        assert_eq!(micros.text(Precision::Micros).unwrap(), "2026-11-14T10:00:00.123456Z");
    }

    #[test]
    fn an_invalid_timestamp_has_the_message_of_go() {
        for (text, sentence) in [
            ("now", r#"parsing time "now" as "2006-01-02T15:04:05Z07:00": cannot parse "now" as "2006""#),
            ("", r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#),
            ("2026-13-01T00:00:00Z", r#"parsing time "2026-13-01T00:00:00Z": month out of range"#),
            ("2026-02-30T00:00:00Z", r#"parsing time "2026-02-30T00:00:00Z": day out of range"#),
            ("2026-11-14T10:00:00Zx", r#"parsing time "2026-11-14T10:00:00Zx": extra text: "x""#),
        ] {
            assert_eq!(parse(text, Precision::Seconds).unwrap_err().to_string(), sentence);
        }
        assert!(parse("2026-11-14T10:00:00.1234567Z", Precision::Micros).is_err());
        assert!(parse("2026-11-14T10:00:00é", Precision::Seconds).is_err());
    }
}
