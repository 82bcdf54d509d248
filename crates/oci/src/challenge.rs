//! How a registry asks for credentials: `WWW-Authenticate`.

/// A way to authenticate that a registry offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// User and password with each request.
    Basic,
    /// A token of a token server.
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

/// The challenges of a response that are understood.
pub(crate) fn challenges<'a>(headers: impl IntoIterator<Item = &'a str>) -> Vec<Challenge> {
    headers.into_iter().flat_map(parse).collect()
}

fn parse(header: &str) -> Vec<Challenge> {
    let mut found: Vec<(String, Vec<(String, String)>)> = Vec::new();
    let mut rest = header.trim_start_matches(is_separator);
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '=' | ',')).unwrap_or(rest.len());
        let (token, after) = rest.split_at(end);
        if let Some(after) = after.trim_start().strip_prefix('=') {
            let (value, after) = value(after.trim_start());
            // Outside of a scheme it is part of something that is not understood.
            if let Some((_, parameters)) = found.last_mut() {
                parameters.push((token.to_ascii_lowercase(), value));
            }
            rest = after;
        } else {
            if !token.is_empty() {
                found.push((token.to_ascii_lowercase(), Vec::new()));
            }
            rest = after;
        }
        rest = rest.trim_start_matches(is_separator);
    }
    found.into_iter().filter_map(|(scheme, parameters)| challenge(&scheme, parameters)).collect()
}

fn is_separator(char: char) -> bool {
    char == ',' || char.is_whitespace()
}

fn challenge(scheme: &str, parameters: Vec<(String, String)>) -> Option<Challenge> {
    let get = |name: &str| {
        let found = parameters.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
    };
    match scheme {
        "basic" => Some(Challenge::Basic),
        "bearer" => {
            Some(Challenge::Bearer { realm: get("realm")?, service: get("service"), scope: get("scope") })
        }
        _ => None,
    }
}

/// A value, quoted or not, and what comes after it.
fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(is_separator).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        // Always some progress: an empty value is followed by a separator or by nothing.
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, char)| char)),
            char => value.push(char),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_challenges_of_real_registries_are_understood() {
        let bearer = |realm: &str, service: Option<&str>, scope: Option<&str>| Challenge::Bearer {
            realm: realm.to_owned(),
            service: service.map(str::to_owned),
            scope: scope.map(str::to_owned),
        };
        for (header, expected) in [
            (
                r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/nginx:pull""#,
                vec![bearer(
                    "https://auth.docker.io/token",
                    Some("registry.docker.io"),
                    Some("repository:library/nginx:pull"),
                )],
            ),
            (r#"Basic realm="Registry Realm""#, vec![Challenge::Basic]),
            ("Basic", vec![Challenge::Basic]),
            (
                r#"Basic realm="a, b", bearer realm=https://x/token , service="s""#,
                vec![Challenge::Basic, bearer("https://x/token", Some("s"), None)],
            ),
            (r#"Negotiate abc, Bearer service="no realm""#, vec![]),
            (r#"Bearer realm="a \"quoted\" word""#, vec![bearer("a \"quoted\" word", None, None)]),
            ("", vec![]),
            ("=,=", vec![]),
            (r#"Bearer realm="never ends"#, vec![bearer("never ends", None, None)]),
        ] {
            assert_eq!(challenges([header]), expected, "{header}");
        }
    }

    proptest! {
        #[test]
        fn no_header_makes_the_parser_hang_or_panic(header in any::<String>()) {
            let _ = challenges([header.as_str()]);
        }
    }
}
