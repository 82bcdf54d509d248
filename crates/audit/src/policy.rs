//! The policy: rules in order, of which the first that matches a request decides.

mod file;

pub use file::PolicyError;

use crate::level::{Level, Stages};

/// Which requests are recorded, and in which detail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
}

/// A rule. An empty list matches every request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    level: Level,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    non_resource_urls: Vec<String>,
    /// With those of the policy.
    omit_stages: Stages,
    /// That of the policy, unless the rule has its own.
    omit_managed_fields: bool,
}

/// Resources of an API group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

/// What is recorded of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// In which detail.
    pub level: Level,
    /// The stages without an event.
    pub omit_stages: Stages,
    /// Whether objects are recorded without `managedFields`.
    pub omit_managed_fields: bool,
}

/// What a policy decides by.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// The name of the authenticated user; none if authentication failed.
    pub user: Option<&'a str>,
    /// The groups of the user.
    pub groups: &'a [String],
    /// The verb of the API, or of HTTP in lower case for a path.
    pub verb: &'a str,
    /// What is requested.
    pub subject: Subject<'a>,
}

/// What a request is for.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// A non-resource path.
    Path(&'a str),
    /// Objects.
    Resource(Resource<'a>),
}

/// The objects that a request is for. What the path does not name is empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resource<'a> {
    /// The API group.
    pub group: &'a str,
    /// The resource, in the plural.
    pub resource: &'a str,
    /// The subresource.
    pub subresource: &'a str,
    /// The namespace.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
}

impl Policy {
    /// What is recorded of a request with these attributes: nothing if no rule matches it.
    pub fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let rule = self.rules.iter().find(|rule| rule.matches(attributes));
        rule.map(Rule::decision).unwrap_or_default()
    }
}

impl Rule {
    fn decision(&self) -> Decision {
        Decision {
            level: self.level,
            omit_stages: self.omit_stages,
            omit_managed_fields: self.omit_managed_fields,
        }
    }

    fn matches(&self, attributes: &Attributes<'_>) -> bool {
        if !self.users.is_empty() && !attributes.user.is_some_and(|user| contains(&self.users, user)) {
            return false;
        }
        if !self.user_groups.is_empty()
            && !attributes.groups.iter().any(|group| contains(&self.user_groups, group))
        {
            return false;
        }
        if !self.verbs.is_empty() && !contains(&self.verbs, attributes.verb) {
            return false;
        }
        match attributes.subject {
            _ if self.is_of_any_subject() => true,
            Subject::Resource(resource) => self.matches_resource(&resource),
            Subject::Path(path) => {
                // A rule about resources has no URLs, so it does not match a path.
                self.non_resource_urls.iter().any(|url| matches_path(url, path))
            }
        }
    }

    fn is_of_any_subject(&self) -> bool {
        self.namespaces.is_empty() && self.resources.is_empty() && self.non_resource_urls.is_empty()
    }

    fn matches_resource(&self, resource: &Resource<'_>) -> bool {
        if self.namespaces.is_empty() && self.resources.is_empty() {
            return false;
        }
        // Objects without a namespace have the empty one.
        if !self.namespaces.is_empty() && !contains(&self.namespaces, resource.namespace) {
            return false;
        }
        self.resources.is_empty() || self.resources.iter().any(|own| own.matches(resource))
    }
}

impl GroupResources {
    fn matches(&self, of: &Resource<'_>) -> bool {
        if self.group != of.group && self.group != "*" {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.resource_names.is_empty() && !contains(&self.resource_names, of.name) {
            return false;
        }
        self.resources.iter().any(|own| matches_resource(own, of))
    }
}

/// Whether an element of `resources` names the resource: `pods` is without its subresources, `pods/*` is with them, `*/scale` is
/// the subresource of any.
fn matches_resource(own: &str, of: &Resource<'_>) -> bool {
    if own == "*" {
        return true;
    }
    match own.split_once('/') {
        None => of.subresource.is_empty() && own == of.resource,
        Some(("*", subresource)) => !of.subresource.is_empty() && subresource == of.subresource,
        Some((resource, "*")) => resource == of.resource,
        Some((resource, subresource)) => resource == of.resource && subresource == of.subresource,
    }
}

/// Whether an element of `nonResourceURLs` matches a path.
fn matches_path(url: &str, path: &str) -> bool {
    url == path || url.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
}

fn contains(list: &[String], text: &str) -> bool {
    list.iter().any(|own| own == text)
}
