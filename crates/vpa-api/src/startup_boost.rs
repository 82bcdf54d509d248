//! The annotations of a pod with a CPU start-up boost (AEP-7862): admission writes them, and the updater reads them to
//! unboost the pod. A rollout that resizes a boosted pod writes what the container gets back to.
//!
//! `vpaCpuStartupBoost/<container>` is upstream's: the container's own requests and limits of CPU and memory. A pod with it
//! is boosted; either implementation unboosts the pods of the other.
//!
//! `plumb.dev/cpu-startup-boost` has in addition the boosted CPU of each container, and its CPU without the boost.
//! `plumb status` shows it, and the updater uses it where upstream's annotation cannot be used.
//!
//! `plumb.dev/cpu-startup-boost-restarts` has the restarts of containers that the updater has boosted, if it does.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use plumb_resize::Quantity;
use serde::{Deserialize, Serialize};

use crate::{ResourceList, Resources, read_resources};

const CPU: &str = "cpu";

/// Request and limit of CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// The request, where there is one.
    pub request: Option<Quantity>,
    /// The limit, where there is one.
    pub limit: Option<Quantity>,
}

impl Cpu {
    /// The CPU of a container. A quantity that cannot be read counts as absent.
    pub fn of(container: &Container) -> Self {
        let resources = container.resources.as_ref();
        let cpu = |list: Option<&ResourceList>| list.map(read_resources).and_then(|read: Resources| read.cpu);
        Self {
            request: cpu(resources.and_then(|resources| resources.requests.as_ref())),
            limit: cpu(resources.and_then(|resources| resources.limits.as_ref())),
        }
    }

    /// Sets request and limit of a container. An absent value is removed.
    pub fn write_to(self, container: &mut Container) {
        let resources = container.resources.get_or_insert_default();
        set_cpu(&mut resources.requests, self.request);
        set_cpu(&mut resources.limits, self.limit);
    }
}

fn set_cpu(list: &mut Option<ResourceList>, amount: Option<Quantity>) {
    match (list.as_mut(), amount) {
        (_, Some(amount)) => {
            list.get_or_insert_default().insert(CPU.to_owned(), amount.into());
        }
        (Some(list), None) => {
            list.remove(CPU);
        }
        (None, None) => {}
    }
}

/// The prefix of the names of upstream's annotations; the name of the container follows.
pub const PREFIX: &str = "vpaCpuStartupBoost/";

/// The annotation of a pod with the boosted CPU of each container, and its CPU without the boost, as JSON.
pub const BOOSTS: &str = "plumb.dev/cpu-startup-boost";

/// The annotation of a pod with the restart count of each container up to which the updater has boosted restarts.
pub const RESTARTS: &str = "plumb.dev/cpu-startup-boost-restarts";

/// Upstream's annotation for a container.
pub fn key(container: &str) -> String {
    format!("{PREFIX}{container}")
}

/// The containers of a pod that are boosted, in the order of their names: those that have upstream's annotation, and
/// those that still have the boosted CPU of our own annotation.
pub fn boosted_containers(pod: &Pod) -> BTreeSet<String> {
    let annotations = pod.metadata.annotations.iter().flatten();
    let marked = annotations.filter_map(|(key, _)| key.strip_prefix(PREFIX)).map(str::to_owned);
    let containers = || pod.spec.iter().flat_map(|spec| &spec.containers);
    let has = |name: &str, cpu: Cpu| {
        containers().any(|container| container.name == name && Cpu::of(container) == cpu)
    };
    let boosts = read_boosts(pod).into_iter();
    marked.chain(boosts.filter(|(name, boost)| has(name, boost.boosted)).map(|(name, _)| name)).collect()
}

/// Whether any container of a pod is boosted. Cheap for the pods that are not.
pub fn is_boosted(pod: &Pod) -> bool {
    let annotations = || pod.metadata.annotations.iter().flatten();
    annotations().any(|(key, _)| key.starts_with(PREFIX) || key == BOOSTS)
        && !boosted_containers(pod).is_empty()
}

/// The content of upstream's annotation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Original {
    /// The container's own requests.
    #[serde(default)]
    pub requests: ResourceList,
    /// The container's own limits.
    #[serde(default)]
    pub limits: ResourceList,
}

/// Why upstream's annotation cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damaged {
    /// It is not there.
    #[error("it is missing")]
    Missing,
    /// It is not what admission writes.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// It has amounts that no container can have.
    #[error("a container cannot have a CPU {0}")]
    Impossible(String),
}

impl Original {
    /// The original resources of a container: CPU and memory, as they are written.
    pub fn of(container: &Container) -> Self {
        let two = |list: Option<&ResourceList>| {
            let entries = list.into_iter().flatten();
            let wanted = entries.filter(|(name, _)| *name == CPU || *name == "memory");
            wanted.map(|(name, quantity)| (name.clone(), quantity.clone())).collect()
        };
        let resources = container.resources.as_ref();
        Self {
            requests: two(resources.and_then(|resources| resources.requests.as_ref())),
            limits: two(resources.and_then(|resources| resources.limits.as_ref())),
        }
    }

    /// As text.
    pub fn to_text(&self) -> String {
        // Maps from text to text can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the annotation of a container.
    pub fn read(pod: &Pod, container: &str) -> Result<Self, Damaged> {
        let text = pod.metadata.annotations.as_ref().and_then(|all| all.get(&key(container)));
        let text = text.ok_or(Damaged::Missing)?;
        let original: Self =
            serde_json::from_str(text).map_err(|error| Damaged::Unreadable(error.to_string()))?;
        original.cpu()?;
        Ok(original)
    }

    /// Its CPU.
    pub fn cpu(&self) -> Result<Cpu, Damaged> {
        let amount = |list: &ResourceList| {
            let Some(text) = list.get(CPU) else { return Ok(None) };
            Quantity::try_from(text).map(Some).map_err(|error| Damaged::Unreadable(error.to_string()))
        };
        let cpu = Cpu { request: amount(&self.requests)?, limit: amount(&self.limits)? };
        possible(cpu)?;
        Ok(cpu)
    }
}

/// Whether a container can have this.
fn possible(cpu: Cpu) -> Result<(), Damaged> {
    for (name, amount) in [("request", cpu.request), ("limit", cpu.limit)] {
        if let Some(amount) = amount.filter(|amount| amount.is_negative()) {
            return Err(Damaged::Impossible(format!("{name} of {amount}")));
        }
    }
    match (cpu.request, cpu.limit.filter(|limit| limit.is_positive())) {
        (Some(request), Some(limit)) if request > limit => {
            Err(Damaged::Impossible(format!("request of {request} and a limit of {limit}")))
        }
        _ => Ok(()),
    }
}

/// The entry of a container in our own annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boost {
    /// Its resources without the boost.
    pub unboosted: Cpu,
    /// Its boosted resources.
    pub boosted: Cpu,
    /// When it got it, if that was at a restart of the container and not at the creation of the pod.
    pub restarted: Option<Timestamp>,
    /// Whether a rollout has changed its resources without the boost since.
    pub rolled_out: bool,
}

/// The entry of a container as it is written.
#[derive(Serialize, Deserialize)]
struct Entry {
    unboosted: Amounts,
    boosted: Amounts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    restarted: Option<Timestamp>,
    #[serde(default, rename = "rolledOut", skip_serializing_if = "std::ops::Not::not")]
    rolled_out: bool,
}

#[derive(Serialize, Deserialize)]
struct Amounts {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<String>,
}

impl From<Cpu> for Amounts {
    fn from(cpu: Cpu) -> Self {
        let text = |amount: Option<Quantity>| amount.map(|amount| amount.to_string());
        Self { request: text(cpu.request), limit: text(cpu.limit) }
    }
}

impl Amounts {
    fn read(&self) -> Option<Cpu> {
        let amount = |text: &Option<String>| text.as_ref().map(|text| text.parse()).transpose().ok();
        let cpu = Cpu { request: amount(&self.request)?, limit: amount(&self.limit)? };
        possible(cpu).is_ok().then_some(cpu)
    }
}

/// Our own annotation for these containers.
pub fn boosts_text<'a>(boosts: impl IntoIterator<Item = (&'a str, Boost)>) -> String {
    let entry = |boost: Boost| Entry {
        unboosted: boost.unboosted.into(),
        boosted: boost.boosted.into(),
        restarted: boost.restarted,
        rolled_out: boost.rolled_out,
    };
    let entries: BTreeMap<&str, Entry> =
        boosts.into_iter().map(|(container, boost)| (container, entry(boost))).collect();
    // Maps from text to text can always be written.
    serde_json::to_string(&entries).unwrap_or_default()
}

/// Reads our own annotation. Entries that cannot be read are left out.
pub fn read_boosts(pod: &Pod) -> BTreeMap<String, Boost> {
    let text = pod.metadata.annotations.as_ref().and_then(|all| all.get(BOOSTS));
    let entries =
        text.and_then(|text| serde_json::from_str::<BTreeMap<String, serde_json::Value>>(text).ok());
    let read = |entry: serde_json::Value| {
        let entry: Entry = serde_json::from_value(entry).ok()?;
        Some(Boost {
            unboosted: entry.unboosted.read()?,
            boosted: entry.boosted.read()?,
            restarted: entry.restarted,
            rolled_out: entry.rolled_out,
        })
    };
    let entries = entries.unwrap_or_default().into_iter();
    entries.filter_map(|(container, entry)| Some((container, read(entry)?))).collect()
}

/// The restart counts of containers up to which restarts were boosted.
pub fn boosted_restarts(pod: &Pod) -> BTreeMap<String, i32> {
    let text = pod.metadata.annotations.as_ref().and_then(|all| all.get(RESTARTS));
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// The CPU of a container once its boost ends, as far as the annotations have it: ours, as [`read_boosts`] has them, else
/// upstream's.
pub fn unboosted(pod: &Pod, container: &str, boosts: &BTreeMap<String, Boost>) -> Option<Cpu> {
    let original = || Original::read(pod, container).and_then(|original| original.cpu()).ok();
    boosts.get(container).map(|boost| boost.unboosted).or_else(original)
}

/// The CPU of a container that is boosted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveBoost {
    /// Its CPU once the boost ends.
    pub unboosted: Cpu,
    /// Its CPU with the boost, as far as its spec has that: no more than its spec has, and no more than the boost gave.
    pub boosted: Cpu,
}

/// The boosts of a pod's containers, as far as the annotations have what they get back to: our own, else upstream's.
pub fn active_boosts(pod: &Pod) -> BTreeMap<String, ActiveBoost> {
    if !is_boosted(pod) {
        return BTreeMap::new();
    }
    let (marked, boosts) = (boosted_containers(pod), read_boosts(pod));
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let active = |container: &Container| {
        let (name, has) = (&container.name, Cpu::of(container));
        let given = boosts.get(name).map_or(has, |boost| boost.boosted);
        let boosted = Cpu {
            request: has.request.min(given.request),
            limit: has.limit.map(|limit| given.limit.map_or(limit, |given| limit.min(given))),
        };
        let unboosted = unboosted(pod, name, &boosts).filter(|cpu| cpu.request.is_some())?;
        Some((name.clone(), ActiveBoost { unboosted, boosted }))
    };
    containers.filter(|container| marked.contains(&container.name)).filter_map(active).collect()
}

/// The resources that a rollout gives a boosted container, which it has once its boost ends.
#[derive(Clone, Debug, PartialEq)]
pub struct RolledOut<'a> {
    /// The name of the container.
    pub container: &'a str,
    /// Its CPU without the boost, from now on.
    pub unboosted: Cpu,
    /// The requests that the rollout changes.
    pub requests: ResourceList,
    /// The limits that the rollout changes.
    pub limits: ResourceList,
}

/// The annotations of a boosted pod once a rollout has resized it. An annotation that cannot be read stays as it is.
pub fn rolled_out_annotations(pod: &Pod, changed: &[RolledOut<'_>]) -> BTreeMap<String, String> {
    let mut annotations = BTreeMap::new();
    let mut boosts = read_boosts(pod);
    for rolled_out in changed {
        if let Ok(mut original) = Original::read(pod, rolled_out.container) {
            for (own, changed, cpu) in [
                (&mut original.requests, &rolled_out.requests, rolled_out.unboosted.request),
                (&mut original.limits, &rolled_out.limits, rolled_out.unboosted.limit),
            ] {
                own.extend(changed.clone());
                own.extend(cpu.map(|cpu| (CPU.to_owned(), cpu.into())));
            }
            annotations.insert(key(rolled_out.container), original.to_text());
        }
        if let Some(boost) = boosts.get_mut(rolled_out.container) {
            boost.rolled_out |= boost.unboosted != rolled_out.unboosted;
            boost.unboosted = rolled_out.unboosted;
        }
    }
    if !boosts.is_empty() {
        let boosts = boosts.iter().map(|(name, boost)| (name.as_str(), *boost));
        annotations.insert(BOOSTS.to_owned(), boosts_text(boosts));
    }
    annotations
}
