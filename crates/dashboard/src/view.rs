//! Which page a request is about, from its path and its query, and the link to it.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The most characters of a part of a URL: names of Kubernetes have 253 at most.
const LONGEST: usize = 253;
/// The characters of names that need no encoding in a URL.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// A page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum View {
    /// Nodes, and what needs attention.
    Overview,
    /// Pods.
    Pods(Filter),
    /// A pod by its namespace and name.
    Pod(String, String),
    /// What would become of a resize of a pod, by its namespace and name.
    WhatIf(String, String, Requests),
    /// VPAs.
    Vpas(Filter),
    /// A VPA by its namespace and name.
    Vpa(String, String),
    /// Rollouts.
    Rollouts(Filter),
    /// The rollout of a workload by its kind, namespace and name.
    Rollout(String, String, String),
}

/// The requests that a container might have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Requests {
    /// The container.
    pub(crate) container: String,
    /// A quantity of cpu; as it is if it is empty.
    pub(crate) cpu: String,
    /// A quantity of memory; as it is if it is empty.
    pub(crate) memory: String,
}

impl Requests {
    fn from_query(query: &[(String, String)]) -> Option<Self> {
        let text = |key| text(query, key);
        Some(Self { container: text("container")?, cpu: text("cpu")?, memory: text("memory")? })
    }

    /// Whether a request would change.
    pub(crate) fn is_set(&self) -> bool {
        !self.cpu.is_empty() || !self.memory.is_empty()
    }

    fn query(&self) -> String {
        query_of(&[("container", &self.container), ("cpu", &self.cpu), ("memory", &self.memory)])
    }
}

/// Which objects of a list are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Filter {
    /// Those of this namespace; all if it is empty.
    pub(crate) namespace: String,
    /// Those with this text in a cell, in any case; all if it is empty.
    pub(crate) text: String,
    /// The page, from 0.
    pub(crate) page: usize,
}

impl Filter {
    fn from_query(query: &[(String, String)]) -> Option<Self> {
        // Pages are counted from 1 for people.
        let page = match text(query, "page")?.as_str() {
            "" => 0,
            page => page.parse::<usize>().ok()?.checked_sub(1)?,
        };
        Some(Self { namespace: text(query, "namespace")?, text: text(query, "q")?, page })
    }

    /// The same filter with another page of the list.
    pub(crate) fn at(&self, page: usize) -> Self {
        Self { page, ..self.clone() }
    }

    fn query(&self) -> String {
        let page = if self.page == 0 { String::new() } else { (self.page + 1).to_string() };
        query_of(&[("namespace", &self.namespace), ("q", &self.text), ("page", &page)])
    }
}

/// A parameter of a query, empty if it is missing. `None` if it is too long.
fn text(query: &[(String, String)], key: &str) -> Option<String> {
    let value = query.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value.trim());
    (value.chars().count() <= LONGEST).then(|| value.to_owned())
}

/// The query of those parameters that are not empty.
fn query_of(parameters: &[(&str, &String)]) -> String {
    let parts = parameters.iter().filter(|(_, value)| !value.is_empty());
    let parts: Vec<String> = parts.map(|(key, value)| format!("{key}={}", encoded(value))).collect();
    if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) }
}

impl View {
    /// The page of a path and a query; `None` if no page has the path.
    pub(crate) fn from_url(path: &str, query: &[(String, String)]) -> Option<Self> {
        let parts: Option<Vec<String>> = path.strip_prefix('/')?.split('/').map(decoded).collect();
        let parts = parts?;
        if parts.iter().any(|part| part.chars().count() > LONGEST) {
            return None;
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        Some(match parts[..] {
            [""] => Self::Overview,
            ["pods"] => Self::Pods(Filter::from_query(query)?),
            ["pods", namespace, name] => Self::Pod(namespace.to_owned(), name.to_owned()),
            ["pods", namespace, name, "what-if"] => {
                Self::WhatIf(namespace.to_owned(), name.to_owned(), Requests::from_query(query)?)
            }
            ["vpas"] => Self::Vpas(Filter::from_query(query)?),
            ["vpas", namespace, name] => Self::Vpa(namespace.to_owned(), name.to_owned()),
            ["rollouts"] => Self::Rollouts(Filter::from_query(query)?),
            ["rollouts", kind, namespace, name] => {
                Self::Rollout(kind.to_owned(), namespace.to_owned(), name.to_owned())
            }
            _ => return None,
        })
    }

    /// Its URL, without scheme and host.
    pub(crate) fn href(&self) -> String {
        match self {
            Self::Overview => "/".to_owned(),
            Self::Pods(filter) => format!("/pods{}", filter.query()),
            Self::Pod(namespace, name) => format!("/pods/{}/{}", encoded(namespace), encoded(name)),
            Self::WhatIf(namespace, name, requests) => {
                format!("/pods/{}/{}/what-if{}", encoded(namespace), encoded(name), requests.query())
            }
            Self::Vpas(filter) => format!("/vpas{}", filter.query()),
            Self::Vpa(namespace, name) => format!("/vpas/{}/{}", encoded(namespace), encoded(name)),
            Self::Rollouts(filter) => format!("/rollouts{}", filter.query()),
            Self::Rollout(kind, namespace, name) => {
                format!("/rollouts/{}/{}/{}", encoded(kind), encoded(namespace), encoded(name))
            }
        }
    }

    /// Its URL with a further parameter.
    pub(crate) fn href_with(&self, parameter: &str) -> String {
        let href = self.href();
        let separator = if href.contains('?') { '&' } else { '?' };
        format!("{href}{separator}{parameter}")
    }
}

/// The parameters of a query, decoded. A parameter that is not UTF-8 is left out.
pub(crate) fn parameters(query: &str) -> Vec<(String, String)> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    let pair = |part: &str| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        Some((decoded(&key.replace('+', " "))?, decoded(&value.replace('+', " "))?))
    };
    parts.filter_map(pair).collect()
}

fn decoded(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(url: &str) -> Option<View> {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        View::from_url(path, &parameters(query))
    }

    #[test]
    fn the_link_to_a_page_leads_to_it() {
        let filter = |namespace: &str, text: &str, page| Filter {
            namespace: namespace.into(),
            text: text.into(),
            page,
        };
        for page in [
            View::Overview,
            View::Pods(Filter::default()),
            View::Pods(filter("team", "a b&c=d", 3)),
            View::Pod("team".into(), "web.json".into()),
            View::WhatIf("team".into(), "web".into(), Requests::default()),
            View::WhatIf(
                "team".into(),
                "web".into(),
                Requests { container: "app".into(), cpu: "1.5".into(), memory: "2 Gi&".into() },
            ),
            View::Vpas(filter("", "<é>", 0)),
            View::Vpa("team".into(), "web".into()),
            View::Rollouts(filter("team", "", 0)),
            View::Rollout("deployment".into(), "a/b".into(), "web?x".into()),
        ] {
            assert_eq!(view(&page.href()), Some(page.clone()), "{}", page.href());
        }
        assert_eq!(view("/pods?q=a+b&format=json"), Some(View::Pods(filter("", "a b", 0))));
    }

    #[test]
    fn there_is_no_page_at_other_urls() {
        let long = format!("/pods?q={}", "a".repeat(300));
        for url in ["/other", "/pods/one", "/pods?page=0", "/pods?page=x", "/pods/%ff/a", "", "//", &long] {
            assert_eq!(view(url), None, "{url}");
        }
    }
}
