//! The semver library.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::{Answer, Regexes, fail};
use crate::value::Value;

/// A version.
#[derive(Clone, Debug)]
pub struct Semver {
    numbers: [u64; 3],
    /// The identifiers of the pre-release.
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

/// Versions that compare as equal have the same hash.
impl Hash for Semver {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.numbers.hash(state);
        for part in &self.pre {
            match part.parse::<u64>() {
                Ok(number) => number.hash(state),
                Err(_) => part.hash(state),
            }
        }
    }
}

impl Semver {
    /// The precedence of two versions, which ignores build metadata.
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

    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, rest] = parts.as_slice() else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let (rest, build) = rest.split_once('+').map_or((*rest, None), |(rest, build)| (rest, Some(build)));
        let (patch, pre) = rest.split_once('-').map_or((rest, None), |(patch, pre)| (patch, Some(pre)));
        let numbers = [number(major, "Major")?, number(minor, "Minor")?, number(patch, "Patch")?];
        let pre = pre.map_or_else(Vec::new, |pre| pre.split('.').map(str::to_owned).collect());
        for part in &pre {
            if part.is_empty() {
                return Err("Prerelease is empty".to_owned());
            }
            if is_numeric(part) && part.len() > 1 && part.starts_with('0') {
                return Err(format!(
                    "Numeric PreRelease version must not contain leading zeroes {}",
                    plumb_go::quote(part)
                ));
            }
            if !is_word(part) {
                return Err(format!("Invalid character(s) found in prerelease {}", plumb_go::quote(part)));
            }
        }
        for part in build.into_iter().flat_map(|build| build.split('.')) {
            if part.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !is_word(part) {
                return Err(format!(
                    "Invalid character(s) found in build meta data {}",
                    plumb_go::quote(part)
                ));
            }
        }
        Ok(Self { numbers, pre, build: build.unwrap_or_default().to_owned() })
    }

    /// Parses a version after normalization, as upstream does for `semver(text, true)`: `v1.2`, `01.2.3`.
    fn parse_normalized(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text
            .splitn(3, '.')
            .map(|part| match part.trim_start_matches('0') {
                _ if part.len() < 2 => part.to_owned(),
                digits if digits.starts_with(|first: char| first.is_ascii_digit()) => digits.to_owned(),
                rest => format!("0{rest}"),
            })
            .collect();
        if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".to_owned());
        }
        while parts.len() < 3 {
            parts.push("0".to_owned());
        }
        Self::parse(&parts.join("."))
    }
}

fn is_numeric(part: &str) -> bool {
    part.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_word(part: &str) -> bool {
    part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Parses one of the three numbers.
fn number(part: &str, name: &str) -> Result<u64, String> {
    let quoted = plumb_go::quote(part);
    if !is_numeric(part) {
        return Err(format!("Invalid character(s) found in {} number {quoted}", name.to_lowercase()));
    }
    if part.len() > 1 && part.starts_with('0') {
        return Err(format!("{name} number must not contain leading zeroes {quoted}"));
    }
    part.parse().map_err(|_| {
        let why = if part.is_empty() { "invalid syntax" } else { "value out of range" };
        format!("strconv.ParseUint: parsing {quoted}: {why}")
    })
}

fn compare_parts(a: &str, b: &str) -> Ordering {
    match (a.parse::<u64>(), b.parse::<u64>()) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => a.cmp(b),
    }
}

pub(super) fn call<'a>(function: &str, args: &[Value<'a>], _: &Regexes) -> Option<Answer<'a>> {
    let read = |text: &str, lenient: bool| {
        if lenient { Semver::parse_normalized(text) } else { Semver::parse(text) }
    };
    let number = |number: u64| Ok(Value::Int(i64::try_from(number).unwrap_or(i64::MAX)));
    Some(match (function, args) {
        ("semver", [Value::Text(text), rest @ ..]) => match read(text, matches!(rest, [Value::Bool(true)])) {
            Ok(version) => Ok(Value::Semver(Arc::new(version))),
            Err(why) => fail(why),
        },
        ("isSemver", [Value::Text(text), rest @ ..]) => {
            Ok(Value::Bool(read(text, matches!(rest, [Value::Bool(true)])).is_ok()))
        }
        ("major", [Value::Semver(version)]) => number(version.numbers[0]),
        ("minor", [Value::Semver(version)]) => number(version.numbers[1]),
        ("patch", [Value::Semver(version)]) => number(version.numbers[2]),
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
            prop_assert_eq!(plumb_testkit::total_order(&versions, Semver::cmp), Ok(()));
        }
    }
}
