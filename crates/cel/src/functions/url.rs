//! The URL library.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use data_encoding::HEXLOWER_PERMISSIVE;

use super::{Answer, Regexes, fail};
use crate::value::{Key, Map, Value};

/// A parsed URL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Url {
    scheme: String,
    /// The part after the scheme of a URL without a path (`mailto:a`).
    opaque: String,
    host: String,
    path: String,
    query: String,
    fragment: String,
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.scheme.is_empty() {
            write!(f, "{}:", self.scheme)?;
        }
        if !self.host.is_empty() {
            write!(f, "//{}", self.host)?;
        }
        f.write_str(&self.opaque)?;
        f.write_str(&self.path)?;
        if !self.query.is_empty() {
            write!(f, "?{}", self.query)?;
        }
        if !self.fragment.is_empty() {
            write!(f, "#{}", self.fragment)?;
        }
        Ok(())
    }
}

pub(super) fn call<'a>(function: &str, args: &[Value<'a>], _: &Regexes) -> Option<Answer<'a>> {
    Some(match (function, args) {
        ("url", [Value::Text(text)]) => match parse_error(text) {
            None => {
                // Like upstream, the URL is validated with its fragment and parsed without it.
                let (whole, fragment) = text.split_once('#').unwrap_or((text, ""));
                let url = parse(whole).map(|url| Url { fragment: fragment.to_owned(), ..url });
                url.map(|url| Value::Url(Arc::new(url))).or_else(fail)
            }
            Some(why) => fail(format!("URL parse error during conversion from string: {why}")),
        },
        ("isURL", [Value::Text(text)]) => Ok(Value::Bool(parse(text).is_ok())),
        ("getScheme", [Value::Url(url)]) => Ok(Value::text(url.scheme.clone())),
        ("getHost", [Value::Url(url)]) => Ok(Value::text(url.host.clone())),
        ("getHostname", [Value::Url(url)]) => Ok(Value::text(hostname(&url.host).0)),
        ("getPort", [Value::Url(url)]) => Ok(Value::text(hostname(&url.host).1)),
        ("getEscapedPath", [Value::Url(url)]) => Ok(Value::text(escaped(&url.path))),
        ("getQuery", [Value::Url(url)]) => Ok(query(&url.query)),
        _ => return None,
    })
}

/// The error of a text that is not a URL.
pub(super) fn parse_error(text: &str) -> Option<String> {
    parse(text).err().map(|why| format!("parse {}: {why}", plumb_go::quote(text)))
}

/// Parses like Go's `url.ParseRequestURI`: a URL must be absolute or begin with a slash.
fn parse(text: &str) -> Result<Url, String> {
    if text.is_empty() {
        return Err("empty url".to_owned());
    }
    if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    let (scheme, rest) = match text.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => (scheme.to_ascii_lowercase(), rest),
        Some(("", _)) => return Err("missing protocol scheme".to_owned()),
        _ => (String::new(), text),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let query = query.to_owned();
    if !rest.starts_with('/') {
        if scheme.is_empty() {
            return Err("invalid URI for request".to_owned());
        }
        let opaque = rest.to_owned();
        return Ok(Url { scheme, opaque, query, ..Url::default() });
    }
    let (host, path) = match rest.strip_prefix("//").filter(|_| !scheme.is_empty()) {
        Some(authority) => {
            let end = authority.find('/').unwrap_or(authority.len());
            let host = authority[..end].rsplit_once('@').map_or(&authority[..end], |(_, host)| host);
            (host, &authority[end..])
        }
        None => ("", rest),
    };
    if host.starts_with('[') && !host.contains(']') {
        return Err("missing ']' in host".to_owned());
    }
    let (_, port) = hostname(host);
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("invalid port {:?} after host", format!(":{port}")));
    }
    if host.contains(' ') {
        return Err("invalid character \" \" in host name".to_owned());
    }
    if unescaped(path).is_none() {
        return Err("invalid URL escape".to_owned());
    }
    Ok(Url { scheme, host: host.to_owned(), path: path.to_owned(), query, ..Url::default() })
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

/// Splits a host into its name and its port.
fn hostname(host: &str) -> (String, String) {
    if let Some((name, rest)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (name.to_owned(), rest.strip_prefix(':').unwrap_or_default().to_owned());
    }
    let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
    (name.to_owned(), port.to_owned())
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'%' {
            let (hex, tail) = tail.split_first_chunk::<2>()?;
            bytes.extend(HEXLOWER_PERMISSIVE.decode(hex).ok()?);
            rest = tail;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn escaped(path: &str) -> String {
    path.bytes()
        .map(|byte| match byte {
            b'a'..=b'z'
            | b'A'..=b'Z'
            | b'0'..=b'9'
            | b'-'
            | b'_'
            | b'.'
            | b'~'
            | b'/'
            | b'$'
            | b'&'
            | b'+'
            | b','
            | b':'
            | b';'
            | b'='
            | b'@'
            | b'%'
            | b'!'
            | b'\''
            | b'('
            | b')'
            | b'*' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

fn query<'a>(text: &str) -> Value<'a> {
    let mut found: BTreeMap<String, Vec<Value<'a>>> = BTreeMap::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decode = |text: &str| unescaped(&text.replace('+', " "));
        if let (Some(name), Some(value)) = (decode(name), decode(value)) {
            found.entry(name).or_default().push(Value::text(value));
        }
    }
    let map = found.into_iter().map(|(name, values)| (Key::Text(name), Value::list(values))).collect();
    Value::Map(Map::Made(Arc::new(map)))
}
