//! Credentials as Docker and Kubernetes store them: `config.json`, `.dockerconfigjson`, `.dockercfg`.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::Deserialize;

use crate::credentials::Credentials;
use crate::reference::Reference;

/// The host of Docker Hub's entries.
const DOCKER_HUB_KEY: &str = "index.docker.io";

/// Credentials by registry, or by a part of one.
#[derive(Clone, Debug, Default)]
pub struct DockerConfig {
    /// The longest keys first: the most specific entry comes before others.
    entries: Vec<(Key, Credentials)>,
}

/// A file of credentials that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InvalidDockerConfig {
    /// It is not JSON of the expected form. The content is secret, so the position is all that is said.
    #[error("not a Docker configuration (line {line}, column {column})")]
    Json {
        /// The line of the problem.
        line: usize,
        /// The column.
        column: usize,
    },
    /// An entry's `auth` is not the base64 form of `user:password`.
    #[error("the auth of {0:?} is not the base64 form of user:password")]
    Auth(String),
}

impl From<serde_json::Error> for InvalidDockerConfig {
    fn from(error: serde_json::Error) -> Self {
        Self::Json { line: error.line(), column: error.column() }
    }
}

/// Registries that an entry is for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    /// The labels of the host; each may have `*` in it.
    labels: Vec<String>,
    port: Option<String>,
    /// A prefix of repositories.
    path: String,
}

#[derive(Deserialize)]
struct WholeFile {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    username: String,
    password: String,
    auth: String,
    identitytoken: String,
    registrytoken: String,
}

impl DockerConfig {
    /// Reads `config.json`, or the `.dockerconfigjson` of a Secret.
    pub fn from_config_json(text: &[u8]) -> Result<Self, InvalidDockerConfig> {
        Self::new(serde_json::from_slice::<WholeFile>(text)?.auths)
    }

    /// Reads the older form, the `.dockercfg` of a Secret.
    pub fn from_dockercfg(text: &[u8]) -> Result<Self, InvalidDockerConfig> {
        Self::new(serde_json::from_slice(text)?)
    }

    fn new(auths: BTreeMap<String, Entry>) -> Result<Self, InvalidDockerConfig> {
        let mut entries = Vec::new();
        for (name, entry) in auths {
            let Some(key) = Key::parse(&name) else { continue };
            let credentials = entry.credentials().ok_or(InvalidDockerConfig::Auth(name))?;
            if credentials != Credentials::default() {
                entries.push((key, credentials));
            }
        }
        let mut config = Self { entries };
        config.sort();
        Ok(config)
    }

    /// Adds the entries of another file after those that are as specific here.
    pub fn extend(&mut self, other: Self) {
        self.entries.extend(other.entries);
        self.sort();
    }

    fn sort(&mut self) {
        // Stable: entries of the same length stay in their order.
        self.entries.sort_by_key(|(key, _)| std::cmp::Reverse(key.length()));
    }

    /// The credentials for an image, the most specific first, each once.
    pub fn lookup(&self, image: &Reference) -> Vec<Credentials> {
        let mut found: Vec<Credentials> = Vec::new();
        for (key, credentials) in &self.entries {
            let matches = key.matches(image.registry(), image.repository())
                || (image.registry() == "docker.io" && key.matches(DOCKER_HUB_KEY, image.repository()));
            if matches && !found.contains(credentials) {
                found.push(credentials.clone());
            }
        }
        found
    }
}

impl Entry {
    fn credentials(self) -> Option<Credentials> {
        let mut credentials = Credentials {
            username: self.username,
            password: self.password,
            identity_token: self.identitytoken,
            registry_token: self.registrytoken,
        };
        if !self.auth.is_empty() {
            let text = self.auth.trim();
            let decoded = STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text)).ok()?;
            let decoded = String::from_utf8(decoded).ok()?;
            let (username, password) = decoded.split_once(':')?;
            // Some tools pad the password.
            let password = password.trim_end_matches('\0');
            username.clone_into(&mut credentials.username);
            password.clone_into(&mut credentials.password);
        }
        Some(credentials)
    }
}

impl Key {
    /// A key of the file: a host, perhaps with a scheme, a port and a path.
    fn parse(name: &str) -> Option<Self> {
        let name = name.split_once("://").map_or(name, |(_, name)| name);
        let (host, path) = name.split_once('/').unwrap_or((name, ""));
        // The API's own paths are those of every image.
        let path = path.trim_start_matches('/');
        let path = match path.split_once('/').unwrap_or((path, "")) {
            ("v1" | "v2", rest) => rest,
            _ => path,
        };
        let (host, port) = split_port(host);
        let key = Self {
            labels: host.split('.').map(str::to_ascii_lowercase).collect(),
            port: port.map(str::to_owned),
            path: path.trim_matches('/').to_owned(),
        };
        (!host.is_empty()).then_some(key)
    }

    fn length(&self) -> usize {
        self.labels.iter().map(|label| label.len() + 1).sum::<usize>() + self.path.len()
    }

    fn matches(&self, registry: &str, repository: &str) -> bool {
        let (host, port) = split_port(registry);
        let labels: Vec<String> = host.split('.').map(str::to_ascii_lowercase).collect();
        let same_host = self.labels.len() == labels.len()
            && self.labels.iter().zip(&labels).all(|(pattern, label)| is_match(pattern, label));
        same_host && self.port.as_deref() == port && repository.starts_with(&self.path)
    }
}

/// A host and its port.
fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (host, None),
    }
}

/// Whether a label matches a pattern with `*` for any number of characters.
fn is_match(pattern: &str, label: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = label.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    // Without a star the whole label was the prefix.
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn users(auths: &serde_json::Value, image: &str) -> Vec<String> {
        let text = json!({ "auths": auths }).to_string();
        let config = DockerConfig::from_config_json(text.as_bytes()).unwrap();
        let found = config.lookup(&image.parse().unwrap());
        found.into_iter().map(|credentials| credentials.username).collect()
    }

    #[test]
    fn entries_are_found_by_host_port_and_path_the_most_specific_first() {
        let user = |name: &str| json!({ "username": name, "password": "p" });
        let auths = json!({
            "https://index.docker.io/v1/": user("hub"),
            "docker.io/team": user("team"),
            "quay.io": user("quay"),
            "quay.io/org": user("org"),
            "*.example.com": user("any"),
            "registry.example.com": user("one"),
            "https://localhost:5000/v2/": user("local"),
        });
        for (image, expected) in [
            ("nginx", vec!["hub"]),
            ("team/app", vec!["hub", "team"]),
            ("quay.io/org/a", vec!["org", "quay"]),
            ("quay.io/other/a", vec!["quay"]),
            ("registry.example.com/a", vec!["one", "any"]),
            ("a.b.example.com/a", vec![]),
            ("example.com/a", vec![]),
            ("localhost:5000/a", vec!["local"]),
            ("localhost:5001/a", vec![]),
            ("localhost/a", vec![]),
            ("evil-quay.io/a", vec![]),
        ] {
            assert_eq!(users(&auths, image), expected, "{image}");
        }
    }

    #[test]
    fn user_and_password_may_be_in_one_field() {
        let config = DockerConfig::from_dockercfg(br#"{"r.io": {"auth": "dXNlcjpwYTpzcw=="}}"#).unwrap();
        let found = config.lookup(&"r.io/a".parse().unwrap());
        assert_eq!(found, [Credentials::basic("user", "pa:ss")]);
    }

    #[test]
    fn an_unreadable_file_says_so_without_its_content() {
        for text in [r#"{"auths": {"r.io": {"auth": "secret"#, r#"{"auths": {"r.io": {"auth": "c2VjcmV0"}}}"#]
        {
            let error = DockerConfig::from_config_json(text.as_bytes()).unwrap_err().to_string();
            assert!(!error.contains("secret") && !error.contains("c2VjcmV0"), "{error}");
        }
        let empty = DockerConfig::from_config_json(br#"{"auths": {"r.io": {}}, "credsStore": "x"}"#).unwrap();
        assert!(empty.lookup(&"r.io/a".parse().unwrap()).is_empty());
    }

    #[test]
    fn stars_match_within_a_label() {
        for (pattern, label, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "anything", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abc", true),
            ("a*d", "abc", false),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "a1c2b", false),
        ] {
            assert_eq!(is_match(pattern, label), expected, "{pattern} {label}");
        }
    }
}
