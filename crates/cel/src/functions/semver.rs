//! Versions of software, in the manner of semver.org.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::{Answer, Regexes, fail};
use crate::value::Value;

/// A version.
#[derive(Clone, Debug)]
pub struct Semver {
    numbers: [u64; 3],
    /// What comes before the release proper, part by part.
    pre: Vec<String>,
    build: String,
}

impl fmt::Display for Semver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        if !self.pre.is_empty() {
            write!(f, "-{}", self.pre.join("."))?;
        }
        if !self.build.is_empty() {
            write!(f, "+{}", self.build)?;
        }
        Ok(())
    }
}

impl Semver {
    /// Which is newer; what a build says of itself does not count.
    pub(crate) fn cmp(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => {
                let parts = self.pre.iter().zip(&other.pre).map(|(a, b)| compare_parts(a, b));
                parts
                    .into_iter()
                    .find(|order| *order != Ordering::Equal)
                    .unwrap_or_else(|| self.pre.len().cmp(&other.pre.len()))
            }
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
        let (core, pre) = rest.split_once('-').map_or((rest, None), |(core, pre)| (core, Some(pre)));
        let mut numbers = [0; 3];
        let mut parts = core.split('.');
        for number in &mut numbers {
            let part = parts.next()?;
            let plain =
                part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
            *number = part.parse().ok().filter(|_| plain)?;
        }
        if parts.next().is_some() {
            return None;
        }
        let word =
            |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        let pre: Vec<String> = match pre {
            None => Vec::new(),
            Some(pre) => {
                pre.split('.').map(|part| word(&part).then(|| part.to_owned())).collect::<Option<_>>()?
            }
        };
        let numeric = |part: &String| {
            part.len() > 1 && part.starts_with('0') && part.bytes().all(|b| b.is_ascii_digit())
        };
        if pre.iter().any(numeric) || build.is_some_and(|build| !build.split('.').all(|part| word(&part))) {
            return None;
        }
        Some(Self { numbers, pre, build: build.unwrap_or_default().to_owned() })
    }

    /// The same for what people write: `v1.2`, `01.2.3`.
    fn parse_leniently(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let end = text.find(['-', '+']).unwrap_or(text.len());
        let (core, rest) = text.split_at(end);
        let mut parts: Vec<String> = core
            .split('.')
            .map(|part| {
                let stripped = part.trim_start_matches('0');
                if stripped.is_empty() && !part.is_empty() { "0".to_owned() } else { stripped.to_owned() }
            })
            .collect();
        if parts.len() < 3 && !rest.is_empty() {
            return None;
        }
        while parts.len() < 3 {
            parts.push("0".to_owned());
        }
        Self::parse(&format!("{}{rest}", parts.join(".")))
    }
}

fn compare_parts(a: &str, b: &str) -> Ordering {
    match (a.parse::<u64>(), b.parse::<u64>()) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => a.cmp(b),
    }
}

/// Why a text is no version.
fn why(text: &str) -> String {
    if text.is_empty() {
        return "Version string empty".to_owned();
    }
    let parts: Vec<&str> = text.splitn(3, '.').collect();
    if parts.len() < 3 {
        return "No Major.Minor.Patch elements found".to_owned();
    }
    let patch = parts[2].split(['-', '+']).next().unwrap_or_default();
    for (part, lower, upper) in
        [(parts[0], "major", "Major"), (parts[1], "minor", "Minor"), (patch, "patch", "Patch")]
    {
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return format!("Invalid character(s) found in {lower} number {part:?}");
        }
        if part.len() > 1 && part.starts_with('0') {
            return format!("{upper} number must not contain leading zeroes {part:?}");
        }
    }
    format!("Failed to parse as semver: {text:?}")
}

pub(super) fn call<'a>(function: &str, args: &[Value<'a>], _: &Regexes) -> Option<Answer<'a>> {
    let read = |text: &str, lenient: bool| {
        if lenient { Semver::parse_leniently(text) } else { Semver::parse(text) }
    };
    let number = |number: u64| Ok(Value::Int(i64::try_from(number).unwrap_or(i64::MAX)));
    Some(match (function, args) {
        ("semver", [Value::Text(text), rest @ ..]) => match read(text, matches!(rest, [Value::Bool(true)])) {
            Some(version) => Ok(Value::Semver(Arc::new(version))),
            None => fail(why(text)),
        },
        ("isSemver", [Value::Text(text), rest @ ..]) => {
            Ok(Value::Bool(read(text, matches!(rest, [Value::Bool(true)])).is_some()))
        }
        ("major", [Value::Semver(own)]) => number(own.numbers[0]),
        ("minor", [Value::Semver(own)]) => number(own.numbers[1]),
        ("patch", [Value::Semver(own)]) => number(own.numbers[2]),
        ("isGreaterThan", [Value::Semver(a), Value::Semver(b)]) => {
            Ok(Value::Bool(a.cmp(b) == Ordering::Greater))
        }
        ("isLessThan", [Value::Semver(a), Value::Semver(b)]) => Ok(Value::Bool(a.cmp(b) == Ordering::Less)),
        ("compareTo", [Value::Semver(a), Value::Semver(b)]) => Ok(Value::Int(match a.cmp(b) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        })),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_order_of_versions_is_total(
            texts in vec("[01]\\.[01]\\.0(-(0|1|9{21}|a|a1|-1)(\\.(0|10|b))?)?(\\+[ab])?", 1..6)
        ) {
            let versions: Vec<Semver> = texts.iter().map(|text| Semver::parse(text).unwrap()).collect();
            prop_assert_eq!(plumb_laws::total_order(&versions, Semver::cmp), Ok(()));
        }
    }
}
