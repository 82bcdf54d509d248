//! The hosts that images come from.

use std::net::IpAddr;
use std::str::FromStr;

use crate::reference::is_registry;

/// The API of Docker Hub, whose images are named after another host.
const DOCKER_HUB: &str = "registry-1.docker.io";

/// The host that serves the images of a registry.
pub(crate) fn api_host(registry: &str) -> &str {
    if registry == "docker.io" { DOCKER_HUB } else { registry }
}

/// Whether a host, perhaps with a port, is this machine.
pub fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') && !name.is_empty() => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    match name.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => name.eq_ignore_ascii_case("localhost"),
    }
}

/// A host that is asked for the images of a registry before the registry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The registry, such as `docker.io`.
    pub registry: String,
    /// The host of the mirror, perhaps with a port.
    pub host: String,
}

/// Some text that is not a mirror.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither HOST[:PORT] of a mirror of docker.io nor REGISTRY=HOST[:PORT]")]
pub struct InvalidMirror(String);

/// `HOST[:PORT]` is a mirror of `docker.io`, `REGISTRY=HOST[:PORT]` one of another registry.
impl FromStr for Mirror {
    type Err = InvalidMirror;

    fn from_str(text: &str) -> Result<Self, InvalidMirror> {
        let (registry, host) = text.split_once('=').unwrap_or(("docker.io", text));
        let host = host.strip_prefix("https://").unwrap_or(host).trim_end_matches('/');
        if is_registry(registry) && is_registry(host) {
            Ok(Self { registry: registry.to_owned(), host: host.to_owned() })
        } else {
            Err(InvalidMirror(text.chars().take(80).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_names_of_this_machine_are_loopback() {
        for host in ["localhost", "LOCALHOST:5000", "127.0.0.1", "127.9.9.9:80", "[::1]", "[::1]:5000"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in
            ["example.com", "localhost.example.com", "10.0.0.1:5000", "[2001:db8::1]:5000", "1.2.3.4", ""]
        {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn a_mirror_is_one_of_docker_hub_unless_it_names_another_registry() {
        let mirror = |text: &str| text.parse::<Mirror>().map(|mirror| (mirror.registry, mirror.host));
        assert_eq!(mirror("mirror.example.com"), Ok(("docker.io".into(), "mirror.example.com".into())));
        assert_eq!(mirror("https://m:5000/"), Ok(("docker.io".into(), "m:5000".into())));
        assert_eq!(mirror("quay.io=localhost:5000"), Ok(("quay.io".into(), "localhost:5000".into())));
        for text in ["", "a b", "http://m", "a/b", "=m", "m="] {
            assert!(mirror(text).is_err(), "{text}");
        }
    }
}
