//! What comes after the question mark.

use std::collections::BTreeMap;

/// The parameters of a request; of two of a name the first one counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    pub(super) fn read(text: &str) -> Self {
        let mut all = BTreeMap::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            all.entry(decoded(name)).or_insert_with(|| decoded(value));
        }
        Self(all)
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let escaped = match (first, after) {
            (b'%', [high, low, behind @ ..]) => {
                hex(*high).zip(hex(*low)).map(|(high, low)| (high << 4 | low, behind))
            }
            (b'+', behind) => Some((b' ', behind)),
            _ => None,
        };
        let (byte, behind) = escaped.unwrap_or((*first, after));
        bytes.push(byte);
        rest = behind;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::read("a=1%3A2+3&b&a=9&c=%zz%");
        assert_eq!(query.get("a"), Some("1:2 3"));
        assert_eq!((query.get("b"), query.get("c"), query.get("d")), (Some(""), Some("%zz%"), None));
    }
}
