//! Who may do what.
//!
//! In this order: members of `system:masters` may do everything, a node may do what a node needs ([`node`]), and
//! everybody may do what roles and bindings give ([`rbac`]). Whoever none of them allows is refused, in the words
//! of Kubernetes.

pub(crate) mod defaults;
pub(crate) mod escalation;
pub(crate) mod followed;
pub(crate) mod graph;
mod node;
pub(crate) mod rbac;
pub(crate) mod references;
pub(crate) mod rule;

pub(crate) use node::{NODES, node_of};

use std::sync::Arc;

use plumb_store::Store;

use crate::authn::User;
use crate::error::ApiError;
use crate::selector::{FieldSelector, any_field};
use crate::target::{Query, Target, Verb};
use followed::Followed;
use graph::Graph;
use rbac::{Grant, Rbac, RoleRef, Unresolved};
use rule::Rule;

/// The API group of roles and bindings.
pub(crate) const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
/// The group that may do everything.
pub(crate) const MASTERS: &str = "system:masters";
/// The index of nodes is brought up to date by whoever asks, but never waits longer than this many writes.
const FAR_BEHIND: u64 = 4_096;

/// Something that a user wants to do.
#[derive(Clone, Debug)]
pub(crate) struct Ask<'a> {
    /// Who.
    pub(crate) user: &'a User,
    /// What.
    pub(crate) verb: &'a str,
    /// To what.
    pub(crate) about: About<'a>,
}

/// What somebody wants to do something to.
#[derive(Clone, Debug)]
pub(crate) enum About<'a> {
    /// A path that leads to no object.
    Path(&'a str),
    /// An object, or many.
    Objects(Objects<'a>),
}

/// The objects that somebody wants to do something to. What is empty is not said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects<'a> {
    /// The API group.
    pub(crate) group: &'a str,
    /// The resource, in the plural.
    pub(crate) resource: &'a str,
    /// What hangs below the object.
    pub(crate) subresource: &'a str,
    /// The namespace.
    pub(crate) namespace: &'a str,
    /// The object.
    pub(crate) name: &'a str,
    /// The node that a field selector restricts them to (`spec.nodeName`).
    pub(crate) on_node: Option<&'a str>,
}

impl<'a> Ask<'a> {
    /// Something about objects.
    pub(crate) fn about_objects(user: &'a User, verb: &'a str, objects: Objects<'a>) -> Self {
        Self { user, verb, about: About::Objects(objects) }
    }

    /// Something about a path.
    pub(crate) fn about_path(user: &'a User, verb: &'a str, path: &'a str) -> Self {
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

/// The parts of a request's query that authorization looks at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selectors {
    fields: FieldSelector,
}

impl Selectors {
    /// Reads them; those that cannot be read are as if they were not there, which never gives a right.
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

/// What came of asking.
#[derive(Clone, Debug)]
pub(crate) enum Decision {
    /// It is allowed, by this binding or by who the user is.
    Allowed(Option<Grant>),
    /// Nothing allows it; the reason is what upstream adds to the refusal, often nothing.
    NotAllowed(String),
}

impl Decision {
    /// Whether it is allowed.
    pub(crate) fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// The reason in the words of a review.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Allowed(Some(grant)) => format!("RBAC: allowed by {grant}"),
            Self::Allowed(None) => String::new(),
            Self::NotAllowed(reason) => reason.clone(),
        }
    }
}

/// Decides who may do what. It knows of every write that was acknowledged before it is asked.
pub(crate) struct Authorizer {
    rbac: Followed<Rbac>,
    graph: Followed<Graph>,
    /// What every node may do, but for what is its own business alone.
    node_rules: Vec<Rule>,
}

impl Authorizer {
    /// Follows the roles, bindings, pods and volumes of a store.
    pub(crate) fn new(store: &Store) -> Self {
        Self {
            rbac: Followed::of(store.clone()),
            graph: Followed::of(store.clone()),
            node_rules: defaults::node_rules(),
        }
    }

    /// Refuses what is not allowed.
    pub(crate) fn authorize(&self, ask: &Ask<'_>) -> Result<(), ApiError> {
        match self.decide(ask) {
            Decision::Allowed(_) => Ok(()),
            Decision::NotAllowed(reason) => Err(ask.refused(&reason)),
        }
    }

    /// Whether something is allowed, and why.
    pub(crate) fn decide(&self, ask: &Ask<'_>) -> Decision {
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

    /// The rules that apply to a user in a namespace, and which roles could not be found.
    pub(crate) fn rules_for(&self, user: &User, namespace: &str) -> (Vec<Rule>, Option<String>) {
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
