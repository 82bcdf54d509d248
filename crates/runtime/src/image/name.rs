//! The names that images are imported under.

use plumb_oci::Reference;

/// Some text that cannot be an image's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} cannot be an image's name: it must be [REGISTRY/]REPOSITORY[:TAG], the repository of lower-case letters, \
     digits and single separators (`.`, `_`, `-`), without a digest"
)]
pub(super) struct NotAName(String);

/// The whole name that an image can be imported under.
pub(super) fn tagged(name: &str) -> Result<String, NotAName> {
    match name.parse::<Reference>() {
        Ok(reference) if reference.digest().is_none() => Ok(reference.to_string()),
        _ => Err(NotAName(name.chars().take(80).collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_imported_under_a_tag() {
        assert_eq!(tagged("busybox").as_deref(), Ok("docker.io/library/busybox:latest"));
        let digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        for name in ["a b", "../../etc", &format!("a@{digest}")] {
            assert!(tagged(name).is_err(), "{name:?}");
        }
    }
}
