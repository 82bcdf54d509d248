//! Who may use the dashboard: the browser that was opened with the printed URL.
//!
//! The dashboard acts with the rights of the user who started it, so a request must show that it comes from that user.
//! The URL that the command prints has a random token; the first visit exchanges it for a cookie. Other users of the machine have
//! neither. Pages of other sites can make the browser send requests, but not the cookie (`SameSite=Strict`); a name that an
//! attacker points at 127.0.0.1 (DNS rebinding) is refused by the `Host` header.

use std::net::{IpAddr, SocketAddr};

use data_encoding::HEXLOWER;
use http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use http::{HeaderMap, Method};
use ring::error::Unspecified;
use ring::rand::{SecureRandom as _, SystemRandom};
use subtle::ConstantTimeEq as _;

/// The parameter of the URL that has the token.
pub(crate) const PARAMETER: &str = "token";

/// The token, and the cookie that it is exchanged for.
pub(crate) struct Access {
    token: String,
    cookie_name: String,
    session: String,
}

/// What a request is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the user's.
    Allowed,
    /// It has the token in its URL, which is to be exchanged for the cookie.
    FirstVisit,
    /// It has neither token nor cookie.
    Unauthenticated,
    /// It is for another host.
    WrongHost,
    /// A page of another site has sent it.
    WrongOrigin,
}

impl Access {
    /// A random token, for a server at this address.
    pub(crate) fn new(address: SocketAddr) -> Result<Self, Unspecified> {
        Ok(Self {
            token: random()?,
            // Browsers share cookies between the ports of a host.
            cookie_name: format!("plumb-dashboard-{}", address.port()),
            session: random()?,
        })
    }

    /// The token.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// The cookie, as the header that sets it.
    pub(crate) fn set_cookie(&self) -> String {
        format!("{}={}; Path=/; HttpOnly; SameSite=Strict", self.cookie_name, self.session)
    }

    /// Decides about a request. `token` is the parameter of its URL.
    pub(crate) fn check(&self, method: &Method, headers: &HeaderMap, token: Option<&str>) -> Verdict {
        if !host_is_local(headers) {
            return Verdict::WrongHost;
        }
        if *method != Method::GET && *method != Method::HEAD && !is_same_origin(headers) {
            return Verdict::WrongOrigin;
        }
        let has_cookie =
            cookies(headers).any(|(name, value)| name == self.cookie_name && is(value, &self.session));
        let bearer = text(headers, AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
        if token.is_some_and(|token| is(token, &self.token)) {
            Verdict::FirstVisit
        } else if has_cookie || bearer.is_some_and(|bearer| is(bearer, &self.token)) {
            Verdict::Allowed
        } else {
            Verdict::Unauthenticated
        }
    }
}

/// 256 random bits.
fn random() -> Result<String, Unspecified> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes)?;
    Ok(HEXLOWER.encode(&bytes))
}

/// Compares secrets in constant time.
fn is(given: &str, expected: &str) -> bool {
    given.as_bytes().ct_eq(expected.as_bytes()).into()
}

/// Whether the request is for this machine by a name that no DNS server decides about. The port may be another one: that of
/// a forwarding.
fn host_is_local(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next()) else {
        return false;
    };
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) if port.is_empty() || port.starts_with(':') => name,
            _ => return false,
        },
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether a page of this dashboard has sent a request. Browsers name the origin in each request that is not a GET.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let (Some(host), Some(origin)) = (text(headers, HOST), text(headers, ORIGIN)) else { return false };
    let is_same_site = headers.get("sec-fetch-site").is_none_or(|site| site == "same-origin");
    is_same_site && origin.strip_prefix("http://").is_some_and(|origin| origin.eq_ignore_ascii_case(host))
}

fn text(headers: &HeaderMap, name: http::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let values = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(';')).filter_map(|cookie| cookie.trim().split_once('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> Access {
        Access::new("127.0.0.1:6480".parse().unwrap()).unwrap()
    }

    fn check(access: &Access, method: Method, headers: &[(&'static str, &str)]) -> Verdict {
        let headers = headers.iter().map(|(name, value)| {
            (http::HeaderName::from_static(name), http::HeaderValue::from_str(value).unwrap())
        });
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, value);
        }
        access.check(&method, &map, None)
    }

    #[test]
    fn a_request_needs_the_cookie_or_the_token() {
        let access = access();
        let cookie = format!("other=1; {}={}", access.cookie_name, access.session);
        let bearer = format!("Bearer {}", access.token);
        let host = ("host", "127.0.0.1:6480");
        assert_eq!(check(&access, Method::GET, &[host, ("cookie", &cookie)]), Verdict::Allowed);
        assert_eq!(check(&access, Method::GET, &[host, ("authorization", &bearer)]), Verdict::Allowed);
        assert_eq!(check(&access, Method::GET, &[host]), Verdict::Unauthenticated);
        let cut = &cookie[..cookie.len() - 1];
        assert_eq!(check(&access, Method::GET, &[host, ("cookie", cut)]), Verdict::Unauthenticated);
        let mut headers = HeaderMap::new();
        headers.insert(HOST, http::HeaderValue::from_static("localhost"));
        assert_eq!(access.check(&Method::GET, &headers, Some(access.token())), Verdict::FirstVisit);
        assert_eq!(access.check(&Method::GET, &headers, Some("")), Verdict::Unauthenticated);
    }

    #[test]
    fn only_names_of_this_machine_are_a_host() {
        let access = access();
        let cookie = format!("{}={}", access.cookie_name, access.session);
        for host in ["localhost", "LOCALHOST:9000", "127.0.0.1:6480", "127.8.0.1", "[::1]:6480", "[::1]"] {
            let verdict = check(&access, Method::GET, &[("host", host), ("cookie", &cookie)]);
            assert_eq!(verdict, Verdict::Allowed, "{host}");
        }
        for host in ["attacker.example:6480", "192.0.2.1", "localhost.attacker.example", "[::1", "[::1]x", ""]
        {
            let verdict = check(&access, Method::GET, &[("host", host), ("cookie", &cookie)]);
            assert_eq!(verdict, Verdict::WrongHost, "{host}");
        }
        let two = [("host", "localhost"), ("host", "attacker.example"), ("cookie", &*cookie)];
        assert_eq!(check(&access, Method::GET, &two), Verdict::WrongHost);
        assert_eq!(check(&access, Method::GET, &[("cookie", &cookie)]), Verdict::WrongHost);
    }

    #[test]
    fn a_request_that_changes_something_names_its_origin() {
        let access = access();
        let cookie = format!("{}={}", access.cookie_name, access.session);
        let own = [("host", "localhost:6480"), ("cookie", &*cookie)];
        let post = |more: &[(&'static str, &str)]| check(&access, Method::POST, &[&own[..], more].concat());
        assert_eq!(post(&[("origin", "http://localhost:6480")]), Verdict::Allowed);
        assert_eq!(post(&[]), Verdict::WrongOrigin);
        for origin in ["http://localhost:6481", "http://attacker.example", "https://localhost:6480", "null"] {
            assert_eq!(post(&[("origin", origin)]), Verdict::WrongOrigin, "{origin}");
        }
        let cross = [("origin", "http://localhost:6480"), ("sec-fetch-site", "cross-site")];
        assert_eq!(post(&cross), Verdict::WrongOrigin);
    }
}
