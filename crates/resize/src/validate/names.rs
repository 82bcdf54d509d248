//! The forms that names have in the Kubernetes API, with the texts that say what is wrong with one.

const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
     or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
     validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
     must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
     validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

const LABEL_LENGTH: usize = 63;
const SUBDOMAIN_LENGTH: usize = 253;

/// What is wrong with a name that may have the prefix of a domain: `cpu`, `example.com/gpu`.
pub fn qualified_name_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        ["", name] => {
            errors.push("prefix part must be non-empty".to_owned());
            name
        }
        [prefix, name] => {
            errors.extend(subdomain_errors(prefix).into_iter().map(|error| format!("prefix part {error}")));
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_LENGTH {
        errors.push(format!("name part {}", too_long(LABEL_LENGTH)));
    }
    let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    if !spelled(name, inner, |c| c.is_ascii_alphanumeric()) {
        errors.push(format!("name part {QUALIFIED}"));
    }
    errors
}

/// What is wrong with a label of the domain name system: `my-name`.
pub fn label_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_LENGTH {
        // SPEC: of names as a whole kube-apiserver counts characters, of their parts bytes; both are bytes.
        errors.push(format!("must be no more than {LABEL_LENGTH} characters"));
    }
    if !is_label(text) {
        let dotted = text.split('.').all(is_label);
        errors.push(if dotted { "must not contain dots" } else { LABEL }.to_owned());
    }
    errors
}

fn subdomain_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_LENGTH {
        errors.push(too_long(SUBDOMAIN_LENGTH));
    }
    if !text.split('.').all(is_label) {
        errors.push(SUBDOMAIN.to_owned());
    }
    errors
}

fn is_label(text: &str) -> bool {
    let end = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    spelled(text, |c| end(c) || c == b'-', end)
}

/// Whether a text is not empty, starts and ends with one kind of character and has another in between.
fn spelled(text: &str, inner: impl Fn(u8) -> bool, end: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|c| end(*c))
        && bytes.last().is_some_and(|c| end(*c))
        && bytes.iter().all(|c| inner(*c))
}

fn too_long(most: usize) -> String {
    format!("must be no more than {most} bytes")
}
