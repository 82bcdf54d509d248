//! The string formats of OpenAPI and Kubernetes.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::civil::Date;
use plumb_go::regexp::Regexp;
use plumb_validation::names::{dns_label, dns_subdomain};

/// The known formats, without dashes: `date-time` and `datetime` are the same format.
const NAMES: [&str; 25] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
];

/// Returns the format if values of these types are validated against it.
pub(crate) fn supported<'a>(types: &[&str], form: &'a str) -> Option<&'a str> {
    if form.is_empty() {
        return None;
    }
    match types {
        [] | ["string"] => is_string_format(form).then_some(form),
        ["integer"] => matches!(form, "int32" | "int64").then_some(form),
        ["number"] => matches!(form, "float" | "double").then_some(form),
        _ => None,
    }
}

fn is_string_format(form: &str) -> bool {
    let plain = form.replace('-', "");
    NAMES.contains(&plain.as_str()) || plain == "k8slongname"
}

/// Whether a format is unrecognized for values of a type (`GetUnrecognizedFormats`). The API server then returns a warning.
pub(crate) fn is_unrecognized(ty: &str, form: &str) -> bool {
    let types: &[&str] = if ty.is_empty() { &[] } else { &[ty] };
    !form.is_empty() && supported(types, form).is_none()
}

fn pattern(text: &str) -> Regexp {
    #[expect(clippy::expect_used, reason = "the patterns are constants")]
    Regexp::new(text).expect("a pattern written here is valid")
}

static UUID: LazyLock<[Regexp; 4]> = LazyLock::new(|| {
    let form = |third: &str, fourth: &str| {
        pattern(&format!("(?i)^[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{third}-?{fourth}-?[0-9a-f]{{12}}$"))
    };
    [
        form("[0-9a-f]{4}", "[0-9a-f]{4}"),
        form("3[0-9a-f]{3}", "[0-9a-f]{4}"),
        form("4[0-9a-f]{3}", "[89ab][0-9a-f]{3}"),
        form("5[0-9a-f]{3}", "[89ab][0-9a-f]{3}"),
    ]
});
// The patterns of `k8s.io/kube-openapi/pkg/validation/strfmt`, quirks included: stricter ones would reject stored objects.
static HOST: LazyLock<Regexp> = LazyLock::new(|| {
    pattern(
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
    )
});
static COLOR: LazyLock<Regexp> = LazyLock::new(|| pattern("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"));
static RGB: LazyLock<Regexp> = LazyLock::new(|| {
    let part = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*";
    pattern(&format!(r"^rgb\({part},{part},{part}\)$"))
});
static SSN: LazyLock<Regexp> = LazyLock::new(|| pattern(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"));
static CARD: LazyLock<Regexp> = LazyLock::new(|| {
    pattern(
        r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$",
    )
});

/// Whether a string has a format.
pub(crate) fn matches(form: &str, text: &str) -> bool {
    match form.replace('-', "").as_str() {
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "uri" => is_uri(text),
        "email" => text.rsplit_once('@').is_some_and(|(name, host)| {
            !name.is_empty() && !host.is_empty() && !text.contains(char::is_whitespace) && !name.contains('@')
        }),
        "hostname" => text.len() <= 255 && HOST.is_match(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.contains(':') && text.parse::<IpAddr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" => UUID[0].is_match(text),
        "uuid3" => UUID[1].is_match(text),
        "uuid4" => UUID[2].is_match(text),
        "uuid5" => UUID[3].is_match(text),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "creditcard" => CARD.is_match(&text.chars().filter(char::is_ascii_digit).collect::<String>()),
        "ssn" => SSN.is_match(text),
        "hexcolor" => COLOR.is_match(text),
        "rgbcolor" => RGB.is_match(text),
        "byte" => !text.is_empty() && STANDARD.decode(text).is_ok(),
        "date" => text.len() == 10 && text.parse::<Date>().is_ok(),
        "duration" => plumb_go::duration::parse_openapi(text).is_some(),
        "datetime" => is_datetime(text),
        "k8sshortname" => dns_label(text).is_empty(),
        "k8slongname" => dns_subdomain(text).is_empty(),
        _ => true,
    }
}

fn is_uri(text: &str) -> bool {
    let scheme = text.split_once(':').is_some_and(|(scheme, rest)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
            && !rest.is_empty()
    });
    (scheme || text.starts_with('/')) && !text.contains([' ', '\n', '\x7f'])
}

fn is_cidr(text: &str) -> bool {
    let Some((ip, bits)) = text.split_once('/') else { return false };
    let max_bits = match ip.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    !bits.is_empty()
        && bits.bytes().all(|b| b.is_ascii_digit())
        && bits.parse::<u8>().is_ok_and(|bits| bits <= max_bits)
}

fn is_mac(text: &str) -> bool {
    let pairs = |separator: char| {
        let parts: Vec<&str> = text.split(separator).collect();
        matches!(parts.len(), 6 | 8 | 20)
            && parts.iter().all(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    let parts: Vec<&str> = text.split('.').collect();
    pairs(':')
        || pairs('-')
        || (matches!(parts.len(), 3 | 4 | 10)
            && parts.iter().all(|part| part.len() == 4 && part.bytes().all(|b| b.is_ascii_hexdigit())))
}

fn digits(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, '-' | ' ')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let text = digits(text);
    let value = |(i, c): (usize, char)| match c {
        'X' if i == 9 => Some(10),
        c => c.to_digit(10),
    };
    let values: Option<Vec<u32>> = text.chars().enumerate().map(value).collect();
    values.is_some_and(|values| {
        values.len() == 10 && (1..).zip(&values).map(|(i, value)| i * value).sum::<u32>() % 11 == 0
    })
}

fn is_isbn13(text: &str) -> bool {
    let values: Option<Vec<u32>> = digits(text).chars().map(|c| c.to_digit(10)).collect();
    values.is_some_and(|values| {
        let sum: u32 = values.iter().zip([1, 3].iter().cycle()).map(|(value, factor)| value * factor).sum();
        values.len() == 13 && sum.is_multiple_of(10)
    })
}

fn is_datetime(text: &str) -> bool {
    let bytes = text.as_bytes();
    let form =
        bytes.len() >= 20 && bytes[4] == b'-' && bytes[10].eq_ignore_ascii_case(&b't') && bytes[13] == b':';
    form && text.parse::<Timestamp>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_duration_is_a_go_duration_or_a_number_with_a_longer_unit() {
        for (text, expected) in [
            ("1h30m", true),
            ("-1.5h", true),
            (".5s", true),
            ("2 weeks 3 days", true),
            ("1d", true),
            ("1.2.3s", false),
            ("1..5s", false),
            ("s", false),
            ("", false),
            ("soon", false),
        ] {
            assert_eq!(matches("duration", text), expected, "{text}");
        }
    }
}
