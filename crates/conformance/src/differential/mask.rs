//! Masks for unpredictable values, which are not compared: uids, times, revisions, allocated addresses and ports.

use std::borrow::Cow;

use serde_json::Value;

/// The length of the random suffix of a generated name.
const SUFFIX: usize = 5;
/// The maximal length of the prefix of such a name.
const LONGEST_PREFIX: usize = 63 - SUFFIX;
/// The ports that servers allocate; a dry run may show any of them.
const PORTS: std::ops::RangeInclusive<u16> = 30086..=32799;
/// The lengths of the parts of a uid.
const ID: [usize; 5] = [8, 4, 4, 4, 12];

/// Whether a text is a moment, to the second.
fn is_moment(text: &str) -> bool {
    text.len() == 20 && text.starts_with("20") && text.as_bytes()[10] == b'T' && text.ends_with('Z')
}

/// Masks every random uid in a text: the uid of a refused object is unknown.
fn without_ids(text: &str) -> String {
    let length = ID.iter().sum::<usize>() + ID.len() - 1;
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let candidate = rest.get(..length);
        let is_id = candidate.is_some_and(|id| {
            let parts: Vec<&str> = id.split('-').collect();
            parts.iter().map(|part| part.len()).eq(ID)
                && id.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
                && !id.contains("-0000-")
        });
        if is_id {
            shown.push_str("<id>");
            rest = &rest[length..];
        } else {
            shown.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    shown
}

/// A text with every revision masked: the one that an object has by now, and those of objects that are shown.
fn without_revisions(text: &str) -> String {
    let before = ["the ResourceVersion in record (", "\"resourceVersion\":\""];
    before.iter().fold(text.to_owned(), |text, before| {
        let mut parts = text.split(before);
        let mut shown = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            shown.push_str(before);
            shown.push_str("<revision>");
            shown.push_str(part.trim_start_matches(|letter: char| letter.is_ascii_digit()));
        }
        shown
    })
}

/// The words of one server that stand for something chosen by it.
#[derive(Clone, Debug, Default)]
pub(super) struct Mask {
    prefix: String,
    said: String,
    texts: Vec<(String, Cow<'static, str>)>,
    ports: Vec<i64>,
}

impl Mask {
    /// One that knows these words, and for each what is shown in its place.
    pub(super) fn of(words: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut texts: Vec<(String, Cow<'static, str>)> =
            words.into_iter().map(|(word, shown)| (word, Cow::Owned(shown))).collect();
        // The longest first: what the name of an owner begins, the names of what it owns go on.
        texts.sort_by(|one, other| (other.0.len(), &one.0).cmp(&(one.0.len(), &other.0)));
        Self { texts, ..Self::default() }
    }

    /// Learns from an object that was stored. What the client itself has said is no choice of the server's.
    pub(super) fn learn(&mut self, object: &Value, said: &str) {
        said.clone_into(&mut self.said);
        let metadata = &object["metadata"];
        for (field, shown) in
            [("uid", "<uid>"), ("creationTimestamp", "<time>"), ("deletionTimestamp", "<time>")]
        {
            self.hide(metadata[field].as_str(), shown, said);
        }
        self.hide(metadata["name"].as_str(), "<name>", said);
        let spec = &object["spec"];
        self.hide(spec["clusterIP"].as_str().filter(|address| *address != "None"), "<address>", said);
        let ports = spec["ports"].as_array().into_iter().flatten().map(|port| &port["nodePort"]);
        for port in ports.chain([&spec["healthCheckNodePort"]]).filter_map(Value::as_i64) {
            if port != 0 && !said.contains(&port.to_string()) && !self.ports.contains(&port) {
                self.ports.push(port);
                self.texts.push((port.to_string(), Cow::Borrowed("<port>")));
            }
        }
    }

    fn hide(&mut self, text: Option<&str>, shown: &'static str, said: &str) {
        let Some(text) = text.filter(|text| !text.is_empty() && !said.contains(*text)) else { return };
        if !self.texts.iter().any(|(known, _)| known == text) {
            self.texts.push((text.to_owned(), Cow::Borrowed(shown)));
        }
    }

    /// Learns from an object that is to be created: a name that is made up begins with what was asked for.
    pub(super) fn expect(&mut self, object: &Value) {
        let metadata = &object["metadata"];
        let named = metadata["name"].as_str().is_some_and(|name| !name.is_empty());
        let prefix = metadata["generateName"].as_str().filter(|_| !named).unwrap_or_default();
        self.prefix = prefix.chars().take(LONGEST_PREFIX).collect();
        self.said = object.to_string();
    }

    /// What is sent to another server: what one chose is replaced with what the other chose in its place.
    pub(super) fn translate(&self, other: &Self, body: &Value) -> Value {
        match body {
            Value::String(text) => {
                let pairs = self.texts.iter().zip(&other.texts).filter(|(one, other)| one.1 == other.1);
                Value::String(pairs.fold(text.clone(), |text, (one, other)| text.replace(&one.0, &other.0)))
            }
            Value::Number(number) => {
                let place = self.ports.iter().position(|port| number.as_i64() == Some(*port));
                place
                    .and_then(|place| other.ports.get(place))
                    .map_or_else(|| body.clone(), |port| (*port).into())
            }
            Value::Array(list) => list.iter().map(|value| self.translate(other, value)).collect(),
            Value::Object(map) => {
                map.iter().map(|(key, value)| (key.clone(), self.translate(other, value))).collect()
            }
            Value::Null | Value::Bool(_) => body.clone(),
        }
    }

    /// A text without the server's own words.
    pub(super) fn text(&self, text: &str) -> String {
        // Most words are in few texts.
        let text = self.texts.iter().fold(text.to_owned(), |text, (word, shown)| {
            if text.contains(word) { text.replace(word, shown) } else { text }
        });
        self.without_ports(&without_ids(&self.without_made_up(&without_revisions(&text))))
    }

    /// Masks every port in a text that only the server can have chosen: the ports of a refused object are unknown.
    fn without_ports(&self, text: &str) -> String {
        let mut shown = String::with_capacity(text.len());
        for part in text.split_inclusive(|letter: char| !letter.is_ascii_digit()) {
            let digits = part.trim_end_matches(|letter: char| !letter.is_ascii_digit());
            let port = digits.parse::<u16>().is_ok_and(|port| PORTS.contains(&port));
            if port && !self.said.contains(digits) {
                shown.push_str("<port>");
                shown.push_str(&part[digits.len()..]);
            } else {
                shown.push_str(part);
            }
        }
        shown
    }

    fn without_made_up(&self, text: &str) -> String {
        let mut parts = text.split(&self.prefix);
        if self.prefix.is_empty() {
            return text.to_owned();
        }
        let mut shown = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let made_up = part.chars().take_while(char::is_ascii_alphanumeric).count() == SUFFIX;
            shown.push_str(if made_up { "<name>" } else { &self.prefix });
            shown.push_str(if made_up { &part[SUFFIX..] } else { part });
        }
        shown
    }

    /// A value without the server's own words.
    pub(super) fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) if is_moment(text) && !self.said.contains(text) => {
                Value::String("<time>".to_owned())
            }
            Value::String(text) => Value::String(self.text(text)),
            Value::Number(number) if number.as_i64().is_some_and(|port| self.ports.contains(&port)) => {
                Value::String("<port>".to_owned())
            }
            Value::Array(list) => list.iter().map(|element| self.value(element)).collect(),
            Value::Object(map) => {
                map.iter().map(|(key, value)| (self.text(key), self.value(value))).collect()
            }
            other => other.clone(),
        }
    }

    /// An object without what is never compared.
    pub(super) fn object(&self, object: &Value) -> Value {
        let mut object = self.value(object);
        if let Some(metadata) = object["metadata"].as_object_mut() {
            // They stand in the order of their times, and two servers are not asked in the same second.
            if let Some(managers) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
                managers.sort_by_key(|one| {
                    ["manager", "operation", "subresource", "apiVersion"].map(|field| one[field].to_string())
                });
            }
            for field in ["resourceVersion", "selfLink"] {
                metadata.remove(field);
            }
        }
        object
    }
}
