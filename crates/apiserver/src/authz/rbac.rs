//! The RBAC authorizer: roles and bindings, indexed by subject.
//!
//! A decision looks up the bindings of the user and of each of the user's groups, and the rules of their roles. Its cost does
//! not depend on the bindings of other subjects.

#[cfg(test)]
mod laws;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use plumb_store::Object;
use serde_json::Value;

use super::followed::Index;
use super::rule::Rule;
use super::{Ask, RBAC_GROUP};
use crate::object::decode;
use crate::user::User;

/// All roles and bindings of a cluster.
#[derive(Default)]
pub(crate) struct Rbac {
    cluster_roles: HashMap<String, Arc<[Rule]>>,
    /// By namespace and name.
    roles: HashMap<String, HashMap<String, Arc<[Rule]>>>,
    cluster_wide: Bindings,
    by_namespace: HashMap<String, Bindings>,
}

/// The bindings of a namespace, or of the cluster.
#[derive(Default)]
struct Bindings {
    all: HashMap<String, Arc<Binding>>,
    users: HashMap<String, BTreeMap<String, Arc<Binding>>>,
    groups: HashMap<String, BTreeMap<String, Arc<Binding>>>,
}

/// A binding of a role to subjects.
#[derive(Debug)]
pub(crate) struct Binding {
    name: String,
    /// Empty for a `ClusterRoleBinding`.
    namespace: String,
    role: RoleRef,
    subjects: Vec<Subject>,
}

/// A reference to a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoleRef {
    /// `Role` or `ClusterRole`.
    pub(crate) kind: String,
    /// Its name.
    pub(crate) name: String,
}

#[derive(Debug)]
struct Subject {
    kind: String,
    namespace: String,
    name: String,
}

/// The grant of a request: a binding, and the subject in it that matches the user.
#[derive(Clone, Debug)]
pub struct Grant {
    binding: Arc<Binding>,
    subject: usize,
}

/// The role of a binding does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unresolved {
    /// There is no such role.
    #[error("{}.{RBAC_GROUP} {:?} not found", .0.kind.to_lowercase(), .0.name)]
    Missing(RoleRef),
    /// There is no such kind of role.
    #[error("unsupported role reference kind: {0:?}")]
    Unsupported(String),
}

impl RoleRef {
    /// The role of a binding.
    pub(crate) fn of(binding: &Value) -> Self {
        let field = |name: &str| binding["roleRef"][name].as_str().unwrap_or_default().to_owned();
        Self { kind: field("kind"), name: field("name") }
    }
}

impl Rbac {
    /// The grant of a request, or the missing roles that might allow it.
    pub(crate) fn decide(&self, ask: &Ask<'_>) -> Result<Grant, Vec<Unresolved>> {
        let mut unresolved = Vec::new();
        for (binding, subject) in self.bindings_of(ask.user, ask.namespace()) {
            match self.rules(&binding.role, &binding.namespace) {
                Ok(rules) if rules.iter().any(|rule| rule.allows(ask)) => {
                    return Ok(Grant { binding: Arc::clone(binding), subject });
                }
                Ok(_) => {}
                Err(error) if unresolved.contains(&error) => {}
                Err(error) => unresolved.push(error),
            }
        }
        Err(unresolved)
    }

    /// All rules of a user in a namespace, and the roles that were not found.
    pub(crate) fn rules_for(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<Unresolved>) {
        let (mut rules, mut unresolved) = (Vec::new(), Vec::new());
        let mut seen: Vec<(&str, &str)> = Vec::new();
        for (binding, _) in self.bindings_of(user, namespace) {
            let identity = (binding.namespace.as_str(), binding.name.as_str());
            if seen.contains(&identity) {
                continue;
            }
            seen.push(identity);
            match self.rules(&binding.role, &binding.namespace) {
                Ok(found) => rules.extend(found.iter().cloned()),
                Err(error) if unresolved.contains(&error) => {}
                Err(error) => unresolved.push(error),
            }
        }
        (rules, unresolved)
    }

    /// The rules of the role that a binding refers to, in a namespace or in the cluster.
    pub(crate) fn rules(&self, role: &RoleRef, namespace: &str) -> Result<&Arc<[Rule]>, Unresolved> {
        let missing = || Unresolved::Missing(role.clone());
        match role.kind.as_str() {
            "ClusterRole" => self.cluster_roles.get(&role.name).ok_or_else(missing),
            "Role" => self.roles.get(namespace).and_then(|roles| roles.get(&role.name)).ok_or_else(missing),
            other => Err(Unresolved::Unsupported(other.to_owned())),
        }
    }

    /// The bindings of a user, with the subject that matches; a binding may occur more than once.
    fn bindings_of<'a>(
        &'a self,
        user: &'a User,
        namespace: &str,
    ) -> impl Iterator<Item = (&'a Arc<Binding>, usize)> {
        let local = if namespace.is_empty() { None } else { self.by_namespace.get(namespace) };
        [Some(&self.cluster_wide), local].into_iter().flatten().flat_map(|bindings| {
            let own = bindings.users.get(user.name());
            let shared = user.groups().iter().filter_map(|group| bindings.groups.get(group));
            own.into_iter().chain(shared).flat_map(BTreeMap::values).filter_map(|binding| {
                let subject = binding.subjects.iter().position(|subject| subject.is(user, binding));
                subject.map(|subject| (binding, subject))
            })
        })
    }

    fn bindings_in(&mut self, namespace: &str) -> &mut Bindings {
        match namespace {
            "" => &mut self.cluster_wide,
            namespace => self.by_namespace.entry(namespace.to_owned()).or_default(),
        }
    }
}

impl Index for Rbac {
    const SUBTREES: &'static [&'static str] = &[RBAC_GROUP];

    fn put(&mut self, object: &Object) {
        let Some((plural, namespace, name)) = place(object) else { return };
        // A stored object that cannot be decoded grants no right, and takes none away.
        let Ok(value) = decode(&object.value) else { return self.remove(object) };
        match plural {
            "clusterroles" => {
                self.cluster_roles.insert(name.to_owned(), Rule::all_of(&value).into());
            }
            "roles" => {
                let roles = self.roles.entry(namespace.to_owned()).or_default();
                roles.insert(name.to_owned(), Rule::all_of(&value).into());
            }
            "clusterrolebindings" | "rolebindings" => {
                self.bindings_in(namespace).put(Binding::read(namespace, name, &value));
            }
            _ => {}
        }
    }

    fn remove(&mut self, object: &Object) {
        let Some((plural, namespace, name)) = place(object) else { return };
        match plural {
            "clusterroles" => {
                self.cluster_roles.remove(name);
            }
            "roles" => {
                if let Some(roles) = self.roles.get_mut(namespace) {
                    roles.remove(name);
                    if roles.is_empty() {
                        self.roles.remove(namespace);
                    }
                }
            }
            "clusterrolebindings" => self.cluster_wide.remove(name),
            "rolebindings" => {
                if let Some(bindings) = self.by_namespace.get_mut(namespace) {
                    bindings.remove(name);
                    if bindings.all.is_empty() {
                        self.by_namespace.remove(namespace);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The plural, the namespace and the name in a key.
fn place(object: &Object) -> Option<(&str, &str, &str)> {
    let mut segments = object.key.segments().skip(1);
    let plural = segments.next()?;
    let first = segments.next()?;
    Some(segments.next().map_or((plural, "", first), |name| (plural, first, name)))
}

impl Bindings {
    fn put(&mut self, binding: Binding) {
        self.remove(&binding.name);
        let binding = Arc::new(binding);
        for subject in &binding.subjects {
            let (by_name, name) = match subject.kind.as_str() {
                "User" => (&mut self.users, subject.name.clone()),
                "Group" => (&mut self.groups, subject.name.clone()),
                "ServiceAccount" => (&mut self.users, subject.account(&binding)),
                _ => continue,
            };
            by_name.entry(name).or_default().insert(binding.name.clone(), Arc::clone(&binding));
        }
        self.all.insert(binding.name.clone(), binding);
    }

    fn remove(&mut self, name: &str) {
        let Some(binding) = self.all.remove(name) else { return };
        for subject in &binding.subjects {
            let (by_name, subject) = match subject.kind.as_str() {
                "Group" => (&mut self.groups, subject.name.clone()),
                "ServiceAccount" => (&mut self.users, subject.account(&binding)),
                _ => (&mut self.users, subject.name.clone()),
            };
            if let Some(bindings) = by_name.get_mut(&subject) {
                bindings.remove(name);
                if bindings.is_empty() {
                    by_name.remove(&subject);
                }
            }
        }
    }
}

impl Binding {
    fn read(namespace: &str, name: &str, value: &Value) -> Self {
        let subjects = value["subjects"].as_array().into_iter().flatten().map(|subject| {
            let field = |name: &str| subject[name].as_str().unwrap_or_default().to_owned();
            Subject { kind: field("kind"), namespace: field("namespace"), name: field("name") }
        });
        Self {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            role: RoleRef::of(value),
            subjects: subjects.collect(),
        }
    }
}

impl Subject {
    /// The namespace of a service account: its own, or else that of the binding.
    fn home<'a>(&'a self, binding: &'a Binding) -> &'a str {
        if self.namespace.is_empty() { &binding.namespace } else { &self.namespace }
    }

    fn account(&self, binding: &Binding) -> String {
        format!("system:serviceaccount:{}:{}", self.home(binding), self.name)
    }

    fn is(&self, user: &User, binding: &Binding) -> bool {
        match self.kind.as_str() {
            "User" => user.name() == self.name,
            "Group" => user.is_in(&self.name),
            "ServiceAccount" => {
                let home = self.home(binding);
                !home.is_empty()
                    && user
                        .name()
                        .strip_prefix("system:serviceaccount:")
                        .and_then(|rest| rest.strip_prefix(home))
                        .and_then(|rest| rest.strip_prefix(':'))
                        == Some(&self.name)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Binding { name, namespace, role, subjects } = &*self.binding;
        match namespace.as_str() {
            "" => write!(f, "ClusterRoleBinding {name:?}")?,
            namespace => write!(f, "RoleBinding \"{name}/{namespace}\"")?,
        }
        write!(f, " of {} {:?} to ", role.kind, role.name)?;
        let Some(subject) = subjects.get(self.subject) else { return f.write_str("no subject") };
        match subject.kind.as_str() {
            "ServiceAccount" => {
                write!(f, "ServiceAccount \"{}/{}\"", subject.name, subject.home(&self.binding))
            }
            kind => write!(f, "{kind} {:?}", subject.name),
        }
    }
}
