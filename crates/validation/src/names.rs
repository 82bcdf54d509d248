//! Validation of names, keys and label values.
//!
//! Each function returns the messages of the corresponding upstream function; the list is empty if the value is valid.

use std::borrow::Cow;

const LABEL_LENGTH: usize = 63;
const SUBDOMAIN_LENGTH: usize = 253;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
                          must start and end with an alphanumeric character";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
                              '-' or '.', and must start and end with an alphanumeric character";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const QUALIFIED_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
                              an alphanumeric character";

/// `IsDNS1123Label`: the names of containers, volumes and namespaces.
///
/// ```
/// use plumb_validation::names::dns_label;
///
/// assert!(dns_label("my-name").is_empty());
/// assert_eq!(dns_label("my.name"), ["must not contain dots"]);
/// ```
pub fn dns_label(value: &str) -> Vec<String> {
    let mut errors = too_long(value, LABEL_LENGTH, "characters");
    if !is_label(value) {
        errors.push(if is_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            regex_error(LABEL_RULE, LABEL, &["my-name", "123-abc"])
        });
    }
    errors
}

/// The prefix of a DNS label, as in `generateName`: it may end in a dash.
pub fn dns_label_prefix(value: &str) -> Vec<String> {
    dns_label(&mask_trailing_dash(value))
}

/// `IsDNS1123Subdomain`: the names of most objects.
pub fn dns_subdomain(value: &str) -> Vec<String> {
    let mut errors = too_long(value, SUBDOMAIN_LENGTH, "characters");
    if !is_subdomain(value) {
        errors.push(regex_error(SUBDOMAIN_RULE, SUBDOMAIN, &["example.com"]));
    }
    errors
}

/// The prefix of a DNS subdomain, as in `generateName`: it may end in a dash.
pub fn dns_subdomain_prefix(value: &str) -> Vec<String> {
    dns_subdomain(&mask_trailing_dash(value))
}

/// `IsDNS1123SubdomainWithUnderscore`: search domains of a pod.
pub fn dns_subdomain_with_underscores(value: &str) -> Vec<String> {
    let is_label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        consists_of(label, |c| is_lower(c) || matches!(c, b'-' | b'_'), is_lower)
    };
    let mut errors = too_long(value, SUBDOMAIN_LENGTH, "characters");
    if !value.split('.').all(is_label) {
        let rule = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or \
                    '.', and must start and end with an alphanumeric character";
        let label = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
        errors.push(regex_error(rule, &format!(r"{label}(\.{label})*"), &["example.com"]));
    }
    errors
}

/// `IsDNS1035Label`: a DNS label that starts with a letter, such as the plural name of a custom resource.
pub fn dns_1035_label(value: &str) -> Vec<String> {
    let mut errors = too_long(value, LABEL_LENGTH, "characters");
    if !is_label(value) || !value.starts_with(|c: char| c.is_ascii_lowercase()) {
        let rule = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                    alphabetic character, and end with an alphanumeric character";
        errors.push(regex_error(rule, "[a-z]([-a-z0-9]*[a-z0-9])?", &["my-name", "abc-123"]));
    }
    errors
}

/// The prefix of a DNS-1035 label: it may end in a dash.
pub fn dns_1035_label_prefix(value: &str) -> Vec<String> {
    dns_1035_label(&mask_trailing_dash(value))
}

/// `IsQualifiedName`: a name with an optional prefix, `cpu` or `example.com/gpu`. The keys of labels and annotations,
/// finalizers, condition types and resources.
pub fn qualified_name(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match value.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        ["", name] => {
            errors.push("prefix part must be non-empty".to_owned());
            name
        }
        [prefix, name] => {
            let mut prefix_errors = too_long(prefix, SUBDOMAIN_LENGTH, "bytes");
            if !is_subdomain(prefix) {
                prefix_errors.push(regex_error(SUBDOMAIN_RULE, SUBDOMAIN, &["example.com"]));
            }
            errors.extend(prefix_errors.into_iter().map(|error| format!("prefix part {error}")));
            name
        }
        _ => {
            let rule = qualified_rule();
            return vec![format!(
                "a valid label key {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    }
    errors
        .extend(too_long(name, LABEL_LENGTH, "bytes").into_iter().map(|error| format!("name part {error}")));
    if !is_qualified(name) {
        errors.push(format!("name part {}", qualified_rule()));
    }
    errors
}

fn qualified_rule() -> String {
    regex_error(QUALIFIED_RULE, QUALIFIED, &["MyName", "my.name", "123-abc"])
}

/// `IsValidLabelValue`.
pub fn label_value(value: &str) -> Vec<String> {
    let mut errors = too_long(value, LABEL_LENGTH, "bytes");
    if !value.is_empty() && !is_qualified(value) {
        let rule = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
                    and must start and end with an alphanumeric character";
        errors.push(regex_error(rule, &format!("({QUALIFIED})?"), &["MyValue", "my_value", "12345"]));
    }
    errors
}

/// `RegexError`: a rule with its regular expression and examples.
pub fn regex_error(rule: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    if examples.is_empty() {
        return format!("{rule} (regex used for validation is '{pattern}')");
    }
    format!("{rule} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

/// `MaxLenError`. Both units mean bytes: upstream's older functions say characters, its newer ones bytes.
pub fn too_long(value: &str, max: usize, unit: &str) -> Vec<String> {
    if value.len() > max { vec![format!("must be no more than {max} {unit}")] } else { Vec::new() }
}

/// Replaces a trailing dash, since a suffix follows it. Like upstream, the character before the dash is replaced too.
fn mask_trailing_dash(value: &str) -> Cow<'_, str> {
    let rest = value.strip_suffix('-').filter(|rest| rest.ends_with(|c: char| c.is_ascii()));
    rest.map_or(Cow::Borrowed(value), |rest| Cow::Owned(format!("{}a", &rest[..rest.len() - 1])))
}

fn is_lower(c: u8) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn is_label(value: &str) -> bool {
    consists_of(value, |c| is_lower(c) || c == b'-', is_lower)
}

fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_label)
}

fn is_qualified(value: &str) -> bool {
    let is_inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    consists_of(value, is_inner, |c| c.is_ascii_alphanumeric())
}

/// Whether a text is not empty, consists of `inner` characters, and starts and ends with an `end` character.
fn consists_of(value: &str, inner: impl Fn(u8) -> bool, end: impl Fn(u8) -> bool) -> bool {
    let bytes = value.as_bytes();
    bytes.first().is_some_and(|c| end(*c))
        && bytes.last().is_some_and(|c| end(*c))
        && bytes.iter().all(|c| inner(*c))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL_TEXT: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
                              and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', \
                              regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    const SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
                                  '-' or '.', and must start and end with an alphanumeric character (e.g. \
                                  'example.com', regex used for validation is \
                                  '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    const OLD_TEXT: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                            alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or \
                            'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
    const NAME_TEXT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                             alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                             validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

    fn check(rule: fn(&str) -> Vec<String>, table: &[(&str, &[&str])]) {
        for (value, errors) in table {
            assert_eq!(rule(value), *errors, "{value}");
        }
    }

    #[test]
    fn dns_names_are_validated_with_upstream_messages() {
        let long = "a".repeat(64);
        let longer = ["abcdefgh."; 30].concat() + "com";
        check(
            dns_label,
            &[
                ("a", &[]),
                ("0-a", &[]),
                ("a.b", &["must not contain dots"]),
                ("", &[LABEL_TEXT]),
                ("-a", &[LABEL_TEXT]),
                ("a-", &[LABEL_TEXT]),
                ("A", &[LABEL_TEXT]),
                ("a..b", &[LABEL_TEXT]),
                ("ä", &[LABEL_TEXT]),
                (&long, &["must be no more than 63 characters"]),
            ],
        );
        check(
            dns_subdomain,
            &[
                ("a.0-b", &[]),
                ("a..b", &[SUBDOMAIN_TEXT]),
                ("a_b", &[SUBDOMAIN_TEXT]),
                (&longer, &["must be no more than 253 characters"]),
            ],
        );
        check(
            dns_1035_label,
            &[
                ("a-0", &[]),
                ("0-a", &[OLD_TEXT]),
                ("a.b", &[OLD_TEXT]),
                (&long, &["must be no more than 63 characters"]),
            ],
        );
        assert!(dns_subdomain_with_underscores("_tcp.a_b").is_empty());
        for bad in ["a_", "__a", "a._"] {
            assert_eq!(dns_subdomain_with_underscores(bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_prefix_can_end_in_a_dash() {
        for rule in [dns_label_prefix, dns_subdomain_prefix, dns_1035_label_prefix] {
            for (value, valid) in [
                ("web-", true),
                ("web", true),
                ("a--", true),
                ("A-", true),
                ("-", false),
                ("é-", false),
                ("_b-", false),
            ] {
                assert_eq!(rule(value).is_empty(), valid, "{value}");
            }
        }
    }

    #[test]
    fn keys_and_values_are_validated_with_upstream_messages() {
        let long = "a".repeat(64);
        let name_error = format!("name part {NAME_TEXT}");
        let prefix_errors = format!("prefix part {SUBDOMAIN_TEXT}");
        let several = format!(
            "a valid label key {NAME_TEXT} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        );
        check(
            qualified_name,
            &[
                ("cpu", &[]),
                ("example.com/My_name.1", &[]),
                ("/a", &["prefix part must be non-empty"]),
                ("a/", &["name part must be non-empty", &name_error]),
                ("A/b", &[&prefix_errors]),
                ("a/b/c", &[&several]),
                ("-", &[&name_error]),
                (&long, &["name part must be no more than 63 bytes"]),
            ],
        );
        let value = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
                     must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
                     regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
        check(
            label_value,
            &[("", &[]), ("My_value.1", &[]), ("a/b", &[value]), (&long, &["must be no more than 63 bytes"])],
        );
    }
}
