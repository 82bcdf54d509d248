//! Warnings about IP addresses and CIDRs that are accepted but not in canonical form.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;

/// Parses an address in any form that Kubernetes ever accepted: with leading zeros, or as an IPv4-mapped IPv6 address.
pub(crate) fn parse_sloppy(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Some(address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4));
    }
    if text.contains(':') {
        return None;
    }
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *octet = part
            .trim_start_matches('0')
            .parse()
            .or_else(|_| if part.contains('0') { Ok(0) } else { Err(()) })
            .ok()?;
    }
    parts.next().is_none().then(|| IpAddr::V4(Ipv4Addr::from(octets)))
}

/// The warning about an IP address.
pub(crate) fn address(path: &str, text: &str) -> Option<String> {
    let sloppy = parse_sloppy(text)?;
    match text.parse::<IpAddr>() {
        Err(_) => Some(format!("{path}: non-standard IP address {text:?} is invalid: use \"{sloppy}\"")),
        Ok(IpAddr::V6(exact)) if exact.to_ipv4_mapped().is_some() => {
            Some(format!("{path}: non-standard IP address {text:?} is invalid: use \"{sloppy}\""))
        }
        Ok(IpAddr::V6(exact)) if exact.to_string() != text => Some(format!(
            "{path}: IPv6 address {text:?} should be in RFC 5952 canonical format (\"{exact}\")"
        )),
        Ok(_) => None,
    }
}

/// The warnings about a CIDR.
pub(crate) fn range(path: &str, text: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    let Some((start, length)) = text.split_once('/') else { return warnings };
    let (Some(address), Ok(length)) = (parse_sloppy(start), length.parse::<u8>()) else { return warnings };
    let network = network(address, length);
    if network != address {
        let whole = if address.is_ipv4() { 32 } else { 128 };
        warnings.push(format!(
            "{path}: CIDR value {text:?} is ambiguous in this context (should be \"{network}/{length}\" or \
             \"{address}/{whole}\"?)"
        ));
    }
    match start.parse::<IpAddr>() {
        Err(_) => {
            warnings.push(format!(
                "{path}: non-standard CIDR value {text:?} is invalid: use \"{network}/{length}\""
            ));
        }
        Ok(IpAddr::V6(exact)) if warnings.is_empty() && format!("{exact}/{length}") != text => {
            warnings.push(format!(
                "{path}: IPv6 CIDR value {text:?} should be in RFC 5952 canonical format (\"{exact}/{length}\")"
            ));
        }
        Ok(_) => {}
    }
    warnings
}

fn network(address: IpAddr, length: u8) -> IpAddr {
    let length = u32::from(length);
    match address {
        IpAddr::V4(four) => {
            let mask = u32::MAX.checked_shl(32u32.saturating_sub(length)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(four) & mask))
        }
        IpAddr::V6(six) => {
            let mask = u128::MAX.checked_shl(128u32.saturating_sub(length)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(six) & mask))
        }
    }
}

/// Warnings about the IP addresses in the field `ip` of a list of objects.
pub(crate) fn of_list(list: &Value, path: &str, suffix: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    for (i, element) in list.as_array().into_iter().flatten().enumerate() {
        let text = element["ip"].as_str().unwrap_or_default();
        if !text.is_empty() {
            warnings.extend(address(&format!("{path}[{i}]{suffix}"), text));
        }
    }
    warnings
}
