//! Parsing of image references, from which the default of `imagePullPolicy` follows.

/// Whether a reference has the tag `latest`, or neither tag nor digest. An invalid reference has no tag.
pub(super) fn is_latest(reference: &str) -> bool {
    let (rest, digest) = match reference.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (reference, None),
    };
    // A colon before the last slash belongs to the registry's port.
    let (name, tag) = match rest.rfind(':').filter(|colon| rest[*colon..].find('/').is_none()) {
        Some(colon) => (&rest[..colon], Some(&rest[colon + 1..])),
        None => (rest, None),
    };
    if !is_name(name) || !tag.is_none_or(is_tag) || !digest.is_none_or(is_digest) {
        return false;
    }
    match tag {
        Some(tag) => tag == "latest",
        None => digest.is_none(),
    }
}

fn is_name(name: &str) -> bool {
    let (domain, path) = match name.split_once('/') {
        Some((first, rest)) if is_domain_like(first) => (Some(first), rest),
        _ => (None, name),
    };
    let is_identifier =
        name.len() == 64 && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    // On the default registry, a name without a directory gets one.
    let directory = if domain.is_none() && !path.contains('/') { "library/" } else { "" };
    directory.len() + path.len() <= 255
        && !is_identifier
        && domain.is_none_or(is_domain)
        && path.split('/').all(is_path_component)
}

/// Whether the first component of a name is a registry and not a directory of the default registry.
fn is_domain_like(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.bytes().any(|b| b.is_ascii_uppercase())
}

fn is_domain(domain: &str) -> bool {
    if let Some(rest) = domain.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        return address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':')
            && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
    }
    let (host, port) = match domain.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (domain, None),
    };
    let is_label = |label: &str| {
        let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = label.as_bytes();
        edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
    };
    port.is_none_or(is_port) && host.split('.').all(is_label)
}

fn is_port(port: &str) -> bool {
    !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
}

/// Lower case letters and digits, separated by one dot, one or two underscores, or dashes.
fn is_path_component(component: &str) -> bool {
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let mut rest = component.as_bytes();
    loop {
        let length = rest.iter().take_while(|b| word(**b)).count();
        if length == 0 {
            return false;
        }
        rest = &rest[length..];
        if rest.is_empty() {
            return true;
        }
        let separator = rest.iter().take_while(|b| !word(**b)).count();
        match &rest[..separator] {
            b"." | b"_" | b"__" => {}
            dashes if dashes.iter().all(|b| *b == b'-') => {}
            _ => return false,
        }
        rest = &rest[separator..];
    }
}

fn is_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let bytes = tag.as_bytes();
    bytes.first().is_some_and(|b| word(*b))
        && bytes.len() <= 128
        && bytes.iter().all(|b| word(*b) || matches!(b, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hash)) = digest.split_once(':') else { return false };
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    hash.len() == length && hash.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::is_latest;

    #[test]
    fn the_tag_is_found_behind_registries_ports_and_digests() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (reference, latest) in [
            ("nginx", true),
            ("nginx:latest", true),
            ("nginx:1.27", false),
            ("registry:5000/team/nginx", true),
            ("registry:5000/team/nginx:v1", false),
            ("localhost/nginx", true),
            ("[::1]:5000/nginx", true),
            (&format!("nginx@{digest}"), false),
            (&format!("nginx:latest@{digest}"), true),
            ("nginx:latest@sha256:short", false),
            ("", false),
            ("nginx:", false),
            ("NGINX", false),
            ("team/Nginx", false),
            ("a__b/c---d/e.f", true),
            ("a___b", false),
            ("a..b", false),
            (&"a".repeat(64), false),
        ] {
            assert_eq!(is_latest(reference), latest, "{reference}");
        }
    }
}
