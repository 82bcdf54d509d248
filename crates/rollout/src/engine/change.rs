//! The change from a running pod to a template, per container.
//!
//! A container with a CPU start-up boost has more CPU than its template for a while, which is no difference. What is
//! compared is its CPU without the boost, which is in annotations of the pod. A change of it is written there, so that the
//! container has it once the boost ends; until then the container has the larger of both.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodTemplateSpec, ResourceRequirements};
use plumb_resize::aggregate::Role;
use plumb_resize::list::{BadQuantity, WireList, declared};
use plumb_resize::pod::{PodResources, PodShape};
use plumb_resize::qos::QosClass;
use plumb_resize::resource::{Requirements, Resource};
use plumb_resize::rules::Rules;
use plumb_resize::validate;
use plumb_vpa_api::startup_boost::{ActiveBoost, Cpu, RolledOut, active_boosts, rolled_out_annotations};
use serde_json::{Map, Value, json};

use super::desired::{Desired, is_empty};
use super::reason::Reason;

/// How a running pod gets the resources of a template.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Its spec has them.
    None,
    /// A resize.
    Vertical(Box<Vertical>),
    /// No resize can do it.
    Other(Vec<Reason>),
}

/// A resize of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Vertical {
    /// The containers whose resources change, in the order of the pod's spec, init containers first.
    pub containers: Vec<ContainerChange>,
    /// The pod-level resources, if they change.
    pub pod: Option<ResourceChange>,
    /// Whether the pod will request more of any resource than before, so that its node has to have it.
    pub grows: bool,
    /// Whether a container is restarted.
    pub restarts: bool,
    /// The annotations of boosted containers after the resize: what they get back to when their boosts end.
    pub annotations: BTreeMap<String, String>,
}

/// A resize of one container.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerChange {
    /// Its name.
    pub name: String,
    /// Whether it is a main, a sidecar or a plain init container.
    pub role: Role,
    /// Its resources, without its CPU start-up boost if it has one.
    pub resources: ResourceChange,
    /// The quantities of its spec that change now: with a boost, only what it does not have already.
    pub sent: ResourceRequirements,
    /// Whether its resize policy has it restarted for this.
    pub restarts: bool,
}

/// Resources before and after.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceChange {
    /// The amounts in the pod's spec.
    pub old: Requirements,
    /// The amounts after the resize.
    pub new: Requirements,
    /// The quantities that change, as they are in the spec: an undo sets them again.
    pub previous: ResourceRequirements,
    /// The quantities that change, as they are to be set.
    pub set: ResourceRequirements,
}

/// Compares the resources of a template with those in the spec of a pod, container by container.
///
/// Only resources that the template declares are compared, with the defaults that the API server would add. A pod may
/// have more: values that a `LimitRange`, a webhook or an autoscaler has set stay. Fields other than resources are
/// not compared: [`can_update`]
/// compares the templates of two revisions.
///
/// [`can_update`]: super::can_update
pub fn compare(template: &PodTemplateSpec, pod: &Pod, rules: &Rules) -> Change {
    match Desired::of(template, rules) {
        Ok(desired) => compare_desired(&desired, pod, rules),
        Err(bad) => invalid(&bad),
    }
}

/// [`compare`] with resources that are at hand: those of a template, computed once for many pods, or those that were
/// recorded for an undo.
pub fn compare_desired(desired: &Desired, pod: &Pod, rules: &Rules) -> Change {
    vertical(desired, pod, rules).unwrap_or_else(|bad| invalid(&bad))
}

fn invalid(bad: &BadQuantity) -> Change {
    Change::Other(vec![Reason::Invalid { message: bad.to_string() }])
}

fn vertical(desired: &Desired, pod: &Pod, rules: &Rules) -> Result<Change, BadQuantity> {
    let Some(spec) = &pod.spec else { return Ok(Change::None) };
    let boosts = active_boosts(pod);
    // Most pods have no boost, most comparisons find no difference, and are made for each change of each pod.
    if boosts.is_empty() && !differs(desired, spec)? {
        return Ok(Change::None);
    }
    let shape = PodShape::of(pod)?;
    let unboosted = (!boosts.is_empty()).then(|| without_boosts(spec, &boosts));
    let plain = unboosted.as_ref().unwrap_or(spec);
    let old = PodResources::desired(plain)?;
    let mut target = plain.clone();
    let mut reasons = Vec::new();
    for name in desired.containers.keys().filter(|name| shape.position(name).is_none()) {
        reasons.push(Reason::Field { path: format!("spec.containers[{name}]") });
    }
    let containers = target.init_containers.iter_mut().flatten().chain(&mut target.containers);
    for container in containers {
        if let Some(wanted) = desired.containers.get(&container.name) {
            set(container.resources.get_or_insert_default(), wanted);
        }
    }
    if let Some(wanted) = &desired.pod {
        set(target.resources.get_or_insert_default(), wanted);
    }
    let new = PodResources::desired(&target)?;
    let boosted = (!boosts.is_empty()).then(|| with_boosts(&target, spec, desired, &boosts));
    let next = boosted.as_ref().unwrap_or(&target);
    let (has, sent) = match &boosted {
        Some(next) => (PodResources::desired(spec)?, PodResources::desired(next)?),
        None => (old.clone(), new.clone()),
    };
    let mut changed = Vec::new();
    for (i, (shape, (old, new))) in
        shape.containers.iter().zip(old.containers.iter().zip(&new.containers)).enumerate()
    {
        let (has, sent) = (&has.containers[i], &sent.containers[i]);
        if old == new && has == sent {
            continue;
        }
        if shape.role == Role::Init && !rules.resize_init_containers {
            reasons.push(Reason::InitContainer { container: shape.name.clone() });
        }
        let (before, after) = (resources_at(plain, i), resources_at(&target, i));
        let (now, soon) = (resources_at(spec, i), resources_at(next, i));
        changed.push(ContainerChange {
            name: shape.name.clone(),
            role: shape.role,
            resources: resource_change(before, after, *old, *new),
            sent: resource_change(now, soon, *has, *sent).set,
            restarts: shape.restarts_for(*has, *sent).is_some(),
        });
    }
    let pod_level = match (old.pod.unwrap_or_default(), new.pod.unwrap_or_default()) {
        (old, new) if old == new => None,
        (old, new) => {
            if !rules.resize_pod_level {
                reasons.push(Reason::PodLevel);
            }
            Some(resource_change(spec.resources.as_ref(), target.resources.as_ref(), old, new))
        }
    };
    if changed.is_empty() && pod_level.is_none() && reasons.is_empty() {
        return Ok(Change::None);
    }
    let (from, to) = (QosClass::of_pod(pod)?, QosClass::of_spec(&target)?);
    if from != to {
        reasons.push(Reason::QosClass { from, to });
    }
    let grows = !shape.requests(&sent).within(shape.requests(&has));
    let annotations = boost_annotations(pod, &target, &changed, &boosts);
    // What the pod has once its boosts end has to be valid, too.
    for wanted in boosted.into_iter().chain([target]) {
        if reasons.is_empty() {
            reasons.extend(refusal(pod, wanted, rules));
        }
    }
    if !reasons.is_empty() {
        return Ok(Change::Other(reasons));
    }
    let restarts = changed.iter().any(|container| container.restarts);
    let vertical = Vertical { containers: changed, pod: pod_level, grows, restarts, annotations };
    Ok(Change::Vertical(Box::new(vertical)))
}

/// The spec of a pod as it is without the boosts of its containers.
fn without_boosts(spec: &PodSpec, boosts: &BTreeMap<String, ActiveBoost>) -> PodSpec {
    let mut spec = spec.clone();
    for container in &mut spec.containers {
        if let Some(boost) = boosts.get(&container.name) {
            boost.unboosted.write_to(container);
        }
    }
    spec
}

/// A target in which boosted containers have the larger of the CPU that is desired and of their boost, and the CPU that they
/// have where none is desired: it is up to an autoscaler. A container without a limit gets one when its boost ends.
fn with_boosts(
    target: &PodSpec,
    has: &PodSpec,
    desired: &Desired,
    boosts: &BTreeMap<String, ActiveBoost>,
) -> PodSpec {
    let names_cpu =
        |list: Option<&WireList>| list.is_some_and(|list| list.contains_key(Resource::Cpu.name()));
    let mut next = target.clone();
    for (container, has) in next.containers.iter_mut().zip(&has.containers) {
        let Some(ActiveBoost { boosted, .. }) = boosts.get(&container.name) else { continue };
        let (mut cpu, wanted) = (Cpu::of(has), Cpu::of(container));
        let desired = desired.containers.get(&container.name);
        if names_cpu(desired.and_then(|desired| desired.requests.as_ref())) {
            cpu.request = boosted.request.max(wanted.request);
        }
        if names_cpu(desired.and_then(|desired| desired.limits.as_ref())) {
            cpu.limit = boosted.limit.map(|limit| limit.max(wanted.limit.unwrap_or(limit)));
        }
        cpu.write_to(container);
    }
    next
}

/// The annotations of the boosted containers among those that change.
fn boost_annotations(
    pod: &Pod,
    target: &PodSpec,
    changed: &[ContainerChange],
    boosts: &BTreeMap<String, ActiveBoost>,
) -> BTreeMap<String, String> {
    let boosted = changed.iter().filter(|container| boosts.contains_key(&container.name));
    let rolled_out =
        boosted.filter(|container| !is_empty(&container.resources.set)).filter_map(|container| {
            let after = target.containers.iter().find(|after| after.name == container.name)?;
            Some(RolledOut {
                container: &container.name,
                unboosted: Cpu::of(after),
                requests: container.resources.set.requests.clone().unwrap_or_default(),
                limits: container.resources.set.limits.clone().unwrap_or_default(),
            })
        });
    let rolled_out: Vec<RolledOut<'_>> = rolled_out.collect();
    if rolled_out.is_empty() { BTreeMap::new() } else { rolled_out_annotations(pod, &rolled_out) }
}

/// Whether any amount that is desired is another one in the spec.
fn differs(desired: &Desired, spec: &PodSpec) -> Result<bool, BadQuantity> {
    let lists = |wanted: Option<&WireList>, has: Option<&WireList>| -> Result<bool, BadQuantity> {
        let (wanted, has) = (declared(wanted)?, declared(has)?);
        Ok(wanted.any(|r, amount| amount.is_some() && *amount != has[r]))
    };
    let resources = |wanted: &ResourceRequirements, has: Option<&ResourceRequirements>| {
        let requests = lists(wanted.requests.as_ref(), has.and_then(|has| has.requests.as_ref()))?;
        Ok(requests || lists(wanted.limits.as_ref(), has.and_then(|has| has.limits.as_ref()))?)
    };
    if let Some(wanted) = &desired.pod
        && resources(wanted, spec.resources.as_ref())?
    {
        return Ok(true);
    }
    for (name, wanted) in &desired.containers {
        let Some(container) = containers(spec).find(|container| container.name == *name) else {
            return Ok(true);
        };
        if resources(wanted, container.resources.as_ref())? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Why the API server would refuse a resize for other reasons.
fn refusal(pod: &Pod, target: PodSpec, rules: &Rules) -> Option<Reason> {
    let target = Pod { metadata: pod.metadata.clone(), spec: Some(target), status: pod.status.clone() };
    let errors = validate::resize(pod, &target, rules);
    errors.first().map(|error| Reason::Invalid { message: error.to_string() })
}

fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

fn resources_at(spec: &PodSpec, position: usize) -> Option<&ResourceRequirements> {
    containers(spec).nth(position)?.resources.as_ref()
}

/// Sets the quantities that are desired, and leaves the others.
fn set(resources: &mut ResourceRequirements, wanted: &ResourceRequirements) {
    let lists = [(&mut resources.requests, &wanted.requests), (&mut resources.limits, &wanted.limits)];
    for (list, wanted) in lists {
        for (name, quantity) in wanted.iter().flatten() {
            list.get_or_insert_default().insert(name.clone(), quantity.clone());
        }
    }
}

fn resource_change(
    before: Option<&ResourceRequirements>,
    after: Option<&ResourceRequirements>,
    old: Requirements,
    new: Requirements,
) -> ResourceChange {
    let none = ResourceRequirements::default();
    let (before, after) = (before.unwrap_or(&none), after.unwrap_or(&none));
    let only = |list: Option<&WireList>, changes: &dyn Fn(Resource) -> bool| -> Option<WireList> {
        let list: WireList = list
            .into_iter()
            .flatten()
            .filter(|(name, _)| Resource::named(name).is_some_and(changes))
            .map(|(name, quantity)| (name.clone(), quantity.clone()))
            .collect();
        (!list.is_empty()).then_some(list)
    };
    let requests = |r: Resource| old.requests[r] != new.requests[r];
    let limits = |r: Resource| old.limits[r] != new.limits[r];
    let part = |of: &ResourceRequirements| ResourceRequirements {
        requests: only(of.requests.as_ref(), &requests),
        limits: only(of.limits.as_ref(), &limits),
        claims: None,
    };
    ResourceChange { old, new, previous: part(before), set: part(after) }
}

impl Vertical {
    /// The change without that of some containers.
    #[must_use]
    pub fn without(&self, leave: impl Fn(&str) -> bool) -> Self {
        let mut change = self.clone();
        change.containers.retain(|container| !leave(&container.name));
        change
    }

    /// Whether anything is sent to `/resize`: not if only that changes which boosted containers get back to.
    pub fn is_sent(&self) -> bool {
        self.pod.is_some() || self.containers.iter().any(|container| !is_empty(&container.sent))
    }

    /// The strategic merge patch for `/resize`. It has only the quantities that change, so that it does not undo what
    /// others have changed meanwhile.
    pub fn patch(&self) -> Value {
        let list = |wanted: &dyn Fn(Role) -> bool| -> Vec<Value> {
            let containers = self.containers.iter().filter(|container| wanted(container.role));
            containers
                .filter(|container| !is_empty(&container.sent))
                .map(|container| json!({ "name": container.name, "resources": container.sent }))
                .collect()
        };
        let (main, init) = (list(&|role| role == Role::Main), list(&|role| role != Role::Main));
        let mut spec = Map::new();
        if !main.is_empty() {
            spec.insert("containers".to_owned(), Value::Array(main));
        }
        if !init.is_empty() {
            spec.insert("initContainers".to_owned(), Value::Array(init));
        }
        if let Some(pod) = &self.pod {
            spec.insert("resources".to_owned(), json!(pod.set));
        }
        json!({ "spec": spec })
    }

    /// The resources before the change, which an undo sets again. Resources that were not set before are not named: a
    /// resize cannot remove them.
    pub fn previous(&self) -> Desired {
        let containers = self.containers.iter().map(|container| (container, &container.resources.previous));
        Desired {
            containers: containers
                .filter(|(_, previous)| !is_empty(previous))
                .map(|(container, previous)| (container.name.clone(), previous.clone()))
                .collect(),
            pod: self.pod.as_ref().map(|pod| pod.previous.clone()).filter(|previous| !is_empty(previous)),
        }
    }

    /// The resources after the change, as far as it changes them.
    pub fn target(&self) -> Desired {
        let containers = self.containers.iter();
        Desired {
            containers: containers.map(|c| (c.name.clone(), c.resources.set.clone())).collect(),
            pod: self.pod.as_ref().map(|pod| pod.set.clone()),
        }
    }

    /// The fields that the change adds, such as `requests.cpu` of a container (none: the pod). No undo removes them.
    pub fn added(&self) -> Vec<(Option<&str>, String)> {
        let containers = self.containers.iter().map(|c| (Some(c.name.as_str()), &c.resources));
        let all = containers.chain(self.pod.iter().map(|pod| (None, pod)));
        let mut added = Vec::new();
        for (container, ResourceChange { old, new, .. }) in all {
            for r in Resource::ALL {
                if old.requests[r].is_none() && new.requests[r].is_some() {
                    added.push((container, format!("requests.{r}")));
                }
                if old.limits[r].is_none() && new.limits[r].is_some() {
                    added.push((container, format!("limits.{r}")));
                }
            }
        }
        added
    }
}
