//! The parse errors of Go's `net/netip`.

/// A parse error: the message, and the rest of the text from the error on, empty if the message does not display it.
struct ParseError<'t>(&'static str, &'t str);

/// The error of `netip.ParseAddr`.
pub(super) fn parse_error(text: &str) -> String {
    let ParseError(message, rest) = match text.find(['.', ':', '%']).map(|i| &text[i..=i]) {
        Some(".") => ipv4_error(text),
        Some(":") => ipv6_error(text),
        Some(_) => Some(ParseError("missing IPv6 address", "")),
        None => None,
    }
    .unwrap_or(ParseError("unable to parse IP", ""));
    let quoted = plumb_go::quote(text);
    if rest.is_empty() {
        return format!("ParseAddr({quoted}): {message}");
    }
    format!("ParseAddr({quoted}): {message} (at {})", plumb_go::quote(rest))
}

/// The error of `netip.ParsePrefix`.
pub(super) fn parse_prefix_error(text: &str) -> String {
    let why = match text.rsplit_once('/') {
        None => "no '/'".to_owned(),
        Some((address, bits)) => match address.parse::<std::net::IpAddr>() {
            Err(_) if address.contains('%') && address.contains(':') => {
                "IPv6 zones cannot be present in a prefix".to_owned()
            }
            Err(_) => parse_error(address),
            Ok(_) => {
                let leading = bits.len() > 1 && !bits.starts_with(|first: char| matches!(first, '1'..='9'));
                let number = !bits.is_empty() && bits.bytes().all(|digit| digit.is_ascii_digit());
                if leading || !number {
                    format!("bad bits after slash: {}", plumb_go::quote(bits))
                } else {
                    "prefix length out of range".to_owned()
                }
            }
        },
    };
    format!("netip.ParsePrefix({}): {why}", plumb_go::quote(text))
}

fn ipv4_error(text: &str) -> Option<ParseError<'_>> {
    let mut fields = 0;
    let mut value = 0_u32;
    let mut digits = 0;
    let mut before = None;
    for (i, letter) in text.char_indices() {
        match letter {
            '0'..='9' => {
                if digits == 1 && value == 0 {
                    return Some(ParseError("IPv4 field has octet with leading zero", ""));
                }
                value = value * 10 + u32::from(letter) - u32::from('0');
                digits += 1;
                if value > 255 {
                    return Some(ParseError("IPv4 field has value >255", ""));
                }
            }
            '.' => {
                if i == 0 || i + 1 == text.len() || before == Some('.') {
                    return Some(ParseError("IPv4 field must have at least one digit", &text[i..]));
                }
                if fields == 3 {
                    return Some(ParseError("IPv4 address too long", ""));
                }
                fields += 1;
                value = 0;
                digits = 0;
            }
            _ => return Some(ParseError("unexpected character", &text[i..])),
        }
        before = Some(letter);
    }
    (fields < 3).then_some(ParseError("IPv4 address too short", ""))
}

fn ipv6_error(text: &str) -> Option<ParseError<'_>> {
    let mut rest = match text.split_once('%') {
        Some((_, "")) => return Some(ParseError("zone must be a non-empty string", "")),
        Some((address, _)) => address,
        None => text,
    };
    let mut gap = false;
    if let Some(after) = rest.strip_prefix("::") {
        gap = true;
        rest = after;
        if rest.is_empty() {
            return None;
        }
    }
    let mut bytes = 0;
    while bytes < 16 {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits > 4 {
            return Some(ParseError("each group must have 4 or less digits", rest));
        }
        if digits == 0 {
            return Some(ParseError("each colon-separated field must have at least one digit", rest));
        }
        if rest[digits..].starts_with('.') {
            if !gap && bytes != 12 {
                let message = "embedded IPv4 address must replace the final 2 fields of the address";
                return Some(ParseError(message, rest));
            }
            if bytes > 12 {
                let message = "too many hex fields to fit an embedded IPv4 at the end of the address";
                return Some(ParseError(message, rest));
            }
            if let Some(error) = ipv4_error(rest) {
                return Some(error);
            }
            rest = "";
            bytes += 4;
            break;
        }
        bytes += 2;
        rest = &rest[digits..];
        if rest.is_empty() {
            break;
        }
        let Some(after) = rest.strip_prefix(':') else {
            return Some(ParseError("unexpected character, want colon", rest));
        };
        if after.is_empty() {
            return Some(ParseError("colon must be followed by more characters", rest));
        }
        rest = after;
        if let Some(after) = rest.strip_prefix(':') {
            if gap {
                return Some(ParseError("multiple :: in address", rest));
            }
            gap = true;
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return Some(ParseError("trailing garbage after address", rest));
    }
    if bytes < 16 {
        return (!gap).then_some(ParseError("address string too short", ""));
    }
    gap.then_some(ParseError("the :: must expand to at least one field of zeros", ""))
}
