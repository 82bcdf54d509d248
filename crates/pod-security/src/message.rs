//! Parts of messages.

/// Strings in quotes, with commas: `"a", "b"`. They are not escaped, as upstream.
pub(crate) fn quoted<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let quoted = items.into_iter().map(|item| format!("\"{}\"", item.as_ref()));
    quoted.collect::<Vec<_>>().join(", ")
}

/// The singular for one, else the plural.
pub(crate) const fn plural<'a>(count: usize, singular: &'a str, plural: &'a str) -> &'a str {
    if count == 1 { singular } else { plural }
}

/// `container "a"`, or `containers "a", "b"`.
pub(crate) fn containers(names: &[&str]) -> String {
    format!("{} {}", plural(names.len(), "container", "containers"), quoted(names))
}

/// Who sets a field to a value that is not allowed: `pod`, `container "a"` or both.
pub(crate) fn setters(is_pod: bool, names: &[&str]) -> Option<String> {
    let containers = (!names.is_empty()).then(|| containers(names));
    let setters: Vec<String> = is_pod.then(|| "pod".to_owned()).into_iter().chain(containers).collect();
    (!setters.is_empty()).then(|| setters.join(" and "))
}
