//! Numbers that may be written as a percentage of another: `maxUnavailable`, `maxSurge`, `partition`.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// A number, or a percentage of another, rounded up. A value that is neither counts as 0.
pub fn rounded_up(value: &IntOrString, of: i32) -> i32 {
    scaled(value, of, 99)
}

/// The same, rounded down.
pub fn rounded_down(value: &IntOrString, of: i32) -> i32 {
    scaled(value, of, 0)
}

/// The percentage, if the value is one; none for a number and for text that is no percentage.
pub fn percent(value: &IntOrString) -> Option<i64> {
    match value {
        IntOrString::Int(_) => None,
        IntOrString::String(text) => text.strip_suffix('%').and_then(|digits| digits.parse().ok()),
    }
}

fn scaled(value: &IntOrString, of: i32, added_hundredths: i64) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(_) => {
            let percent = percent(value).unwrap_or(0);
            let hundredths = percent.saturating_mul(of.into()).saturating_add(added_hundredths);
            i32::try_from(hundredths / 100).unwrap_or(i32::MAX)
        }
    }
}
