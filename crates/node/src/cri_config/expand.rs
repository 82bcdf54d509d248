//! `$(NAME)` in commands, arguments, variables and paths.

/// Expands `$(NAME)`. References that `value` does not resolve are unchanged, and `$$` is a literal `$`.
pub fn expand<'v>(text: &str, value: impl Fn(&str) -> Option<&'v str>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(literal) = after.strip_prefix('$') {
            expanded.push('$');
            rest = literal;
        } else if let Some((name, behind)) = after.strip_prefix('(').and_then(|open| open.split_once(')')) {
            match value(name) {
                Some(value) => expanded.push_str(value),
                None => expanded.extend(["$(", name, ")"]),
            }
            rest = behind;
        } else {
            expanded.push('$');
            rest = after;
        }
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_parentheses_become_values_and_everything_else_stays() {
        let value = |name: &str| match name {
            "A" => Some("1"),
            "EMPTY" => Some(""),
            "RECURSIVE" => Some("$(A)"),
            _ => None,
        };
        let table = [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$(NONE)", "$(NONE)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$$$$(A)", "$$(A)"),
            ("$(EMPTY)-", "-"),
            ("$(RECURSIVE)", "$(A)"),
            ("$(A", "$(A"),
            ("$()", "$()"),
            ("a$", "a$"),
            ("$ä$(A)", "$ä1"),
            ("$(($(A))", "$(($(A))"),
            ("", ""),
        ];
        for (text, expected) in table {
            assert_eq!(expand(text, value), expected, "{text}");
        }
    }
}
