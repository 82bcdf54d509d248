//! Numbers that may be said as a share of another.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// A number, or so many percent of another, of which a part counts as one. What cannot be read is nothing.
pub(crate) fn rounded_up(value: &IntOrString, of: i32) -> i32 {
    share(value, of, 99)
}

/// The same, of which a part counts as nothing.
pub(crate) fn rounded_down(value: &IntOrString, of: i32) -> i32 {
    share(value, of, 0)
}

fn share(value: &IntOrString, of: i32, for_a_part: i64) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').and_then(|digits| digits.parse::<i64>().ok()).unwrap_or(0);
            let hundredths = percent.saturating_mul(of.into()).saturating_add(for_a_part);
            i32::try_from(hundredths / 100).unwrap_or(i32::MAX)
        }
    }
}
