//! Formats of names, keys and numbers, as upstream's `util/validation`.
//!
//! Each function returns all error messages about a value; a valid value has none.

use std::net::{IpAddr, Ipv4Addr};

use plumb_validation::names::too_long;
pub use plumb_validation::names::{
    dns_label, dns_subdomain, dns_subdomain_prefix, dns_subdomain_with_underscores, label_value,
    qualified_name, regex_error,
};

/// Error messages about a value.
pub(crate) type Messages = Vec<String>;

/// A segment of a URL path: the format of the names of roles, and of kinds without a format of their own.
pub fn path_segment(value: &str) -> Messages {
    if matches!(value, "." | "..") {
        return vec![format!("may not be '{value}'")];
    }
    path_segment_prefix(value)
}

/// The prefix of a path segment.
pub(crate) fn path_segment_prefix(value: &str) -> Messages {
    ["/", "%"]
        .iter()
        .filter(|bad| value.contains(**bad))
        .map(|bad| format!("may not contain '{bad}'"))
        .collect()
}

/// The reason of a condition.
pub(crate) fn condition_reason(value: &str) -> Messages {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b',' | b':');
    let bytes = value.as_bytes();
    let is_reason = bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(|last| last.is_ascii_alphanumeric() || *last == b'_')
        && bytes.iter().copied().all(inside);
    if is_reason {
        return Vec::new();
    }
    let rule = "a condition reason must start with alphabetic character, optionally followed by a string of \
                alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'";
    let examples = ["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"];
    vec![regex_error(rule, "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", &examples)]
}

/// The key of an entry in a `ConfigMap` or Secret.
pub fn config_key(value: &str) -> Messages {
    let mut messages = too_long(value, 253, "characters");
    if value.is_empty()
        || !value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
    {
        let rule = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        messages.push(regex_error(rule, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    }
    match value {
        "." => messages.push("must not be '.'".to_owned()),
        ".." => messages.push("must not be '..'".to_owned()),
        _ if value.starts_with("..") => messages.push("must not start with '..'".to_owned()),
        _ => {}
    }
    messages
}

/// The name of an environment variable.
pub fn env_var_name(value: &str) -> Messages {
    let mut messages = Messages::new();
    if value.is_empty() {
        messages.push("environment variable name must be non-empty".to_owned());
    }
    if value.chars().any(|c| !(' '..='~').contains(&c) || c == '=') {
        let rule = "a valid environment variable name must consist only of printable ASCII characters other than '='";
        messages.push(rule.to_owned());
    }
    messages
}

/// The name of a port of a container.
pub fn port_name(value: &str) -> Messages {
    let mut messages = too_long(value, 15, "characters");
    if value.is_empty() || !value.bytes().all(|b| is_lower(b) || b == b'-') {
        messages.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !value.bytes().any(|b| b.is_ascii_lowercase()) {
        messages.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        messages.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        messages.push("must not begin or end with a hyphen".to_owned());
    }
    messages
}

/// The number of a port.
pub fn port_number(value: i64) -> Messages {
    in_range(value, 1, 65535)
}

/// The ID of a user or group.
pub fn user_or_group(value: i64) -> Messages {
    in_range(value, 0, i64::from(i32::MAX))
}

/// A number in a range.
pub fn in_range(value: i64, low: i64, high: i64) -> Messages {
    if (low..=high).contains(&value) { Vec::new() } else { vec![range_error(low, high)] }
}

/// The message about a number that is out of range.
pub fn range_error(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

/// The name of an HTTP header.
pub fn http_header_name(value: &str) -> Messages {
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Vec::new();
    }
    let rule = "a valid HTTP header must consist of alphanumeric characters or '-'";
    vec![regex_error(rule, "[-A-Za-z0-9]+", &["X-Header-Name"])]
}

/// A percentage, such as `25%`.
pub(crate) fn percent(value: &str) -> Messages {
    let number = value.strip_suffix('%').unwrap_or_default();
    if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) {
        return Vec::new();
    }
    let rule = "a valid percent string must be a numeric string followed by an ending '%'";
    vec![regex_error(rule, "[0-9]+%", &["1%", "93%"])]
}

/// The errors of a name that has to be an IP address in its canonical form.
pub(crate) fn ip_address_name(value: &str) -> Messages {
    match value.parse::<IpAddr>() {
        Err(_) => vec![format!("ParseAddr({value:?}): unable to parse IP")],
        Ok(address) if address.to_string() != value => {
            vec!["must be a canonical format IP address".to_owned()]
        }
        Ok(_) => Vec::new(),
    }
}

/// An IP address of either family.
pub fn ip(value: &str) -> Messages {
    match value.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            vec!["must not be an IPv4-mapped IPv6 address".to_owned()]
        }
        Ok(_) => Vec::new(),
        Err(_) if without_leading_zeros(value).parse::<Ipv4Addr>().is_ok() => {
            vec!["must not have leading 0s".to_owned()]
        }
        Err(_) => vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()],
    }
}

/// An address of an endpoint: none that only the machine itself, or its link, knows. Upstream allows multicast addresses.
pub fn endpoint_ip(value: &str) -> Messages {
    let parsed = value.parse::<IpAddr>().or_else(|_| without_leading_zeros(value).parse());
    let Ok(address) = parsed.map(|address: IpAddr| address.to_canonical()) else {
        return vec!["must be a valid IP address".to_owned()];
    };
    let link_local_multicast = match address {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    };
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let mut messages = Messages::new();
    if address.is_unspecified() {
        messages.push(format!("may not be unspecified ({value})"));
    }
    if address.is_loopback() {
        messages.push("may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned());
    }
    if link_local {
        messages.push("may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned());
    }
    if link_local_multicast {
        messages.push("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned());
    }
    messages
}

/// A CIDR.
pub fn cidr(value: &str) -> Messages {
    let invalid = || vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".to_owned()];
    let Some((address, length)) = value.split_once('/') else { return invalid() };
    let strict = address.parse::<IpAddr>();
    let sloppy = without_leading_zeros(address).parse::<IpAddr>();
    let (Ok(parsed), Ok(bits)) = (sloppy, length.parse::<u32>()) else { return invalid() };
    let width = if parsed.is_ipv4() { 32 } else { 128 };
    if bits > width || length.starts_with('+') {
        return invalid();
    }
    if strict.is_err() || (length.len() > 1 && length.starts_with('0')) {
        return vec!["must not have leading 0s in IP or prefix length".to_owned()];
    }
    let beyond = match parsed {
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => {
            return vec!["must not have an IPv4-mapped IPv6 address".to_owned()];
        }
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    let rest = width - bits;
    let mask = if rest == 128 { u128::MAX } else { (1 << rest) - 1 };
    if beyond & mask != 0 {
        return vec!["must not have bits set beyond the prefix length".to_owned()];
    }
    Vec::new()
}

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn without_leading_zeros(address: &str) -> String {
    let parts = address.split('.').map(|part| {
        let trimmed = part.trim_start_matches('0');
        if trimmed.is_empty() && !part.is_empty() { "0" } else { trimmed }
    });
    parts.collect::<Vec<_>>().join(".")
}
