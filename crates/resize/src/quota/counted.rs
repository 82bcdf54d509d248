//! The usage of an object in a quota.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    Container, PersistentVolumeClaim, Pod, ResourceRequirements, Service, ServiceSpec,
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::scope::is_terminating;
use crate::accounting::{QuotaUsage, in_quota, is_refused};
use crate::aggregate::Role;
use crate::list::{BadQuantity, ResourceList};
use crate::pod::containers;
use crate::quantity::Quantity;
use crate::resource::is_huge_pages;
use crate::rules::Rules;
use crate::validate::resource_names::is_extended;

/// Something that a quota may count.
#[derive(Clone, Copy, Debug)]
pub struct Counted<'a> {
    /// Its API group; empty for the core.
    pub group: &'a str,
    /// Its kind, in the plural.
    pub plural: &'a str,
    /// The thing itself.
    pub item: Item<'a>,
    /// The current time: a pod that outlived its grace period no longer counts.
    pub now: Timestamp,
    /// The rules of resizes that apply.
    pub rules: &'a Rules,
}

/// An object, as far as quotas count it.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// A pod: the requests and limits of its containers.
    Pod(&'a Pod),
    /// A `PersistentVolumeClaim`: its storage request, by storage class.
    Claim(&'a PersistentVolumeClaim),
    /// A Service: its type and its node ports.
    Service(&'a Service),
    /// Another object, which only counts as one.
    Other,
}

/// The resources of pods by name; huge pages and extended resources come in addition.
const POD: [&str; 10] = [
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "pods",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
/// The resources that every container must specify if the quota counts them.
const SPECIFIED: [&str; 6] =
    ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];
/// The separator between a storage class and a resource.
const OF_CLASS: &str = ".storageclass.storage.k8s.io/";

impl Counted<'_> {
    /// `count/deployments.apps`.
    fn count_name(&self) -> String {
        match self.group {
            "" => format!("count/{}", self.plural),
            group => format!("count/{}.{group}", self.plural),
        }
    }

    /// The short name that some kinds are counted by.
    fn short_name(&self) -> Option<&str> {
        let short = ["configmaps", "resourcequotas", "replicationcontrollers", "secrets", "services"];
        Some(self.plural).filter(|plural| self.group.is_empty() && short.contains(plural))
    }

    /// Whether a quota that limits this resource counts things of this kind.
    pub fn counts_for(&self, resource: &str) -> bool {
        let is_count = resource.strip_prefix("count/").is_some_and(|rest| match rest.split_once('.') {
            None => self.group.is_empty() && rest == self.plural,
            Some((plural, group)) => plural == self.plural && group == self.group,
        });
        is_count
            || self.short_name() == Some(resource)
            || match self.item {
                Item::Pod(_) => {
                    let request = resource.strip_prefix("requests.");
                    POD.contains(&resource)
                        || is_huge_pages(resource)
                        || request.is_some_and(|name| is_huge_pages(name) || name.contains('/'))
                }
                Item::Claim(_) => {
                    let name = resource.rsplit_once(OF_CLASS).map_or(resource, |(_, name)| name);
                    matches!(name, "persistentvolumeclaims" | "requests.storage")
                }
                Item::Service(_) => matches!(resource, "services.nodeports" | "services.loadbalancers"),
                Item::Other => false,
            }
    }

    /// Whether an update can change what something counts for. Most things count as long as they are there.
    pub fn is_recounted(&self, old: &Self) -> bool {
        match (self.item, old.item) {
            (Item::Pod(new), Item::Pod(old)) => {
                is_terminating(new) != is_terminating(old)
                    || resources(new).ne(resources(old))
                    || self.is_reconsidered(&Self { item: Item::Pod(old), ..*self })
            }
            (Item::Claim(_) | Item::Service(_), _) => true,
            _ => false,
        }
    }

    /// Whether it is a pod whose desired resources count again: its node had found them infeasible, and reconsiders that.
    pub fn is_reconsidered(&self, old: &Self) -> bool {
        match (self.item, old.item) {
            (Item::Pod(new), Item::Pod(old)) => is_refused(old) && !is_refused(new),
            _ => false,
        }
    }

    /// The usage.
    pub fn usage(&self) -> Result<ResourceList, BadQuantity> {
        let mut usage = ResourceList::default();
        let one = Quantity::from_units(1);
        usage.set(&self.count_name(), one);
        if let Some(short) = self.short_name() {
            usage.set(short, one);
        }
        match self.item {
            Item::Pod(pod)
                if !outlived_grace(pod, self.now) && !crate::pod::has_ended(pod.status.as_ref()) =>
            {
                usage.add(&compute(&in_quota(pod, self.rules)?));
            }
            Item::Claim(claim) => usage.add(&storage(claim)?),
            Item::Service(service) => usage.add(&ports(service)),
            Item::Pod(_) | Item::Other => {}
        }
        Ok(usage)
    }

    /// The resources that it must specify and does not: `requests.cpu for: web,log; …`.
    pub(super) fn unspecified(&self, counted: &ResourceList) -> Result<String, BadQuantity> {
        let Item::Pod(pod) = self.item else { return Ok(String::new()) };
        let Some(spec) = &pod.spec else { return Ok(String::new()) };
        let declares = |resources: &ResourceRequirements| {
            [&resources.requests, &resources.limits].into_iter().flatten().any(|list| !list.is_empty())
        };
        if spec.resources.as_ref().is_some_and(declares) {
            return Ok(String::new());
        }
        let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (_, container) in containers(spec) {
            let said = compute(&declared(container)?);
            let unsaid =
                counted.iter().filter(|(name, _)| SPECIFIED.contains(name) && said.get(name).is_none());
            for (name, _) in unsaid {
                missing.entry(name).or_default().insert(&container.name);
            }
        }
        let each = missing.into_iter().map(|(name, containers)| {
            format!("{name} for: {}", containers.into_iter().collect::<Vec<_>>().join(","))
        });
        Ok(each.collect::<Vec<_>>().join("; "))
    }
}

fn resources(pod: &Pod) -> impl Iterator<Item = (Role, &str, Option<&ResourceRequirements>)> {
    let each = pod.spec.iter().flat_map(containers);
    let each = each.map(|(role, container)| (role, container.name.as_str(), container.resources.as_ref()));
    each.chain([(Role::Main, "", pod.spec.as_ref().and_then(|spec| spec.resources.as_ref()))])
}

fn outlived_grace(pod: &Pod, now: Timestamp) -> bool {
    let (Some(at), Some(grace)) =
        (&pod.metadata.deletion_timestamp, pod.metadata.deletion_grace_period_seconds)
    else {
        return false;
    };
    at.0.checked_add(SignedDuration::from_secs(grace)).is_ok_and(|end| now > end)
}

fn declared(container: &Container) -> Result<QuotaUsage, BadQuantity> {
    let resources = container.resources.as_ref();
    Ok(QuotaUsage {
        requests: ResourceList::read(resources.and_then(|resources| resources.requests.as_ref()))?,
        limits: ResourceList::read(resources.and_then(|resources| resources.limits.as_ref()))?,
    })
}

/// Requests and limits under the names that quotas know them by.
fn compute(of: &QuotaUsage) -> ResourceList {
    let mut usage = ResourceList::default();
    usage.set("pods", Quantity::from_units(1));
    for (name, amount) in of.requests.iter() {
        let counted = matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_huge_pages(name);
        if counted {
            usage.set(name, amount);
        }
        if counted || is_extended(name) {
            usage.set(&format!("requests.{name}"), amount);
        }
    }
    for (name, amount) in
        of.limits.iter().filter(|(name, _)| matches!(*name, "cpu" | "memory" | "ephemeral-storage"))
    {
        usage.set(&format!("limits.{name}"), amount);
    }
    usage
}

/// The storage that a claim wants or has, in whole bytes, of its class and of all.
fn storage(claim: &PersistentVolumeClaim) -> Result<ResourceList, BadQuantity> {
    let class = claim
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get("volume.beta.kubernetes.io/storage-class"))
        .or_else(|| claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref()))
        .filter(|class| !class.is_empty());
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let wanted = ResourceList::read(requests.and_then(|resources| resources.requests.as_ref()))?;
    let allocated = claim.status.as_ref().and_then(|status| status.allocated_resources.as_ref());
    let allocated = ResourceList::read(allocated)?;
    let amount = wanted.get("storage").map(|wanted| {
        let amount = allocated.get("storage").map_or(wanted, |allocated| allocated.max(wanted));
        // Whole bytes, rounded up.
        amount.units().map_or(amount, |units| Quantity::from_units(units).with_format(amount.format()))
    });
    let mut usage = ResourceList::default();
    let mut count = |name: &str, amount: Quantity| {
        usage.set(name, amount);
        if let Some(class) = class {
            usage.set(&format!("{class}{OF_CLASS}{name}"), amount);
        }
    };
    count("persistentvolumeclaims", Quantity::from_units(1));
    if let Some(amount) = amount {
        count("requests.storage", amount);
    }
    Ok(usage)
}

/// The ports that a service takes on every node, and whether it wants a load balancer.
fn ports(service: &Service) -> ResourceList {
    let none = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&none);
    let ports = spec.ports.as_deref().unwrap_or_default();
    let balanced = spec.type_.as_deref() == Some("LoadBalancer");
    let taken = match spec.type_.as_deref() {
        Some("LoadBalancer") if spec.allocate_load_balancer_node_ports == Some(false) => {
            ports.iter().filter(|port| port.node_port.is_some_and(|port| port != 0)).count()
        }
        Some("NodePort" | "LoadBalancer") => ports.len(),
        _ => 0,
    };
    let mut usage = ResourceList::default();
    usage.set("services.nodeports", Quantity::from_units(i64::try_from(taken).unwrap_or(i64::MAX)));
    usage.set("services.loadbalancers", Quantity::from_units(i64::from(balanced)));
    usage
}
