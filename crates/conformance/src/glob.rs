//! Patterns for names.

/// Whether a name is as the pattern says, in which `*` stands for any part of it.
///
/// ```
/// use plumb_conformance::matches;
///
/// assert!(matches("burstable-*-limit", "burstable-cpu-limit"));
/// assert!(!matches("burstable", "burstable-cpu-limit"));
/// ```
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    // What is after the last star is at the end; what is between stars is wherever it comes first.
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_part_of_a_name() {
        for (pattern, name, expected) in [
            ("a-b", "a-b", true),
            ("a-b", "a-b-c", false),
            ("*", "a-b", true),
            ("a*", "a-b", true),
            ("*b", "a-b", true),
            ("*-b-*", "a-b-c", true),
            ("a*a", "a", false),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("x*aba", "xaba", true),
            ("*", "", true),
            ("*c*", "a-b", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
