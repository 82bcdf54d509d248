//! What is known of nodes and of the pods on them: sums that follow every change, so that no decision adds up pods.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use plumb_placement::{HostPort, Labels, Toleration};
use plumb_resize::list::{BadQuantity, ResourceList};

use crate::claims::Claims;
use crate::load::{Load, PODS};
use crate::room::{Free, NOWHERE, Room};
use crate::shape::Class;
use crate::tally::{Question, Tallies};

/// A pod by its uid.
pub(crate) type Uid = Arc<str>;

/// A pod on a node, or promised to one.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    pub(crate) uid: Uid,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) class: Arc<Class>,
    /// What it counts for now, whatever becomes of its resize.
    pub(crate) load: Load,
    /// The same for comparing nodes.
    pub(crate) scored: Load,
    pub(crate) started: Option<Timestamp>,
    /// It is to end.
    pub(crate) terminating: bool,
    /// It is to end because a scheduler said so.
    pub(crate) preempted: bool,
    /// It waits for room to grow into.
    pub(crate) deferred: bool,
}

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeInfo {
    pub(crate) labels: Labels,
    pub(crate) taints: Vec<Taint>,
    pub(crate) unschedulable: bool,
    pub(crate) allocatable: Load,
    pub(crate) max_pods: i64,
}

impl NodeInfo {
    /// Reads a node.
    pub(crate) fn read(node: &Node) -> Result<Self, BadQuantity> {
        let spec = node.spec.as_ref();
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let allocatable = ResourceList::read(allocatable)?;
        Ok(Self {
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: spec.and_then(|spec| spec.taints.clone()).unwrap_or_default(),
            unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
            max_pods: allocatable.get(PODS).map_or(0, plumb_resize::Quantity::saturating_units),
            allocatable: Load::read(&allocatable),
        })
    }

    /// The first taint that keeps new pods away and is not borne.
    pub(crate) fn repelling(&self, bearing: &[Toleration]) -> Option<&Taint> {
        let repel = self.taints.iter().filter(|taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute"));
        repel.into_iter().find(|taint| !bearing.iter().any(|one| one.tolerates(taint)))
    }
}

/// A node with what is on it. One that only its pods know of has no info.
#[derive(Clone, Debug, Default)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) info: Option<NodeInfo>,
    pub(crate) pods: BTreeMap<Uid, Arc<Guest>>,
    pub(crate) requested: Load,
    pub(crate) scored: Load,
    pub(crate) ports: Vec<HostPort>,
    /// Pods that wait for others to leave this node.
    pub(crate) nominated: BTreeMap<Uid, Arc<Class>>,
}

impl Host {
    fn free(&self) -> Free {
        let Some(info) = &self.info else { return NOWHERE };
        let pods = i64::try_from(self.pods.len()).unwrap_or(i64::MAX);
        [
            info.allocatable.cpu.saturating_sub(self.requested.cpu),
            info.allocatable.memory.saturating_sub(self.requested.memory),
            info.allocatable.ephemeral.saturating_sub(self.requested.ephemeral),
            info.max_pods.saturating_sub(pods),
        ]
    }
}

/// What has become better for pods that wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct News {
    /// Nodes that have more room than before, or other labels or taints.
    pub(crate) nodes: BTreeSet<usize>,
    /// Pods came or went that others may want near, or far, or spread.
    pub(crate) neighbours: bool,
}

/// Nodes, and the pods on them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    hosts: Vec<Host>,
    /// Places of hosts that are gone.
    vacant: Vec<usize>,
    by_name: HashMap<String, usize>,
    by_pod: HashMap<Uid, usize>,
    known_nodes: usize,
    room: Room,
    tallies: Tallies,
    pub(crate) claims: Claims,
    pub(crate) namespaces: HashMap<String, Labels>,
    pub(crate) news: News,
}

impl Cluster {
    /// A node has appeared, or says something new of itself.
    pub(crate) fn put_node(&mut self, name: &str, info: NodeInfo) {
        let slot = self.slot(name);
        if self.hosts[slot].info.as_ref() == Some(&info) {
            return;
        }
        self.set_info(slot, Some(info));
        self.news.nodes.insert(slot);
        self.news.neighbours = true;
    }

    /// A node is gone. Pods on it count until they are gone too.
    pub(crate) fn drop_node(&mut self, name: &str) {
        let Some(slot) = self.by_name.get(name).copied() else { return };
        self.set_info(slot, None);
        self.news.neighbours = true;
        self.vacate(slot);
    }

    /// The names of the nodes that are known.
    pub(crate) fn node_names(&self) -> impl Iterator<Item = &str> {
        self.hosts().map(|(_, host, _)| host.name.as_str())
    }

    fn set_info(&mut self, slot: usize, info: Option<NodeInfo>) {
        let Host { name, info: held, pods, .. } = &mut self.hosts[slot];
        if let Some(old) = held.take() {
            for pod in pods.values() {
                self.tallies.pod(name, &old, pod, -1);
                self.claims.pod(&old, pod, -1);
            }
            self.tallies.node(name, &old, -1);
            self.known_nodes -= 1;
        }
        if let Some(new) = info {
            self.tallies.node(name, &new, 1);
            for pod in pods.values() {
                self.tallies.pod(name, &new, pod, 1);
                self.claims.pod(&new, pod, 1);
            }
            *held = Some(new);
            self.known_nodes += 1;
        }
        self.room.set(slot, self.hosts[slot].free());
    }

    /// The place of a node, which is made if it is new.
    fn slot(&mut self, name: &str) -> usize {
        if let Some(slot) = self.by_name.get(name) {
            return *slot;
        }
        let host = Host { name: name.to_owned(), ..Host::default() };
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.hosts.push(Host::default());
            self.hosts.len() - 1
        });
        self.hosts[slot] = host;
        self.by_name.insert(name.to_owned(), slot);
        self.room.set(slot, NOWHERE);
        slot
    }

    /// Frees the place of a node that nobody knows any more.
    fn vacate(&mut self, slot: usize) {
        let host = &self.hosts[slot];
        if host.info.is_none() && host.pods.is_empty() && host.nominated.is_empty() {
            self.by_name.remove(&host.name);
            self.hosts[slot] = Host::default();
            self.vacant.push(slot);
        }
    }

    /// A pod is on a node, or changed there, or moved there from another.
    pub(crate) fn place(&mut self, node: &str, guest: Guest) {
        let slot = self.slot(node);
        let uid = guest.uid.clone();
        let before = self.by_pod.get(&uid).copied();
        if before == Some(slot)
            && let Some(old) = self.hosts[slot].pods.get(&uid).cloned()
        {
            let minded = Arc::ptr_eq(&old.class, &guest.class) && old.terminating == guest.terminating;
            if minded && old.load == guest.load && old.scored == guest.scored {
                // Nothing that is counted is new: only what is remembered of it.
                self.hosts[slot].pods.insert(uid, Arc::new(guest));
                return;
            }
            let news = std::mem::take(&mut self.news);
            self.lift(slot, &uid);
            self.news = news;
            if guest.load.is_smaller_somewhere(&old.load) {
                self.news.nodes.insert(slot);
            }
            self.news.neighbours |= !minded;
            self.seat(slot, Arc::new(guest));
            return;
        }
        if let Some(before) = before {
            self.lift(before, &uid);
        }
        self.seat(slot, Arc::new(guest));
        self.news.neighbours = true;
    }

    /// A pod is gone.
    pub(crate) fn remove(&mut self, uid: &str) -> Option<Arc<Guest>> {
        let slot = *self.by_pod.get(uid)?;
        let guest = self.lift(slot, uid);
        self.vacate(slot);
        guest
    }

    /// Puts a pod on a node.
    pub(crate) fn seat(&mut self, slot: usize, guest: Arc<Guest>) {
        let host = &mut self.hosts[slot];
        host.requested.add(&guest.load);
        host.scored.add(&guest.scored);
        host.ports.extend(guest.class.ports.iter().cloned());
        if let Some(info) = &host.info {
            self.tallies.pod(&host.name, info, &guest, 1);
            self.claims.pod(info, &guest, 1);
        }
        self.by_pod.insert(guest.uid.clone(), slot);
        host.pods.insert(guest.uid.clone(), guest);
        self.room.set(slot, host.free());
    }

    /// Takes a pod off its node.
    pub(crate) fn lift(&mut self, slot: usize, uid: &str) -> Option<Arc<Guest>> {
        let host = &mut self.hosts[slot];
        let guest = host.pods.remove(uid)?;
        host.requested.subtract(&guest.load);
        host.scored.subtract(&guest.scored);
        for port in &guest.class.ports {
            if let Some(at) = host.ports.iter().position(|held| held == port) {
                host.ports.swap_remove(at);
            }
        }
        if let Some(info) = &host.info {
            self.tallies.pod(&host.name, info, &guest, -1);
            self.claims.pod(info, &guest, -1);
        }
        self.by_pod.remove(uid);
        self.room.set(slot, host.free());
        self.news.nodes.insert(slot);
        self.news.neighbours = true;
        Some(guest)
    }

    /// Notes that a pod waits for others to leave a node, or that it no longer does.
    pub(crate) fn nominate(
        &mut self,
        uid: &Uid,
        class: &Arc<Class>,
        node: Option<&str>,
        before: Option<&str>,
    ) {
        if let Some(slot) = before.and_then(|before| self.by_name.get(before)).copied()
            && self.hosts[slot].nominated.remove(uid).is_some()
        {
            self.news.nodes.insert(slot);
            self.vacate(slot);
        }
        if let Some(slot) = node.and_then(|node| self.by_name.get(node)).copied() {
            self.hosts[slot].nominated.insert(uid.clone(), class.clone());
        }
    }

    /// A pod, and the place of its node.
    pub(crate) fn find(&self, uid: &str) -> Option<(usize, &Arc<Guest>)> {
        let slot = *self.by_pod.get(uid)?;
        Some((slot, self.hosts[slot].pods.get(uid)?))
    }

    /// A node by its place.
    pub(crate) fn host(&self, slot: usize) -> &Host {
        &self.hosts[slot]
    }

    /// The place of a node that is known.
    pub(crate) fn node(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied().filter(|slot| self.hosts[*slot].info.is_some())
    }

    /// The nodes that are known.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = (usize, &Host, &NodeInfo)> {
        let all = self.hosts.iter().enumerate();
        all.filter_map(|(slot, host)| Some((slot, host, host.info.as_ref()?)))
    }

    /// How many nodes are known.
    pub(crate) fn len(&self) -> usize {
        self.known_nodes
    }

    /// How many pods are on nodes.
    pub(crate) fn pods(&self) -> usize {
        self.by_pod.len()
    }

    /// How many places there are for nodes, taken or not.
    pub(crate) fn places(&self) -> usize {
        self.hosts.len()
    }

    /// The first node from a place on that has this much free.
    pub(crate) fn with_room(&self, from: usize, needed: &Free) -> Option<usize> {
        self.room.next(from, needed)
    }

    /// Whether a node that is known has this much free.
    pub(crate) fn has_room(&self, slot: usize, needed: &Free) -> bool {
        self.room.next(slot, needed) == Some(slot)
    }

    /// The labels of a namespace.
    pub(crate) fn labels_of(&self, namespace: &str) -> &Labels {
        static NONE: Labels = Labels::new();
        self.namespaces.get(namespace).unwrap_or(&NONE)
    }

    /// Makes sure that a question has an answer.
    pub(crate) fn prepare(&mut self, question: &Question) {
        let nodes = self.hosts.iter().filter_map(|host| {
            Some((host.name.as_str(), host.info.as_ref()?, host.pods.values().map(AsRef::as_ref)))
        });
        self.tallies.prepare(question, nodes);
    }

    /// The answers to questions that were prepared.
    pub(crate) fn tallies(&self) -> &Tallies {
        &self.tallies
    }
}
