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
