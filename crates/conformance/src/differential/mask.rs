//! What nobody can foresee, and therefore nobody compares: uids, times, revisions, allocated addresses and ports.

use serde_json::Value;

/// How many letters a name gets that a server makes up.
const SUFFIX: usize = 5;
/// The lengths of the parts of a uid.
const ID: [usize; 5] = [8, 4, 4, 4, 12];

/// A text with every uid of random digits masked: of what is refused nobody learns the uid.
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

/// The words of one server that stand for something chosen by it.
#[derive(Clone, Debug, Default)]
pub(super) struct Mask {
    prefix: String,
    texts: Vec<(String, &'static str)>,
    ports: Vec<i64>,
}

impl Mask {
    /// Learns from an object that was stored. What the client itself has said is no choice of the server's.
    pub(super) fn learn(&mut self, object: &Value, said: &str) {
        let metadata = &object["metadata"];
        for (field, shown) in
            [("uid", "<uid>"), ("creationTimestamp", "<created>"), ("deletionTimestamp", "<deleted>")]
        {
            self.hide(metadata[field].as_str(), shown, said);
        }
        if metadata.get("generateName").is_some() {
            self.hide(metadata["name"].as_str(), "<name>", said);
        }
        let spec = &object["spec"];
        self.hide(spec["clusterIP"].as_str().filter(|address| *address != "None"), "<address>", said);
        let ports = spec["ports"].as_array().into_iter().flatten().map(|port| &port["nodePort"]);
        for port in ports.chain([&spec["healthCheckNodePort"]]).filter_map(Value::as_i64) {
            if port != 0 && !said.contains(&port.to_string()) && !self.ports.contains(&port) {
                self.ports.push(port);
                self.texts.push((port.to_string(), "<port>"));
            }
        }
    }

    fn hide(&mut self, text: Option<&str>, shown: &'static str, said: &str) {
        let Some(text) = text.filter(|text| !text.is_empty() && !said.contains(*text)) else { return };
        if !self.texts.iter().any(|(known, _)| known == text) {
            self.texts.push((text.to_owned(), shown));
        }
    }

    /// Learns from an object that is to be created: a name that is made up begins with what was asked for.
    pub(super) fn expect(&mut self, object: &Value) {
        let metadata = &object["metadata"];
        let named = metadata["name"].as_str().is_some_and(|name| !name.is_empty());
        self.prefix = metadata["generateName"].as_str().filter(|_| !named).unwrap_or_default().to_owned();
    }

    /// A text without the server's own words.
    pub(super) fn text(&self, text: &str) -> String {
        let text = self.texts.iter().fold(text.to_owned(), |text, (word, shown)| text.replace(word, shown));
        without_ids(&self.without_made_up(&text))
    }

    fn without_made_up(&self, text: &str) -> String {
        let mut parts = text.split(&self.prefix);
        if self.prefix.is_empty() {
            return text.to_owned();
        }
        let mut shown = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            shown.push_str(&self.prefix);
            let made_up = part.chars().take_while(char::is_ascii_alphanumeric).count();
            shown.push_str(if made_up == SUFFIX { "<name>" } else { "" });
            shown.push_str(if made_up == SUFFIX { &part[SUFFIX..] } else { part });
        }
        shown
    }

    /// A value without the server's own words.
    pub(super) fn value(&self, value: &Value) -> Value {
        match value {
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
            for field in ["resourceVersion", "managedFields", "selfLink"] {
                metadata.remove(field);
            }
        }
        object
    }
}
