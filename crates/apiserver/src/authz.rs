//! Authorization: what a user may do.
//!
//! Members of `system:masters` may do everything, nodes may do what the node authorizer allows (`node`), and all users may do
//! what roles and bindings grant (`rbac`), in this order. A request that none of them allows is refused with upstream's
//! message.

pub(crate) mod defaults;
pub(crate) mod escalation;
pub(crate) mod followed;
pub(crate) mod graph;
mod impersonation;
mod node;
pub(crate) mod rbac;
pub mod references;
pub mod rule;

pub(crate) use impersonation::impersonate;
pub(crate) use node::NODES;
pub use node::node_of;

use std::sync::Arc;

use plumb_store::Store;

use crate::error::ApiError;
use crate::selector::{FieldSelector, any_field};
use crate::url::{Query, Target, Verb};
use crate::user::User;
use followed::Followed;
use graph::Graph;
use rbac::{Grant, Rbac, RoleRef, Unresolved};
use rule::Rule;

/// The API group of roles and bindings.
pub(crate) const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
/// The group that may do everything.
pub const MASTERS: &str = "system:masters";
/// A request brings the index of nodes up to date, but waits for at most this many writes.
const FAR_BEHIND: u64 = 4_096;

/// The attributes of a request that is authorized.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// The user.
    pub(crate) user: &'a User,
    /// The verb.
    pub(crate) verb: &'a str,
    /// The objects or the path.
    pub(crate) about: About<'a>,
}

/// What a request is about.
#[derive(Clone, Debug)]
pub(crate) enum About<'a> {
    /// A non-resource path.
    Path(&'a str),
    /// One object or several.
    Objects(Objects<'a>),
}

/// The objects that a request is about. An empty field does not restrict them.
#[derive(Clone, Debug, Default)]
pub struct Objects<'a> {
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
    /// The node that a field selector restricts them to (`spec.nodeName`).
    pub on_node: Option<&'a str>,
}

impl<'a> Ask<'a> {
    /// The attributes of a request about objects.
    pub fn about_objects(user: &'a User, verb: &'a str, objects: Objects<'a>) -> Self {
        Self { user, verb, about: About::Objects(objects) }
    }

    /// The attributes of a request about a path.
    pub fn about_path(user: &'a User, verb: &'a str, path: &'a str) -> Self {
        Self { user, verb, about: About::Path(path) }
    }

    fn namespace(&self) -> &'a str {
        match &self.about {
            About::Path(_) => "",
            About::Objects(objects) => objects.namespace,
        }
    }

    /// The refusal.
    fn refused(&self, reason: &str) -> ApiError {
        let (user, verb) = (self.user.name(), self.verb);
        let mut why = match &self.about {
            About::Path(path) => format!("User {user:?} cannot {verb} path {path:?}"),
            About::Objects(Objects { group, resource, subresource, namespace, .. }) => {
                let resource = if subresource.is_empty() {
                    (*resource).to_owned()
                } else {
                    format!("{resource}/{subresource}")
                };
                let scope = match *namespace {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {namespace:?}"),
                };
                format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {scope}")
            }
        };
        if !reason.is_empty() {
            why = format!("{why}: {reason}");
        }
        match &self.about {
            About::Path(_) => ApiError::forbidden_path(&why),
            About::Objects(objects) => {
                ApiError::forbidden(objects.group, objects.resource, objects.name, &why)
            }
        }
    }
}

/// The parameters of a request that authorization depends on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selectors {
    fields: FieldSelector,
}

impl Selectors {
    /// Parses them. Invalid ones count as absent, which never grants a right.
    pub(crate) fn of(query: &Query, verb: Verb) -> Self {
        let reads_many = matches!(verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
        let text = query.get("fieldSelector").filter(|_| reads_many);
        let fields = text.and_then(|text| FieldSelector::parse(text, any_field).ok());
        Self { fields: fields.unwrap_or_default() }
    }

    /// What a request is about.
    pub(crate) fn about<'a>(&'a self, verb: Verb, target: &'a Target) -> About<'a> {
        let text = |text: &'a Option<String>| text.as_deref().unwrap_or_default();
        let mut name = text(&target.name);
        if name.is_empty() && matches!(verb, Verb::List | Verb::Watch) {
            name = self.fields.exact("metadata.name").unwrap_or_default();
        }
        About::Objects(Objects {
            group: &target.group,
            resource: &target.resource,
            subresource: text(&target.subresource),
            namespace: text(&target.namespace),
            name,
            on_node: self.fields.exact("spec.nodeName"),
        })
    }
}

/// The decision about a request.
#[derive(Clone, Debug)]
pub enum Decision {
    /// It is allowed, by this binding or by the identity of the user.
    Allowed(Option<Grant>),
    /// It is not allowed, with the reason that upstream adds to its message, which is often empty.
    NotAllowed(String),
}

impl Decision {
    /// Whether it is allowed.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// The error of a request that is not allowed.
    pub(crate) fn enforce(&self, ask: &Ask<'_>) -> Result<(), ApiError> {
        match self {
            Self::Allowed(_) => Ok(()),
            Self::NotAllowed(reason) => Err(ask.refused(reason)),
        }
    }

    /// The reason, as a review has it.
    pub fn reason(&self) -> String {
        match self {
            Self::Allowed(Some(grant)) => format!("RBAC: allowed by {grant}"),
            Self::Allowed(None) => String::new(),
            Self::NotAllowed(reason) => reason.clone(),
        }
    }
}

/// Authorizes requests. It has observed every write that was acknowledged before the request.
pub struct Authorizer {
    rbac: Followed<Rbac>,
    graph: Followed<Graph>,
    /// The rules of all nodes, other than those about a node's own objects.
    node_rules: Vec<Rule>,
}

impl Authorizer {
    /// Watches the roles, bindings, pods and volumes of a store.
    pub(crate) fn new(store: &Store) -> Self {
        Self {
            rbac: Followed::of(store.clone()),
            graph: Followed::of(store.clone()),
            node_rules: defaults::node_rules(),
        }
    }

    /// Returns an error if a request is not allowed.
    pub(crate) fn authorize(&self, ask: &Ask<'_>) -> Result<(), ApiError> {
        self.decide(ask).enforce(ask)
    }

    /// Whether a request is allowed, and why.
    pub fn decide(&self, ask: &Ask<'_>) -> Decision {
        if ask.user.is_in(MASTERS) {
            return Decision::Allowed(None);
        }
        if self.graph.behind() > FAR_BEHIND {
            self.graph.ask(|_| ());
        }
        let mut reasons = Vec::new();
        match self.node_decides(ask) {
            node::Opinion::Allow => return Decision::Allowed(None),
            node::Opinion::None(reason) if reason.is_empty() => {}
            node::Opinion::None(reason) => reasons.push(reason),
        }
        match self.rbac.ask(|rbac| rbac.decide(ask)) {
            Ok(grant) => return Decision::Allowed(Some(grant)),
            Err(unresolved) if unresolved.is_empty() => {}
            Err(unresolved) => reasons.push(format!("RBAC: {}", aggregate(&unresolved))),
        }
        Decision::NotAllowed(reasons.join("\n"))
    }

    /// The rules of a user in a namespace, and which roles were not found.
    pub fn rules_for(&self, user: &User, namespace: &str) -> (Vec<Rule>, Option<String>) {
        let (rules, unresolved) = self.rbac.ask(|rbac| rbac.rules_for(user, namespace));
        (rules, (!unresolved.is_empty()).then(|| aggregate(&unresolved)))
    }

    /// The rules of a role.
    pub(crate) fn rules_of(&self, role: &RoleRef, namespace: &str) -> Result<Arc<[Rule]>, Unresolved> {
        self.rbac.ask(|rbac| rbac.rules(role, namespace).cloned())
    }
}

/// Several errors as one text, as upstream joins them.
fn aggregate(errors: &[Unresolved]) -> String {
    match errors {
        [one] => one.to_string(),
        many => format!("[{}]", many.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    }
}
