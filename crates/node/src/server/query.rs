//! The query of a URL.

use percent_encoding::percent_decode_str;

/// The parameters of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn read(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let read = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        };
        Self(pairs.map(read).collect())
    }

    /// A parameter; of two with one name the first one counts.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Every value of a parameter, in order.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// Whether a switch is on.
    pub(super) fn is_on(&self, name: &str) -> bool {
        matches!(self.get(name), Some("1" | "true"))
    }
}

/// A name or a value; a space is written as `+`.
fn decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::read("a=1%3A2+3&b&a=9&c=%zz%");
        assert_eq!(query.get("a"), Some("1:2 3"));
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1:2 3", "9"]);
        assert_eq!((query.get("b"), query.get("c"), query.get("d")), (Some(""), Some("%zz%"), None));
    }
}
