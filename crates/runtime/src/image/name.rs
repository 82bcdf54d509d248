//! How images are called.

/// The whole name that a short one stands for: with its registry, and with a tag unless it has a digest.
///
/// ```
/// use plumb_runtime::image::normalise;
///
/// assert_eq!(normalise("busybox"), "docker.io/library/busybox:latest");
/// assert_eq!(normalise("plumb/load"), "docker.io/plumb/load:latest");
/// assert_eq!(normalise("localhost:5000/a:1"), "localhost:5000/a:1");
/// assert_eq!(normalise("quay.io/a/b@sha256:00"), "quay.io/a/b@sha256:00");
/// ```
pub fn normalise(name: &str) -> String {
    let (path, digest) = match name.split_once('@') {
        Some((path, digest)) => (path, Some(digest)),
        None => (name, None),
    };
    let (registry, rest) = match path.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest.to_owned()),
        Some(_) => ("docker.io", path.to_owned()),
        None => ("docker.io", format!("library/{path}")),
    };
    let has_tag = rest.rsplit('/').next().is_some_and(|last| last.contains(':'));
    match digest {
        Some(digest) => format!("{registry}/{rest}@{digest}"),
        None if has_tag => format!("{registry}/{rest}"),
        None => format!("{registry}/{rest}:latest"),
    }
}

/// Longest repository name, with its registry.
const LONGEST_REPOSITORY: usize = 255;
const LONGEST_TAG: usize = 128;

/// Some text that cannot be an image's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} cannot be an image's name: it must be [REGISTRY/]REPOSITORY[:TAG], the repository of lower-case letters, \
     digits and single separators (`.`, `_`, `-`), without a digest"
)]
pub(super) struct NotAName(String);

/// The whole name that an image can be imported under.
pub(super) fn tagged(name: &str) -> Result<String, NotAName> {
    let refused = || NotAName(name.chars().take(80).collect());
    if name.contains('@') || name.len() > LONGEST_REPOSITORY + 1 + LONGEST_TAG {
        return Err(refused());
    }
    let whole = normalise(name);
    let (repository, tag) = whole.rsplit_once(':').ok_or_else(refused)?;
    let (registry, path) = repository.split_once('/').ok_or_else(refused)?;
    let valid = repository.len() <= LONGEST_REPOSITORY
        && is_registry(registry)
        && path.split('/').all(is_component)
        && is_tag(tag);
    if valid { Ok(whole) } else { Err(refused()) }
}

fn is_registry(registry: &str) -> bool {
    let (host, port) = match registry.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (registry, None),
    };
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.split('.').all(|label| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        }),
    };
    is_host
        && port
            .is_none_or(|port| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok())
}

/// Letters and digits, with one `.`, one or two `_`, or any number of `-` between them.
fn is_component(component: &str) -> bool {
    let is_word = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit();
    let separators = component.split(is_word).filter(|between| !between.is_empty());
    let mut separators_fit = separators
        .map(|between| matches!(between, "." | "_" | "__") || between.bytes().all(|byte| byte == b'-'));
    component.starts_with(is_word) && component.ends_with(is_word) && separators_fit.all(|fits| fits)
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= LONGEST_TAG
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_grammar_of_image_references() {
        for (name, whole) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("a/b:1.2", "docker.io/a/b:1.2"),
            ("localhost:5000/a:V_1.2-x", "localhost:5000/a:V_1.2-x"),
            ("[::1]:5000/a/b", "[::1]:5000/a/b:latest"),
            ("my--app/a__b.c:1", "docker.io/my--app/a__b.c:1"),
        ] {
            assert_eq!(tagged(name).as_deref(), Ok(whole));
        }
        let long = format!("a/{}", "b".repeat(300));
        for name in [
            "",
            ":",
            "a:",
            "/",
            "/etc/passwd",
            "../../etc",
            "a/../b",
            "a//b",
            "a/b/",
            "Upper/Case",
            "a b",
            "a\nb",
            "a\x1b[2J",
            "a..b",
            "-a",
            "a:-tag",
            "a:b:c",
            "a@sha256:00",
            "ex ample.com/a",
            "example.com:x/a",
            "example.com:99999/a",
            ".example.com/a",
            &long,
        ] {
            assert!(tagged(name).is_err(), "{name:?}");
        }
    }
}
