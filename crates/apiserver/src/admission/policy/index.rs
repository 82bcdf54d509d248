//! An index of policies and bindings by the resources that they match.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use plumb_store::Object;
use serde_json::Value;

use super::super::matching::{Criteria, texts};
use super::compiled::Compiled;
use crate::authz::followed::Index;
use crate::object::{decode, meta};

/// A kind of policies.
pub(in crate::admission) trait PolicyKind: Default + Send + Sync + 'static {
    /// The subtrees of the store with its policies and bindings.
    const SUBTREES: &'static [&'static str];
}

/// `ValidatingAdmissionPolicy`.
#[derive(Debug, Default)]
pub(in crate::admission) struct Validating;

impl PolicyKind for Validating {
    const SUBTREES: &'static [&'static str] = &[
        "admissionregistration.k8s.io/validatingadmissionpolicies",
        "admissionregistration.k8s.io/validatingadmissionpolicybindings",
    ];
}

/// `MutatingAdmissionPolicy`.
#[derive(Debug, Default)]
pub(in crate::admission) struct Mutating;

impl PolicyKind for Mutating {
    const SUBTREES: &'static [&'static str] = &[
        "admissionregistration.k8s.io/mutatingadmissionpolicies",
        "admissionregistration.k8s.io/mutatingadmissionpolicybindings",
    ];
}

/// A policy. Its expressions are compiled when a write first needs them, once.
#[derive(Debug)]
pub(in crate::admission) struct Policy {
    pub(super) name: String,
    pub(super) spec: Value,
    pub(super) criteria: Criteria,
    /// Whether a write passes if its evaluation fails (`failurePolicy: Ignore`).
    pub(super) ignores_failure: bool,
    /// `apiVersion` and `kind` of the parameters.
    pub(super) param_kind: Option<(String, String)>,
    compiled: OnceLock<Compiled>,
}

impl Policy {
    fn read(policy: &Value) -> Self {
        let spec = &policy["spec"];
        let text = |field: &str| spec["paramKind"][field].as_str().unwrap_or_default().to_owned();
        Self {
            name: meta(policy, "name").to_owned(),
            criteria: Criteria::of_resources(&spec["matchConstraints"]),
            ignores_failure: spec["failurePolicy"] == "Ignore",
            param_kind: spec["paramKind"].is_object().then(|| (text("apiVersion"), text("kind"))),
            spec: spec.clone(),
            compiled: OnceLock::new(),
        }
    }

    pub(super) fn compiled(&self) -> &Compiled {
        self.compiled.get_or_init(|| Compiled::of(&self.spec))
    }
}

/// A binding.
#[derive(Debug)]
pub(in crate::admission) struct Binding {
    pub(super) name: String,
    pub(super) policy: String,
    /// `matchResources`; none matches all writes.
    pub(super) criteria: Option<Criteria>,
    /// `paramRef`, null if there is none.
    pub(super) param_ref: Value,
    /// `validationActions`.
    pub(super) actions: Vec<String>,
}

impl Binding {
    /// Whether `validationActions` has this action.
    pub(super) fn asks(&self, action: &str) -> bool {
        self.actions.iter().any(|own| own == action)
    }

    fn read(binding: &Value) -> Self {
        let spec = &binding["spec"];
        let resources = &spec["matchResources"];
        Self {
            name: meta(binding, "name").to_owned(),
            policy: spec["policyName"].as_str().unwrap_or_default().to_owned(),
            criteria: resources.is_object().then(|| Criteria::of_resources(resources)),
            param_ref: spec["paramRef"].clone(),
            actions: texts(&spec["validationActions"]),
        }
    }
}

/// A policy with its bindings, in the order of their names.
pub(in crate::admission) type Bound = (Arc<Policy>, Vec<Arc<Binding>>);

/// The policies of a kind and their bindings.
#[derive(Debug, Default)]
pub(in crate::admission) struct Policies<K> {
    by_name: BTreeMap<String, Arc<Policy>>,
    bindings: BTreeMap<String, Arc<Binding>>,
    /// The bindings of each policy.
    bound: HashMap<String, BTreeSet<String>>,
    /// The policies that name a resource in their rules, by its plural.
    by_resource: HashMap<String, BTreeSet<String>>,
    /// The policies with a wildcard in their rules.
    about_any: BTreeSet<String>,
    kind: PhantomData<K>,
}

impl<K> Policies<K> {
    /// The policies that may match a resource, in the order of their names. A policy without a binding has no effect.
    pub(super) fn about(&self, plural: &str) -> Vec<Bound> {
        let named = self.by_resource.get(plural).into_iter().flatten();
        let names: BTreeSet<&String> = named.chain(&self.about_any).collect();
        names.into_iter().filter_map(|name| self.bound(name)).collect()
    }

    fn bound(&self, name: &str) -> Option<Bound> {
        let policy = self.by_name.get(name)?;
        let names = self.bound.get(name).filter(|names| !names.is_empty())?;
        let bindings = names.iter().filter_map(|name| self.bindings.get(name).cloned());
        Some((policy.clone(), bindings.collect()))
    }

    fn put_policy(&mut self, policy: &Value) {
        let name = meta(policy, "name");
        // A write of the status or of the metadata does not invalidate compiled expressions.
        if self.by_name.get(name).is_some_and(|known| known.spec == policy["spec"]) {
            return;
        }
        self.remove_policy(name);
        let policy = Arc::new(Policy::read(policy));
        match policy.criteria.resources() {
            None => {
                self.about_any.insert(policy.name.clone());
            }
            Some(resources) => {
                for resource in resources {
                    self.by_resource.entry(resource.to_owned()).or_default().insert(policy.name.clone());
                }
            }
        }
        self.by_name.insert(policy.name.clone(), policy);
    }

    fn remove_policy(&mut self, name: &str) {
        let Some(policy) = self.by_name.remove(name) else { return };
        self.about_any.remove(name);
        for resource in policy.criteria.resources().into_iter().flatten() {
            remove(&mut self.by_resource, resource, name);
        }
    }

    fn put_binding(&mut self, binding: &Value) {
        self.remove_binding(meta(binding, "name"));
        let binding = Arc::new(Binding::read(binding));
        self.bound.entry(binding.policy.clone()).or_default().insert(binding.name.clone());
        self.bindings.insert(binding.name.clone(), binding);
    }

    fn remove_binding(&mut self, name: &str) {
        if let Some(binding) = self.bindings.remove(name) {
            remove(&mut self.bound, &binding.policy, name);
        }
    }
}

fn remove(sets: &mut HashMap<String, BTreeSet<String>>, key: &str, name: &str) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(name);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

/// Whether an object is a binding, and its name.
fn place<K: PolicyKind>(object: &Object) -> Option<(bool, &str)> {
    let (subtree, name) = object.key.as_str().rsplit_once('/')?;
    let place = K::SUBTREES.iter().position(|own| *own == subtree)?;
    Some((place == 1, name))
}

impl<K: PolicyKind> Index for Policies<K> {
    const SUBTREES: &'static [&'static str] = K::SUBTREES;

    fn put(&mut self, object: &Object) {
        let Some((is_binding, _)) = place::<K>(object) else { return };
        match decode(&object.value) {
            Ok(value) if is_binding => self.put_binding(&value),
            Ok(value) => self.put_policy(&value),
            Err(error) => {
                tracing::error!(key = %object.key, error = error.message, "a stored policy cannot be read");
            }
        }
    }

    fn remove(&mut self, object: &Object) {
        match place::<K>(object) {
            Some((true, name)) => self.remove_binding(name),
            Some((false, name)) => self.remove_policy(name),
            None => {}
        }
    }
}
