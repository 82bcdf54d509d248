//! The index of what Services and their slices of endpoints say, fed by watches. It is synchronous, and computes again what has
//! changed alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use plumb_controller_runtime::{ObjectRef, WatchEvent};

use super::decide::PortRules;
use super::endpoint::{Node, Slice, choose, endpoints_of, ready_on_node};
use super::name::{ServiceName, ServicePortName};
use super::programmer::RulesConfig;
use super::service::{self, ServicePorts};

/// The label of an EndpointSlice with the name of its Service.
const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// The label of a node with its zone.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// When the pods of a slice last changed, in an annotation by the controller.
const TRIGGER_TIME_ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// The rules of Services whose rules may have changed: all ports that each has.
pub(crate) type ServiceChanges = BTreeMap<ServiceName, BTreeMap<ServicePortName, PortRules>>;

/// An event of a watch.
#[derive(Clone, Debug)]
pub enum Event {
    /// Of Services.
    Service(WatchEvent<v1::Service>),
    /// Of their endpoints.
    Slice(WatchEvent<EndpointSlice>),
    /// Of the node.
    Node(WatchEvent<v1::Node>),
}

/// A health check of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HealthCheck {
    pub(crate) port: u16,
    /// How many endpoints on this node are ready.
    pub(crate) ready: usize,
}

/// Services and endpoints as a node observes them.
#[derive(Debug)]
pub(crate) struct State {
    node: Node,
    /// Addresses within the cluster at which this machine itself listens.
    local: BTreeSet<SocketAddrV4>,
    services: BTreeMap<ServiceName, ServicePorts>,
    slices: BTreeMap<ServiceName, BTreeMap<Arc<str>, Slice>>,
    /// The Service of each slice, by the namespace and name of the slice.
    owners: BTreeMap<ObjectRef, ServiceName>,
    health_checks: BTreeMap<ServiceName, HealthCheck>,
    changed: BTreeSet<ServiceName>,
    /// When the pods behind what changed were changed.
    triggers: BTreeMap<ServiceName, Timestamp>,
    synced: Synced,
}

#[derive(Debug, Default)]
struct Synced {
    services: bool,
    slices: bool,
    node: bool,
}

impl State {
    pub(crate) fn new(config: &RulesConfig) -> Self {
        Self {
            node: Node { name: config.node.as_str().into(), ..Node::default() },
            local: config.local.clone(),
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            owners: BTreeMap::new(),
            health_checks: BTreeMap::new(),
            changed: BTreeSet::new(),
            triggers: BTreeMap::new(),
            synced: Synced::default(),
        }
    }

    /// Whether the state is whole: every kind was listed.
    pub(crate) fn is_synced(&self) -> bool {
        self.synced.services && self.synced.slices && self.synced.node
    }

    /// Observes an event of any kind.
    pub(crate) fn observe(&mut self, event: Event) {
        match event {
            Event::Service(event) => self.observe_service(event),
            Event::Slice(event) => self.observe_slice(event),
            Event::Node(event) => self.observe_node(event),
        }
    }

    fn observe_service(&mut self, event: WatchEvent<v1::Service>) {
        match event {
            WatchEvent::Restarted(services) => {
                self.synced.services = true;
                let listed: BTreeSet<ServiceName> = services.iter().map(name_of).collect();
                let gone: Vec<ServiceName> =
                    self.services.keys().filter(|name| !listed.contains(name)).cloned().collect();
                for name in gone {
                    self.services.remove(&name);
                    self.changed.insert(name);
                }
                for service in services {
                    self.set_service(&service);
                }
            }
            WatchEvent::Applied(service) => self.set_service(&service),
            WatchEvent::Deleted(service) => {
                let name = ServiceName::new(&service.namespace, &service.name);
                if self.services.remove(&name).is_some() {
                    self.changed.insert(name);
                }
            }
        }
    }

    fn set_service(&mut self, service: &v1::Service) {
        let name = name_of(service);
        let ports = service::parse(&name, service);
        if self.services.get(&name) != Some(&ports) {
            self.services.insert(name.clone(), ports);
            self.changed.insert(name);
        }
    }

    fn observe_slice(&mut self, event: WatchEvent<EndpointSlice>) {
        match event {
            WatchEvent::Restarted(slices) => {
                self.synced.slices = true;
                let listed: BTreeSet<ObjectRef> = slices.iter().map(ObjectRef::of).collect();
                let gone: Vec<ObjectRef> =
                    self.owners.keys().filter(|slice| !listed.contains(slice)).cloned().collect();
                for slice in &gone {
                    self.remove_slice(slice);
                }
                for slice in &slices {
                    self.set_slice(slice);
                }
            }
            WatchEvent::Applied(slice) => self.set_slice(&slice),
            WatchEvent::Deleted(slice) => self.remove_slice(&slice),
        }
    }

    fn set_slice(&mut self, slice: &EndpointSlice) {
        let reference = ObjectRef::of(slice);
        let labels = slice.labels();
        let owner = labels.get(SERVICE_NAME_LABEL).filter(|_| {
            !labels.contains_key(service::PROXY_NAME_LABEL) && !labels.contains_key(service::HEADLESS_LABEL)
        });
        let Some(owner) = owner.map(|owner| ServiceName::new(&reference.namespace, owner)) else {
            self.remove_slice(&reference);
            return;
        };
        if self.owners.get(&reference).is_some_and(|known| *known != owner) {
            self.remove_slice(&reference);
        }
        let parsed = Slice::parse(slice);
        let slices = self.slices.entry(owner.clone()).or_default();
        let key: Arc<str> = reference.name.as_str().into();
        if slices.get(&key) == Some(&parsed) {
            return;
        }
        slices.insert(key, parsed);
        if let Some(trigger) = slice.annotations().get(TRIGGER_TIME_ANNOTATION)
            && let Ok(trigger) = trigger.parse::<Timestamp>()
        {
            let earliest = self.triggers.entry(owner.clone()).or_insert(trigger);
            *earliest = trigger.min(*earliest);
        }
        self.owners.insert(reference, owner.clone());
        self.changed.insert(owner);
    }

    fn remove_slice(&mut self, slice: &ObjectRef) {
        let Some(owner) = self.owners.remove(slice) else { return };
        if let Some(slices) = self.slices.get_mut(&owner) {
            slices.remove(slice.name.as_str());
            if slices.is_empty() {
                self.slices.remove(&owner);
            }
        }
        self.changed.insert(owner);
    }

    fn observe_node(&mut self, event: WatchEvent<v1::Node>) {
        let restarted = matches!(event, WatchEvent::Restarted(_));
        self.synced.node |= restarted;
        // A node that was deleted is registered again by its agent; until then what was known of it is not worse.
        let Some(node) = event.into_objects().into_iter().find(|node| node.name_any() == *self.node.name)
        else {
            return;
        };
        let zone = node.labels().get(ZONE_LABEL).map(|zone| Arc::from(zone.as_str()));
        let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        let addresses = addresses.filter(|address| address.type_ == "InternalIP");
        let addresses = addresses.filter_map(|address| address.address.parse().ok()).collect();
        let observed = Node { name: self.node.name.clone(), zone, addresses };
        if observed != self.node {
            self.node = observed;
            self.changed.extend(self.services.keys().cloned());
        }
    }

    /// What has changed since the last call, and when the pods behind it were changed.
    pub(crate) fn take_changes(&mut self) -> (ServiceChanges, Vec<Timestamp>) {
        let changed = std::mem::take(&mut self.changed);
        let triggers = std::mem::take(&mut self.triggers).into_values().collect();
        let rules = changed.into_iter().map(|name| {
            let rules = self.rules_of(&name);
            self.update_health_check(&name);
            (name, rules)
        });
        (rules.collect(), triggers)
    }

    fn rules_of(&self, service: &ServiceName) -> BTreeMap<ServicePortName, PortRules> {
        let Some(ports) = self.services.get(service) else { return BTreeMap::new() };
        let slices = || self.slices.get(service).into_iter().flat_map(BTreeMap::values);
        let rules = ports.ports.iter().map(|(name, port)| {
            let endpoints = endpoints_of(name, slices(), &self.node);
            let chosen = choose(port, &endpoints, &self.node);
            (name.clone(), PortRules::decide(name, port, chosen, &self.node, &self.local))
        });
        rules.collect()
    }

    fn update_health_check(&mut self, service: &ServiceName) {
        match self.services.get(service).and_then(|ports| ports.health_check_port) {
            Some(port) => {
                let slices = self.slices.get(service).into_iter().flat_map(BTreeMap::values);
                let ready = ready_on_node(slices, &self.node);
                self.health_checks.insert(service.clone(), HealthCheck { port, ready });
            }
            None => {
                self.health_checks.remove(service);
            }
        }
    }

    /// The health checks of Services, as of the last [`State::take_changes`].
    pub(crate) fn health_checks(&self) -> &BTreeMap<ServiceName, HealthCheck> {
        &self.health_checks
    }
}

fn name_of(service: &v1::Service) -> ServiceName {
    ServiceName::new(service.metadata.namespace.as_deref().unwrap_or_default(), &service.name_any())
}

#[cfg(test)]
mod tests;
