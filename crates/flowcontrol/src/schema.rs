//! Which requests a `FlowSchema` matches, and to which flow of it a request belongs.

use std::hash::{BuildHasher, Hash as _, Hasher as _};

use k8s_openapi::api::flowcontrol::v1::{
    FlowSchema as Object, NonResourcePolicyRule, PolicyRulesWithSubjects, ResourcePolicyRule, Subject,
};

/// Matches everything, in lists where it is the only member.
const ALL: &str = "*";
/// The precedence of a schema without one.
const DEFAULT_PRECEDENCE: i32 = 1000;
/// What user names of service accounts begin with.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// What is known of a request when it is matched.
#[derive(Clone, Copy, Debug)]
pub struct RequestDigest<'a> {
    /// The user name.
    pub user: &'a str,
    /// The groups of the user.
    pub groups: &'a [String],
    /// The verb, such as `list`; of a path, the method in lower case.
    pub verb: &'a str,
    /// What the request is for.
    pub target: Target<'a>,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// Objects.
    Resource {
        /// The API group; empty for the core.
        group: &'a str,
        /// The resource, in the plural.
        resource: &'a str,
        /// The subresource; empty without one.
        subresource: &'a str,
        /// The namespace; empty without one.
        namespace: &'a str,
    },
    /// A non-resource path.
    Path(&'a str),
}

/// How flows of a schema are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distinguisher {
    /// All requests of the schema are one flow.
    None,
    /// By the user name.
    ByUser,
    /// By the namespace; requests without one are a flow of their own.
    ByNamespace,
}

/// A `FlowSchema`.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// The name.
    pub name: String,
    /// The UID of the object; empty for a mandatory schema without an object.
    pub uid: String,
    /// The name of the priority level of its requests.
    pub level: String,
    /// Schemas with lower numbers are matched first.
    pub precedence: i32,
    /// How its flows are distinguished.
    pub distinguisher: Distinguisher,
    rules: Vec<PolicyRulesWithSubjects>,
}

impl Schema {
    /// The schema of an object; `None` if it has no name or spec, which validation prevents.
    pub fn new(object: &Object) -> Option<Self> {
        let spec = object.spec.as_ref()?;
        let method = spec.distinguisher_method.as_ref().map(|method| method.type_.as_str());
        Some(Self {
            name: object.metadata.name.clone()?,
            uid: object.metadata.uid.clone().unwrap_or_default(),
            level: spec.priority_level_configuration.name.clone(),
            precedence: spec.matching_precedence.unwrap_or(DEFAULT_PRECEDENCE),
            distinguisher: match method {
                Some("ByUser") => Distinguisher::ByUser,
                Some("ByNamespace") => Distinguisher::ByNamespace,
                _ => Distinguisher::None,
            },
            rules: spec.rules.clone().unwrap_or_default(),
        })
    }

    /// A schema without rules, for requests that match no other.
    pub fn last_resort(name: &str, level: &str) -> Self {
        Self {
            name: name.to_owned(),
            uid: String::new(),
            level: level.to_owned(),
            precedence: i32::MAX,
            distinguisher: Distinguisher::None,
            rules: Vec::new(),
        }
    }

    /// Sorts schemas into the order in which they are matched: by precedence, and by name among equals.
    pub fn sort(schemas: &mut [Self]) {
        schemas.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
    }

    /// Whether a request matches.
    pub fn matches(&self, request: &RequestDigest<'_>) -> bool {
        self.rules.iter().any(|rule| {
            rule.subjects.iter().any(|subject| matches_subject(subject, request))
                && match request.target {
                    Target::Resource { .. } => {
                        let rules = rule.resource_rules.as_deref().unwrap_or_default();
                        rules.iter().any(|rule| matches_resource(rule, request))
                    }
                    Target::Path(path) => {
                        let rules = rule.non_resource_rules.as_deref().unwrap_or_default();
                        rules.iter().any(|rule| matches_path(rule, request.verb, path))
                    }
                }
        })
    }

    /// What distinguishes the flow of a request from others of the schema.
    pub fn flow_distinguisher<'a>(&self, request: &RequestDigest<'a>) -> &'a str {
        match (self.distinguisher, request.target) {
            (Distinguisher::ByUser, _) => request.user,
            (Distinguisher::ByNamespace, Target::Resource { namespace, .. }) => namespace,
            _ => "",
        }
    }

    /// The hash of a flow. With keys that are chosen at random, users cannot choose names that share the queues of others.
    pub fn flow_hash(&self, keys: &impl BuildHasher, distinguisher: &str) -> u64 {
        let mut hasher = keys.build_hasher();
        self.name.hash(&mut hasher);
        distinguisher.hash(&mut hasher);
        hasher.finish()
    }
}

fn matches_subject(subject: &Subject, request: &RequestDigest<'_>) -> bool {
    match subject.kind.as_str() {
        "User" => subject.user.as_ref().is_some_and(|user| user.name == ALL || user.name == request.user),
        "Group" => subject
            .group
            .as_ref()
            .is_some_and(|group| group.name == ALL || request.groups.contains(&group.name)),
        "ServiceAccount" => subject.service_account.as_ref().is_some_and(|account| {
            let of_namespace = request.user.strip_prefix(SERVICE_ACCOUNT);
            let of_namespace = of_namespace.and_then(|rest| rest.strip_prefix(account.namespace.as_str()));
            let name = of_namespace.and_then(|rest| rest.strip_prefix(':'));
            name.is_some_and(|name| account.name == ALL || account.name == name)
        }),
        _ => false,
    }
}

fn matches_resource(rule: &ResourcePolicyRule, request: &RequestDigest<'_>) -> bool {
    let Target::Resource { group, resource, subresource, namespace } = request.target else { return false };
    let is_resource = |listed: &String| match listed.strip_prefix(resource) {
        Some("") => subresource.is_empty(),
        Some(rest) => !subresource.is_empty() && rest.strip_prefix('/') == Some(subresource),
        None => false,
    };
    let matches_scope = || match namespace {
        "" => rule.cluster_scope.unwrap_or(false),
        namespace => contains(rule.namespaces.as_deref().unwrap_or_default(), namespace),
    };
    contains(&rule.verbs, request.verb)
        && (is_all(&rule.resources) || rule.resources.iter().any(is_resource))
        && contains(&rule.api_groups, group)
        && matches_scope()
}

fn matches_path(rule: &NonResourcePolicyRule, verb: &str, path: &str) -> bool {
    // `/healthz` and `/healthz/*` match what is below `/healthz/`, too.
    let matches = |listed: &String| {
        listed == ALL || listed == path || {
            let prefix = listed.strip_suffix('*').unwrap_or(listed);
            let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
            path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'))
        }
    };
    contains(&rule.verbs, verb) && rule.non_resource_urls.iter().any(matches)
}

fn contains(list: &[String], value: &str) -> bool {
    is_all(list) || list.iter().any(|listed| listed == value)
}

fn is_all(list: &[String]) -> bool {
    matches!(list, [only] if only == ALL)
}
