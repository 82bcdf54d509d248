//! Of which images the credentials of pods are verified.

use std::collections::BTreeSet;

use plumb_oci::Reference;

/// The policy (`imagePullCredentialsVerificationPolicy` of the kubelet).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VerificationPolicy {
    /// Of none: any pod may use any image on the node.
    NeverVerify,
    /// Of images that the node has pulled.
    #[default]
    NeverVerifyPreloadedImages,
    /// Of all images but those in the list.
    NeverVerifyAllowlistedImages(Allowlist),
    /// Of all images.
    AlwaysVerify,
}

/// Images that any pod may use, by name: `registry/repository`, or `registry/path/*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowlist {
    names: BTreeSet<String>,
    prefixes: Vec<String>,
}

/// A pattern that is no name of images, with the kubelet's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid image pattern in `preloadedImagesVerificationAllowlist`: {0}")]
pub struct InvalidPattern(String);

impl VerificationPolicy {
    /// Whether a pod has to show credentials for an image that is on the node. `is_pulled` is whether the node pulled it.
    pub(super) fn verifies(&self, image: &Reference, is_pulled: bool) -> bool {
        match self {
            Self::NeverVerify => false,
            Self::NeverVerifyPreloadedImages => is_pulled,
            Self::NeverVerifyAllowlistedImages(allowlist) => !allowlist.contains(image),
            Self::AlwaysVerify => true,
        }
    }

    /// Its name in the configuration of the kubelet.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NeverVerify => "NeverVerify",
            Self::NeverVerifyPreloadedImages => "NeverVerifyPreloadedImages",
            Self::NeverVerifyAllowlistedImages(_) => "NeverVerifyAllowlistedImages",
            Self::AlwaysVerify => "AlwaysVerify",
        }
    }

    /// The patterns of the images that any pod may use.
    pub fn allowlist(&self) -> Vec<String> {
        let Self::NeverVerifyAllowlistedImages(allowlist) = self else { return Vec::new() };
        let prefixes = allowlist.prefixes.iter().map(|prefix| format!("{prefix}*"));
        allowlist.names.iter().cloned().chain(prefixes).collect()
    }
}

impl Allowlist {
    /// A list of patterns.
    ///
    /// # Errors
    /// If one is no whole name of images without tag and digest, and no such name with `/*` behind it.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidPattern> {
        let mut allowlist = Self::default();
        for pattern in patterns {
            if let Some(prefix) = pattern.strip_suffix('*').filter(|prefix| prefix.ends_with('/')) {
                allowlist.prefixes.push(checked(pattern, prefix)?);
                continue;
            }
            let name = checked(pattern, pattern)?;
            let image: Reference = name
                .parse()
                .map_err(|error| InvalidPattern(format!("failed to parse as an image name: {error}")))?;
            if image.name() != name {
                let message = "neither tag nor digest is accepted in an image reference";
                return Err(InvalidPattern(format!("{message}: {pattern}")));
            }
            allowlist.names.insert(name);
        }
        Ok(allowlist)
    }

    fn contains(&self, image: &Reference) -> bool {
        let name = image.name();
        self.names.contains(&name) || self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }
}

/// A pattern without its asterisk, if it can be one.
fn checked(pattern: &str, trimmed: &str) -> Result<String, InvalidPattern> {
    let message = if pattern.trim() != pattern {
        format!("leading/trailing spaces are not allowed: {pattern}")
    } else if trimmed.is_empty() {
        format!("the supplied pattern is too short: {pattern}")
    } else if trimmed.contains('*') {
        format!("not a valid wildcard pattern, only patterns ending with '/*' are allowed: {pattern}")
    } else if trimmed == "/" {
        "at least registry hostname is required".to_owned()
    } else {
        return Ok(trimmed.to_owned());
    };
    Err(InvalidPattern(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(name: &str) -> Reference {
        name.parse().unwrap()
    }

    #[test]
    fn policies_verify_what_the_kubelet_verifies() {
        let allowlist = Allowlist::new(["docker.io/library/nginx", "r.example.com/team/*"]).unwrap();
        let policies = [
            VerificationPolicy::NeverVerify,
            VerificationPolicy::default(),
            VerificationPolicy::NeverVerifyAllowlistedImages(allowlist),
            VerificationPolicy::AlwaysVerify,
        ];
        let table = [
            ("nginx:1", true, [false, true, false, true]),
            ("nginx:1", false, [false, false, false, true]),
            ("nginx-unprivileged", false, [false, false, true, true]),
            ("r.example.com/team/a/b:1", true, [false, true, false, true]),
            ("r.example.com/team2/a", false, [false, false, true, true]),
        ];
        for (name, is_pulled, expected) in table {
            let verified = policies.each_ref().map(|policy| policy.verifies(&image(name), is_pulled));
            assert_eq!(verified, expected, "{name} {is_pulled}");
        }
        assert_eq!(policies[2].allowlist(), ["docker.io/library/nginx", "r.example.com/team/*"]);
    }

    #[test]
    fn patterns_are_refused_with_the_kubelets_messages() {
        let table = [
            (" r.io/a", "leading/trailing spaces are not allowed:  r.io/a"),
            ("", "the supplied pattern is too short: "),
            (
                "r.io/*/a",
                "not a valid wildcard pattern, only patterns ending with '/*' are allowed: r.io/*/a",
            ),
            ("r.io/a*", "not a valid wildcard pattern, only patterns ending with '/*' are allowed: r.io/a*"),
            ("/*", "at least registry hostname is required"),
            (
                "r.io/A",
                "failed to parse as an image name: invalid reference format: repository name (A) must be lowercase",
            ),
            ("r.io/a:1", "neither tag nor digest is accepted in an image reference: r.io/a:1"),
        ];
        for (pattern, message) in table {
            let error = Allowlist::new([pattern]).unwrap_err().to_string();
            let expected =
                format!("invalid image pattern in `preloadedImagesVerificationAllowlist`: {message}");
            assert_eq!(error, expected);
        }
    }
}
