//! The names of images.

use std::fmt;
use std::str::FromStr;

use crate::digest::Digest;

/// The registry of names without one.
const DEFAULT_REGISTRY: &str = "docker.io";
/// The namespace there of names without one.
const DEFAULT_NAMESPACE: &str = "library";
const DEFAULT_TAG: &str = "latest";
/// The longest repository, with its registry.
const LONGEST_REPOSITORY: usize = 255;
const LONGEST_TAG: usize = 128;

/// The whole name of an image: its registry, its repository there, and a tag or a digest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// Some text that is not the name of an image, in Docker's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReference {
    /// It does not follow the grammar.
    #[error("invalid reference format")]
    Format,
    /// The repository has upper-case letters.
    #[error("invalid reference format: repository name ({0}) must be lowercase")]
    Uppercase(String),
    /// The repository is too long.
    #[error("repository name must not be more than {LONGEST_REPOSITORY} characters")]
    TooLong,
    /// The digest is not one that can be checked.
    #[error("invalid reference format: only sha256 digests are supported")]
    Digest,
}

impl Reference {
    /// The registry, such as `docker.io` or `localhost:5000`.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The repository in the registry, such as `library/nginx`.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag: of a name that has no digest either, `latest`; of one with a digest, none, since the digest decides.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// Registry and repository.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// Registry and repository with this digest.
    pub fn with_digest(&self, digest: Digest) -> String {
        format!("{}@{digest}", self.name())
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        match (&self.digest, &self.tag) {
            (Some(digest), _) => write!(f, "@{digest}"),
            (None, Some(tag)) => write!(f, ":{tag}"),
            (None, None) => Ok(()),
        }
    }
}

impl FromStr for Reference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        let (before, digest) = match text.split_once('@') {
            Some((before, digest)) => {
                (before, Some(digest.parse::<Digest>().map_err(|_| InvalidReference::Digest)?))
            }
            None => (text, None),
        };
        let (registry, rest) = split_registry(before);
        let (repository, tag) = split_tag(rest);
        let repository = if registry == DEFAULT_REGISTRY && !repository.contains('/') {
            format!("{DEFAULT_NAMESPACE}/{repository}")
        } else {
            repository.to_owned()
        };
        if registry.len() + 1 + repository.len() > LONGEST_REPOSITORY {
            return Err(InvalidReference::TooLong);
        }
        if !is_registry(registry) || tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(InvalidReference::Format);
        }
        if !repository.split('/').all(is_component) {
            let lower = repository.to_ascii_lowercase();
            let is_case = lower != repository && lower.split('/').all(is_component);
            return Err(if is_case {
                InvalidReference::Uppercase(repository)
            } else {
                InvalidReference::Format
            });
        }
        let tag = match (digest, tag) {
            (Some(_), _) => None,
            (None, tag) => Some(tag.unwrap_or(DEFAULT_TAG).to_owned()),
        };
        Ok(Self { registry: registry.to_owned(), repository, tag, digest })
    }
}

/// The whole name that a short one stands for: with its registry, and with a tag or a digest. Of what is not a valid
/// name it is some text that no valid name is normalised to.
///
/// ```
/// use plumb_oci::normalise;
///
/// assert_eq!(normalise("busybox"), "docker.io/library/busybox:latest");
/// assert_eq!(normalise("plumb/load"), "docker.io/plumb/load:latest");
/// assert_eq!(normalise("localhost:5000/a:1"), "localhost:5000/a:1");
/// assert_eq!(normalise("quay.io/a/b@sha256:00"), "quay.io/a/b@sha256:00");
/// assert_eq!(normalise("a:1@sha256:00"), "docker.io/library/a@sha256:00");
/// ```
pub fn normalise(name: &str) -> String {
    let (path, digest) = match name.split_once('@') {
        Some((path, digest)) => (path, Some(digest)),
        None => (name, None),
    };
    let (registry, rest) = split_registry(path);
    let (repository, tag) = split_tag(rest);
    let namespace = if registry == DEFAULT_REGISTRY && !repository.contains('/') { "library/" } else { "" };
    match (digest, tag) {
        (Some(digest), _) => format!("{registry}/{namespace}{repository}@{digest}"),
        (None, tag) => format!("{registry}/{namespace}{repository}:{}", tag.unwrap_or(DEFAULT_TAG)),
    }
}

/// The registry of a name, and the rest. A first component is a registry if it can be no namespace.
fn split_registry(name: &str) -> (&str, &str) {
    match name.split_once('/') {
        Some(("index.docker.io", rest)) => (DEFAULT_REGISTRY, rest),
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest),
        _ => (DEFAULT_REGISTRY, name),
    }
}

/// The repository of a name without its registry, and the tag.
fn split_tag(rest: &str) -> (&str, Option<&str>) {
    match rest.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag)),
        _ => (rest, None),
    }
}

/// Whether this can be a registry: a host, and perhaps a port.
pub fn is_registry(registry: &str) -> bool {
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
    use proptest::prelude::*;

    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn names_follow_the_grammar_of_image_references() {
        let by_digest = format!("docker.io/library/a@{DIGEST}");
        for (name, whole) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("docker.io/busybox", "docker.io/library/busybox:latest"),
            ("index.docker.io/a/b", "docker.io/a/b:latest"),
            ("a/b:1.2", "docker.io/a/b:1.2"),
            ("localhost/a", "localhost/a:latest"),
            ("localhost:5000/a:V_1.2-x", "localhost:5000/a:V_1.2-x"),
            ("[::1]:5000/a/b", "[::1]:5000/a/b:latest"),
            ("my--app/a__b.c:1", "docker.io/my--app/a__b.c:1"),
            (&format!("a@{DIGEST}"), &by_digest),
            (&format!("a:1@{DIGEST}"), &by_digest),
        ] {
            let reference: Reference = name.parse().unwrap();
            assert_eq!(reference.to_string(), whole);
            assert_eq!(normalise(name), whole, "both ways lead to the same name");
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
            "a b",
            "a\nb",
            "a\x1b[2J",
            "a..b",
            "-a",
            "a:-tag",
            "a:b:c",
            "a@sha256:00",
            "a@",
            "ex ample.com/a",
            "example.com:x/a",
            "example.com:99999/a",
            ".example.com/a",
            &long,
        ] {
            assert!(name.parse::<Reference>().is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_name_that_is_only_wrong_in_its_case_says_so() {
        assert_eq!(
            "Nginx".parse::<Reference>().unwrap_err().to_string(),
            "invalid reference format: repository name (library/Nginx) must be lowercase"
        );
        assert_eq!("a b".parse::<Reference>().unwrap_err().to_string(), "invalid reference format");
    }

    proptest! {
        #[test]
        fn reading_a_whole_name_again_is_the_same(text in "[a-z0-9./:_-]{1,24}") {
            if let Ok(reference) = text.parse::<Reference>() {
                prop_assert_eq!(Ok(reference.clone()), reference.to_string().parse());
                prop_assert_eq!(normalise(&text), reference.to_string());
            }
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in any::<String>()) {
            let _ = text.parse::<Reference>();
            let _ = normalise(&text);
        }
    }
}
