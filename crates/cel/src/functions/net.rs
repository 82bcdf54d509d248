//! The IP and CIDR libraries.

mod address;

use std::net::IpAddr;

use super::{Answer, Regexes, fail};
use crate::error::EvalError;
use crate::value::Value;

pub(super) fn call<'a>(function: &str, args: &[Value<'a>], _: &Regexes) -> Option<Answer<'a>> {
    Some(match (function, args) {
        ("ip", [Value::Text(text)]) => parse_ip(text).map(Value::Ip).or_else(fail),
        ("isIP", [Value::Text(text)]) => Ok(Value::Bool(parse_ip(text).is_ok())),
        ("ip.isCanonical", [Value::Text(text)]) => match parse_ip(text) {
            Ok(ip) => Ok(Value::Bool(ip.to_string() == text.as_ref())),
            Err(why) => fail(why),
        },
        ("family", [Value::Ip(ip)]) => Ok(Value::Int(if ip.is_ipv4() { 4 } else { 6 })),
        ("isUnspecified", [Value::Ip(ip)]) => Ok(Value::Bool(ip.is_unspecified())),
        ("isLoopback", [Value::Ip(ip)]) => Ok(Value::Bool(ip.is_loopback())),
        ("isLinkLocalMulticast", [Value::Ip(ip)]) => Ok(Value::Bool(link_local_multicast(*ip))),
        ("isLinkLocalUnicast", [Value::Ip(ip)]) => Ok(Value::Bool(link_local(*ip))),
        ("isGlobalUnicast", [Value::Ip(ip)]) => {
            let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
            let global = !(broadcast
                || ip.is_unspecified()
                || ip.is_loopback()
                || ip.is_multicast()
                || link_local(*ip));
            Ok(Value::Bool(global))
        }
        ("cidr", [Value::Text(text)]) => {
            parse_cidr(text).map(|(ip, bits)| Value::Cidr(ip, bits)).or_else(fail)
        }
        ("isCIDR", [Value::Text(text)]) => Ok(Value::Bool(parse_cidr(text).is_ok())),
        ("containsIP", [Value::Cidr(ip, bits), other]) => match other {
            Value::Ip(other) => Ok(Value::Bool(contains((*ip, *bits), *other))),
            Value::Text(text) => match parse_ip(text) {
                Ok(other) => Ok(Value::Bool(contains((*ip, *bits), other))),
                // Upstream does not return the parse error here.
                Err(_) => Err(EvalError::no_such_overload()),
            },
            _ => return None,
        },
        ("containsCIDR", [Value::Cidr(ip, bits), other]) => {
            let other = match other {
                Value::Cidr(other, length) => Ok((*other, *length)),
                Value::Text(text) => parse_cidr(text),
                _ => return None,
            };
            match other {
                Ok((other, length)) => Ok(Value::Bool(length >= *bits && contains((*ip, *bits), other))),
                Err(why) => fail(why),
            }
        }
        ("ip", [Value::Cidr(ip, _)]) => Ok(Value::Ip(*ip)),
        ("prefixLength", [Value::Cidr(_, bits)]) => Ok(Value::Int((*bits).into())),
        ("masked", [Value::Cidr(ip, bits)]) => Ok(Value::Cidr(masked(*ip, *bits), *bits)),
        _ => return None,
    })
}

fn parse_ip(text: &str) -> Result<IpAddr, String> {
    // An address with a zone is parsed, and rejected with a message of its own.
    let (address, zoned) = match text.split_once('%') {
        Some((address, zone)) => (address, !zone.is_empty() && address.contains(':')),
        None => (text, false),
    };
    let ip = if zoned { address.parse() } else { text.parse() };
    let ip: IpAddr = ip.map_err(|_| {
        let why = address::parse_error(text);
        format!("IP Address {} parse error during conversion from string: {why}", plumb_go::quote(text))
    })?;
    if zoned {
        return Err(format!("IP address {} with zone value is not allowed", plumb_go::quote(text)));
    }
    match ip {
        IpAddr::V6(six) if six.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {} is not allowed", plumb_go::quote(text)))
        }
        ip => Ok(ip),
    }
}

fn parse_cidr(text: &str) -> Result<(IpAddr, u8), String> {
    const PREFIX: &str = "network address parse error during conversion from string: ";
    // Upstream repeats the prefix of the message.
    let wrong = || format!("{PREFIX}{PREFIX}{}", address::parse_prefix_error(text));
    let (address, bits) = text.rsplit_once('/').ok_or_else(wrong)?;
    let ip: IpAddr = address.parse().map_err(|_| wrong())?;
    let canonical = !bits.is_empty()
        && bits.bytes().all(|b| b.is_ascii_digit())
        && (bits == "0" || !bits.starts_with('0'));
    let max_bits = if ip.is_ipv4() { 32 } else { 128 };
    let bits = bits.parse::<u8>().ok().filter(|bits| canonical && *bits <= max_bits).ok_or_else(wrong)?;
    if matches!(ip, IpAddr::V6(six) if six.to_ipv4_mapped().is_some()) {
        return Err(format!("{PREFIX}IPv4-mapped IPv6 address {} is not allowed", plumb_go::quote(text)));
    }
    Ok((ip, bits))
}

fn link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

fn link_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        IpAddr::V6(ip) => ip.octets()[0] == 0xff && ip.octets()[1] & 0x0f == 0x02,
    }
}

fn masked(ip: IpAddr, bits: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            IpAddr::V4((ip.to_bits() & mask).into())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            IpAddr::V6((ip.to_bits() & mask).into())
        }
    }
}

fn contains((ip, bits): (IpAddr, u8), other: IpAddr) -> bool {
    ip.is_ipv4() == other.is_ipv4() && masked(ip, bits) == masked(other, bits)
}
