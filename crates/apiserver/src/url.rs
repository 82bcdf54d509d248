//! The path and the query of a request, parsed.

use std::borrow::Cow;

use http::{Method, Uri};
use percent_encoding::percent_decode_str;

use crate::error::ApiError;

/// The verb of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Reads an object.
    Get,
    /// Lists a collection.
    List,
    /// Watches a collection or an object.
    Watch,
    /// Creates an object.
    Create,
    /// Replaces an object.
    Update,
    /// Patches an object.
    Patch,
    /// Deletes an object.
    Delete,
    /// Deletes a collection.
    DeleteCollection,
}

impl Verb {
    /// Its name in discovery and authorization.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

/// A path below a group and version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The API group; empty for the core.
    pub group: String,
    /// The version.
    pub version: String,
    /// The resource, in the plural.
    pub resource: String,
    /// The namespace, if the path has one.
    pub namespace: Option<String>,
    /// The name of the object, if the path has one.
    pub name: Option<String>,
    /// The subresource, if the path has one.
    pub subresource: Option<String>,
}

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Objects.
    Objects(Target),
    /// The list of versions of the core group.
    CoreVersions,
    /// The list of groups.
    Groups,
    /// One group.
    Group(String),
    /// The resources of a group and version.
    Resources {
        /// The group; empty for the core.
        group: String,
        /// The version.
        version: String,
    },
    /// A non-resource path: `/version`, `/livez`, `/openapi/v3`.
    Other(String),
}

impl Address {
    /// Parses a path.
    pub fn parse(path: &str) -> Result<Self, ApiError> {
        // Decoded before it is split, as upstream does: no name contains a slash, encoded or not.
        let path =
            percent_decode(path).ok_or_else(|| ApiError::bad_request("the path is not valid UTF-8"))?;
        let texts: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        match texts.as_slice() {
            ["api"] => Ok(Self::CoreVersions),
            ["apis"] => Ok(Self::Groups),
            ["apis", group] => Ok(Self::Group((*group).to_owned())),
            ["api", version] => Ok(Self::Resources { group: String::new(), version: (*version).to_owned() }),
            ["apis", group, version] => {
                Ok(Self::Resources { group: (*group).to_owned(), version: (*version).to_owned() })
            }
            ["api", version, rest @ ..] => Ok(Self::Objects(Target::parse("", version, rest)?)),
            ["apis", group, version, rest @ ..] => Ok(Self::Objects(Target::parse(group, version, rest)?)),
            _ => Ok(Self::Other(format!("/{}", texts.join("/")))),
        }
    }
}

impl Target {
    fn parse(group: &str, version: &str, rest: &[&str]) -> Result<Self, ApiError> {
        let own = |text: &&str| Some((**text).to_owned());
        let mut target = Self { group: group.to_owned(), version: version.to_owned(), ..Self::default() };
        // A Namespace is an object itself, and its subresources are not resources in it.
        let rest = match rest {
            ["namespaces", namespace, "status" | "finalize"] | ["namespaces", namespace] => {
                target.namespace = own(namespace);
                rest
            }
            // No path leads to a namespace inside a namespace.
            ["namespaces", _, "namespaces", ..] if group.is_empty() => return Err(ApiError::no_such_path()),
            ["namespaces", namespace, rest @ ..] => {
                target.namespace = own(namespace);
                rest
            }
            rest => rest,
        };
        let [resource, below @ ..] = rest else { return Err(ApiError::no_such_path()) };
        (target.name, target.subresource) = match below {
            [] => (None, None),
            [name] => (own(name), None),
            // The path below a proxy belongs to the backend.
            [name, subresource] | [name, subresource @ "proxy", ..] => (own(name), own(subresource)),
            _ => return Err(ApiError::no_such_path()),
        };
        (*resource).clone_into(&mut target.resource);
        Ok(target)
    }

    /// Whether it is a connect subresource (exec, attach, port-forward, log, proxy): such requests last as long as the client.
    pub fn is_connect(&self) -> bool {
        matches!(self.subresource.as_deref(), Some("attach" | "exec" | "log" | "portforward" | "proxy"))
    }

    /// The verb of a method on this path.
    pub fn verb(&self, method: &Method, watch: bool) -> Result<Verb, ApiError> {
        match (method, &self.name) {
            (&Method::GET | &Method::HEAD, _) if watch && self.subresource.is_none() => Ok(Verb::Watch),
            (&Method::GET | &Method::HEAD, Some(_)) => Ok(Verb::Get),
            (&Method::GET | &Method::HEAD, None) => Ok(Verb::List),
            (&Method::POST, None) => Ok(Verb::Create),
            (&Method::POST, Some(_)) if self.subresource.is_some() => Ok(Verb::Create),
            // Only a proxy has something to answer with: its backend. Reading through it takes the same right.
            (&Method::OPTIONS, Some(_)) if self.subresource.as_deref() == Some("proxy") => Ok(Verb::Get),
            (&Method::PUT, Some(_)) => Ok(Verb::Update),
            (&Method::PATCH, Some(_)) => Ok(Verb::Patch),
            (&Method::DELETE, Some(_)) => Ok(Verb::Delete),
            (&Method::DELETE, None) => Ok(Verb::DeleteCollection),
            _ => Err(ApiError::method_not_allowed()),
        }
    }
}

/// The query parameters of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query.
    pub fn parse(uri: &Uri) -> Result<Self, ApiError> {
        let text = uri.query().unwrap_or_default();
        let bad = || ApiError::bad_request("the query is not valid UTF-8");
        text.split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                let decode = |text: &str| percent_decode(&text.replace('+', " ")).ok_or_else(bad);
                Ok((decode(name)?, decode(value)?))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The value of a parameter, if it is set and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let given = self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        given.filter(|value| !value.is_empty())
    }

    /// Every value of a parameter.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether a parameter is set, even if empty.
    pub fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }

    /// Whether a boolean parameter is true. As upstream decodes it, every value is but `0` and `false` in any case, also the
    /// empty one: Python's client sends `True`.
    pub fn is_on(&self, name: &str) -> bool {
        let value = self.all(name).next();
        value.is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// The value of a numeric parameter, if it is set.
    pub fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        let bad = |text: &str| ApiError::bad_request(format!("invalid value for {name}: {text:?}"));
        self.get(name).map(|text| text.parse().map_err(|_| bad(text))).transpose()
    }

    /// Whether the request is a dry run.
    pub fn dry_run(&self) -> Result<bool, ApiError> {
        match self.get("dryRun") {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => Err(ApiError::bad_request(format!(
                "invalid value for dryRun: {other:?}: supported values: \"All\""
            ))),
        }
    }
}

/// The text with `%2F` decoded; none if the result is not UTF-8.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> Target {
        match Address::parse(path) {
            Ok(Address::Objects(target)) => target,
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn addresses_are_taken_apart() {
        let table = [
            ("/api/v1/pods", "", "pods", None, None, None),
            ("/api/v1/namespaces", "", "namespaces", None, None, None),
            ("/api/v1/namespaces/a", "", "namespaces", Some("a"), Some("a"), None),
            ("/api/v1/namespaces/a/finalize", "", "namespaces", Some("a"), Some("a"), Some("finalize")),
            ("/api/v1/namespaces/a/pods/b", "", "pods", Some("a"), Some("b"), None),
            ("/api/v1/namespaces/a/pods/b/resize", "", "pods", Some("a"), Some("b"), Some("resize")),
            ("/apis/apps/v1/deployments", "apps", "deployments", None, None, None),
            ("/api/v1/nodes/n%2D1/status", "", "nodes", None, Some("n-1"), Some("status")),
            ("/api/v1/nodes/n1%2Fstatus", "", "nodes", None, Some("n1"), Some("status")),
        ];
        for (path, group, resource, namespace, name, subresource) in table {
            let target = target(path);
            assert_eq!(target.group, group, "{path}");
            assert_eq!(target.resource, resource, "{path}");
            assert_eq!(target.namespace.as_deref(), namespace, "{path}");
            assert_eq!(target.name.as_deref(), name, "{path}");
            assert_eq!(target.subresource.as_deref(), subresource, "{path}");
        }
    }

    #[test]
    fn discovery_and_the_rest_have_addresses_too() {
        assert_eq!(Address::parse("/api"), Ok(Address::CoreVersions));
        assert_eq!(Address::parse("/apis/"), Ok(Address::Groups));
        assert_eq!(Address::parse("/apis/apps"), Ok(Address::Group("apps".into())));
        assert_eq!(
            Address::parse("/apis/apps/v1"),
            Ok(Address::Resources { group: "apps".into(), version: "v1".into() })
        );
        assert_eq!(Address::parse("/livez"), Ok(Address::Other("/livez".into())));
        assert!(Address::parse("/api/v1/namespaces/a/pods/b/c/d").is_err());
    }

    #[test]
    fn a_query_is_read_with_its_escapes() {
        // A sign is no hexadecimal digit.
        assert_eq!(percent_decode("a%2f%2F%+f%zz%2").as_deref(), Some("a//%+f%zz%2"));
        let uri: Uri = "/x?labelSelector=app%3Dweb%2Ctier+in+%28a%29&watch=1&limit=5".parse().unwrap();
        let query = Query::parse(&uri).unwrap();
        assert_eq!(query.get("labelSelector"), Some("app=web,tier in (a)"));
        assert_eq!(query.number("limit"), Ok(Some(5)));
        assert_eq!(query.get("nope"), None);
    }

    #[test]
    fn a_boolean_parameter_is_on_unless_its_value_is_0_or_false() {
        for (query, expected) in [
            ("watch", true),
            ("watch=", true),
            ("watch=1", true),
            ("watch=true", true),
            ("watch=True", true),
            ("watch=yes", true),
            ("watch=0", false),
            ("watch=false", false),
            ("watch=False", false),
            ("stdin=true", false),
        ] {
            let query = Query::parse(&format!("/x?{query}").parse().unwrap()).unwrap();
            assert_eq!(query.is_on("watch"), expected, "{query:?}");
        }
    }
}
