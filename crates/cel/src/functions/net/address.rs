//! Why a text is no address, in the words of Go's `net/netip`.

/// What is wrong with a text, and the rest of it from there on, if that is shown.
struct Wrong<'t>(&'static str, &'t str);

/// Why a text is no address.
pub(super) fn complaint(text: &str) -> String {
    let Wrong(what, at) = match text.find(['.', ':', '%']).map(|place| &text[place..=place]) {
        Some(".") => four(text),
        Some(":") => six(text),
        Some(_) => Some(Wrong("missing IPv6 address", "")),
        None => None,
    }
    .unwrap_or(Wrong("unable to parse IP", ""));
    let shown = plumb_go::quote(text);
    if at.is_empty() {
        return format!("ParseAddr({shown}): {what}");
    }
    format!("ParseAddr({shown}): {what} (at {})", plumb_go::quote(at))
}

/// Why a text is no range of addresses.
pub(super) fn range_complaint(text: &str) -> String {
    let why = match text.rsplit_once('/') {
        None => "no '/'".to_owned(),
        Some((address, bits)) => match address.parse::<std::net::IpAddr>() {
            Err(_) if address.contains('%') && address.contains(':') => {
                "IPv6 zones cannot be present in a prefix".to_owned()
            }
            Err(_) => complaint(address),
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

fn four(text: &str) -> Option<Wrong<'_>> {
    let (mut fields, mut value, mut digits) = (0, 0_u32, 0);
    let mut before = None;
    for (place, letter) in text.char_indices() {
        match letter {
            '0'..='9' => {
                if digits == 1 && value == 0 {
                    return Some(Wrong("IPv4 field has octet with leading zero", ""));
                }
                value = value * 10 + u32::from(letter) - u32::from('0');
                digits += 1;
                if value > 255 {
                    return Some(Wrong("IPv4 field has value >255", ""));
                }
            }
            '.' => {
                if place == 0 || place + 1 == text.len() || before == Some('.') {
                    return Some(Wrong("IPv4 field must have at least one digit", &text[place..]));
                }
                if fields == 3 {
                    return Some(Wrong("IPv4 address too long", ""));
                }
                (fields, value, digits) = (fields + 1, 0, 0);
            }
            _ => return Some(Wrong("unexpected character", &text[place..])),
        }
        before = Some(letter);
    }
    (fields < 3).then_some(Wrong("IPv4 address too short", ""))
}

fn six(text: &str) -> Option<Wrong<'_>> {
    let mut rest = match text.split_once('%') {
        Some((_, "")) => return Some(Wrong("zone must be a non-empty string", "")),
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
            return Some(Wrong("each group must have 4 or less digits", rest));
        }
        if digits == 0 {
            return Some(Wrong("each colon-separated field must have at least one digit", rest));
        }
        if rest[digits..].starts_with('.') {
            if !gap && bytes != 12 {
                let what = "embedded IPv4 address must replace the final 2 fields of the address";
                return Some(Wrong(what, rest));
            }
            if bytes > 12 {
                let what = "too many hex fields to fit an embedded IPv4 at the end of the address";
                return Some(Wrong(what, rest));
            }
            if let Some(wrong) = four(rest) {
                return Some(wrong);
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
            return Some(Wrong("unexpected character, want colon", rest));
        };
        if after.is_empty() {
            return Some(Wrong("colon must be followed by more characters", rest));
        }
        rest = after;
        if let Some(after) = rest.strip_prefix(':') {
            if gap {
                return Some(Wrong("multiple :: in address", rest));
            }
            gap = true;
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return Some(Wrong("trailing garbage after address", rest));
    }
    if bytes < 16 {
        return (!gap).then_some(Wrong("address string too short", ""));
    }
    gap.then_some(Wrong("the :: must expand to at least one field of zeros", ""))
}
