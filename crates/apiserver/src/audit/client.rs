//! The client of a request: its addresses, and how it names itself.

use std::net::IpAddr;

use http::header::USER_AGENT;
use http::request::Parts;

use crate::authn::Peer;

/// The most bytes of a user agent that are recorded, and what follows if it is longer.
const MAX_USER_AGENT: usize = 1024;
const TRUNCATED: &str = "...TRUNCATED";

/// The addresses of a request: those that proxies say, and at last that of the connection, which no client can choose. A request of this
/// process has none of its own.
pub(super) fn source_ips(head: &Parts) -> Vec<IpAddr> {
    let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let parse = |text: &str| text.trim().parse::<IpAddr>().ok();
    let mut ips: Vec<IpAddr> = text("x-forwarded-for").split(',').filter_map(parse).collect();
    if let Some(real) = parse(text("x-real-ip"))
        && !ips.contains(&real)
    {
        ips.push(real);
    }
    if let Some(peer) = head.extensions.get::<Peer>() {
        let remote = peer.remote().ip().to_canonical();
        if ips.last() != Some(&remote) {
            ips.push(remote);
        }
    }
    ips
}

pub(super) fn user_agent(head: &Parts) -> String {
    let Some(value) = head.headers.get(USER_AGENT) else { return String::new() };
    let text = String::from_utf8_lossy(value.as_bytes());
    if text.len() <= MAX_USER_AGENT {
        return text.into_owned();
    }
    format!("{}{TRUNCATED}", &text[..text.floor_char_boundary(MAX_USER_AGENT)])
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn head(headers: &[(&str, &str)], remote: Option<&str>) -> Parts {
        let request =
            headers.iter().fold(Request::get("/"), |request, (name, value)| request.header(*name, *value));
        let mut head = request.body(()).unwrap().into_parts().0;
        if let Some(remote) = remote {
            head.extensions.insert(Peer::new(remote.parse().unwrap(), None));
        }
        head
    }

    #[test]
    fn the_address_of_the_connection_comes_last_and_none_twice_in_a_row() {
        type Headers<'a> = &'a [(&'a str, &'a str)];
        let table: [(Headers<'_>, Option<&str>, &[&str]); 6] = [
            (&[], None, &[]),
            (&[], Some("192.0.2.7:1"), &["192.0.2.7"]),
            (&[], Some("[::ffff:192.0.2.7]:1"), &["192.0.2.7"]),
            (
                &[("x-forwarded-for", "10.0.0.1, x, 10.0.0.2")],
                Some("[::1]:1"),
                &["10.0.0.1", "10.0.0.2", "::1"],
            ),
            (
                &[("x-forwarded-for", "10.0.0.1"), ("x-real-ip", "10.0.0.1")],
                Some("10.0.0.1:1"),
                &["10.0.0.1"],
            ),
            (&[("x-real-ip", "10.0.0.3")], Some("10.0.0.1:1"), &["10.0.0.3", "10.0.0.1"]),
        ];
        for (headers, remote, expected) in table {
            let found: Vec<String> =
                source_ips(&head(headers, remote)).iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{headers:?}");
        }
    }

    #[test]
    fn a_long_user_agent_is_truncated() {
        assert_eq!(user_agent(&head(&[], None)), "");
        assert_eq!(user_agent(&head(&[("user-agent", "kubectl")], None)), "kubectl");
        let long = "x".repeat(1_025);
        let expected = format!("{}...TRUNCATED", "x".repeat(1_024));
        assert_eq!(user_agent(&head(&[("user-agent", &long)], None)), expected);
    }
}
