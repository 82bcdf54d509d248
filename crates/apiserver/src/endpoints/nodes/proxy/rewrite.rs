//! What is changed in responses of a backend.

pub(super) mod html;

use http::{HeaderMap, HeaderName};

/// Headers by which a backend would say which pages of other sites may read this server's responses.
const CORS: [HeaderName; 4] = [
    http::header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    http::header::ACCESS_CONTROL_ALLOW_HEADERS,
    http::header::ACCESS_CONTROL_ALLOW_METHODS,
    http::header::ACCESS_CONTROL_ALLOW_ORIGIN,
];

/// Removes what is for this server to say.
pub(super) fn remove_cors(headers: &mut HeaderMap) {
    for name in CORS {
        headers.remove(name);
    }
}

/// Where a redirect of a backend leads from outside: a path of its own is below the prefix, under which the client sees it.
/// `own` are the authorities that mean the backend.
pub(super) fn location(location: &str, prefix: &str, own: &[&str]) -> String {
    let path = match location.split_once("://") {
        Some((_, rest)) => {
            let (authority, path) = rest.find(['/', '?', '#']).map_or((rest, ""), |at| rest.split_at(at));
            if !own.contains(&authority) {
                // It leads elsewhere.
                return location.to_owned();
            }
            path
        }
        // The same without a scheme.
        None if location.starts_with("//") => return location.to_owned(),
        None => location,
    };
    let below_prefix =
        path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']));
    if !path.starts_with('/') || below_prefix {
        return path.to_owned();
    }
    format!("{prefix}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_stays_below_the_address_of_the_object() {
        let prefix = "/api/v1/namespaces/default/pods/web/proxy";
        let own = ["10.0.0.1:80", "localhost:8001"];
        for (given, expected) in [
            ("/login?next=/", "/api/v1/namespaces/default/pods/web/proxy/login?next=/"),
            ("http://10.0.0.1:80/login/", "/api/v1/namespaces/default/pods/web/proxy/login/"),
            ("http://localhost:8001/a", "/api/v1/namespaces/default/pods/web/proxy/a"),
            ("/api/v1/namespaces/default/pods/web/proxy/a", "/api/v1/namespaces/default/pods/web/proxy/a"),
            (
                "/api/v1/namespaces/default/pods/web/proxyless",
                "/api/v1/namespaces/default/pods/web/proxy/api/v1/namespaces/default/pods/web/proxyless",
            ),
            ("next", "next"),
            ("https://example.com/a", "https://example.com/a"),
            ("//example.com/a", "//example.com/a"),
        ] {
            assert_eq!(location(given, prefix, &own), expected, "{given}");
        }
    }
}
