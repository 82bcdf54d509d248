//! What is known of pods, namespaces and policies, and the table that follows from it.
//!
//! Every change touches only what depends on it: a pod changes the sets of the peers that select it, which an index finds by
//! its labels, and its own chains; a policy changes the chains of the pods of this node that it selects. The sets of peers and
//! of named ports are kept while a chain reads them: a node has those of the policies of its own pods.

mod members;
mod pod;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use plumb_controller_runtime::ObjectRef;

use super::local::{PodKey, StartedPod};
use super::policy::Policy;
use super::selector::{Labels, SelectorIndex};
use super::table::{Allow, Chain, ChainName, Direction, Element, SELF, SetContent, SetKey, Table, Touched};
use members::{Members, NamedMembers, PeerMembers};
use pod::{ApiPod, Facts};

/// Something that the agent itself serves in place of pods: policies select it as they would select those.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedPeer {
    /// The namespace of the pods.
    pub namespace: String,
    /// Their name.
    pub name: String,
    /// Their labels.
    pub labels: BTreeMap<String, String>,
    /// The address that is served.
    pub address: Ipv4Addr,
    /// Named ports: name, number of the protocol, port.
    pub ports: Vec<(String, u8, u16)>,
}

/// The state of a node's policies.
#[derive(Debug)]
pub struct State {
    /// The name of the node.
    node: String,
    /// The network of the node's pods: no pod of another node has an address in it.
    network: (Ipv4Addr, u8),
    namespaces: BTreeMap<String, Labels>,
    pods: BTreeMap<PodKey, Entry>,
    /// The pods of this node that have an address, by namespace.
    local: BTreeMap<String, BTreeSet<PodKey>>,
    /// Which of them has an address.
    owners: BTreeMap<Ipv4Addr, PodKey>,
    policies: BTreeMap<ObjectRef, Arc<Policy>>,
    /// The names of policies by the labels that they select, in each namespace.
    selecting: BTreeMap<String, SelectorIndex<String>>,
    /// How many pods have each chain.
    users: BTreeMap<ChainName, usize>,
    peers: Members<PeerMembers>,
    named: Members<NamedMembers>,
    /// How many chains read each set.
    readers: BTreeMap<SetKey, usize>,
    table: Table,
    touched: Touched,
}

/// A pod: as the API has it, as the runtime has it, or both.
#[derive(Debug, Default)]
struct Entry {
    api: Option<ApiPod>,
    started: Option<StartedPod>,
    facts: Option<Arc<Facts>>,
}

impl State {
    /// The state of a node that has nothing yet, with the network of its pods.
    pub fn new(node: &str, network: (Ipv4Addr, u8), served: impl IntoIterator<Item = ServedPeer>) -> Self {
        let set = SetContent { key: SetKey::Selves, elements: BTreeSet::new() };
        let mut state = Self {
            node: node.to_owned(),
            network,
            namespaces: BTreeMap::new(),
            pods: BTreeMap::new(),
            local: BTreeMap::new(),
            owners: BTreeMap::new(),
            policies: BTreeMap::new(),
            selecting: BTreeMap::new(),
            users: BTreeMap::new(),
            peers: Members::default(),
            named: Members::default(),
            readers: BTreeMap::new(),
            table: Table { sets: [(SELF.to_owned(), set)].into(), ..Table::default() },
            touched: Touched { sets: [SELF.to_owned()].into(), ..Touched::default() },
        };
        for peer in served {
            let key = PodKey { namespace: peer.namespace, name: peer.name, uid: String::new() };
            let facts = Facts { addresses: vec![peer.address], labels: peer.labels, ports: peer.ports };
            state.pods.insert(key, Entry { facts: Some(Arc::new(facts)), ..Entry::default() });
        }
        state
    }

    /// The content that the kernel should have.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// What may have changed since the last call.
    pub fn take_touched(&mut self) -> Touched {
        std::mem::take(&mut self.touched)
    }

    /// Whether policies say what this pod of the node may do.
    pub fn is_selected(&self, key: &PodKey) -> bool {
        let pod = self.pods.get(key).and_then(|pod| pod.started.as_ref());
        pod.is_some_and(|pod| {
            Direction::ALL.iter().any(|direction| self.table.pods.contains_key(&(*direction, pod.address)))
        })
    }

    /// All pods of the cluster, as a list has them.
    pub fn replace_pods(&mut self, pods: Vec<Pod>) {
        let listed: BTreeSet<_> = pods.iter().map(pod::key).collect();
        let gone: Vec<_> = self
            .pods
            .iter()
            .filter(|(key, pod)| pod.api.is_some() && !listed.contains(*key))
            .map(|(key, _)| key.clone())
            .collect();
        for key in gone {
            self.change_pod(&key, |pod| pod.api = None);
        }
        for pod in pods {
            self.apply_pod(&pod);
        }
    }

    /// A pod that was created or changed.
    pub fn apply_pod(&mut self, pod: &Pod) {
        let key = pod::key(pod);
        // Another one of the name was deleted and created again while nothing was watched.
        self.delete_api_pods(&key.namespace, &key.name, Some(&key));
        let read = ApiPod::read(pod);
        self.change_pod(&key, |pod| pod.api = Some(read));
    }

    /// A pod that was deleted.
    pub fn delete_pod(&mut self, pod: &ObjectRef) {
        self.delete_api_pods(&pod.namespace, &pod.name, None);
    }

    fn delete_api_pods(&mut self, namespace: &str, name: &str, but: Option<&PodKey>) {
        let from = PodKey { namespace: namespace.to_owned(), name: name.to_owned(), uid: String::new() };
        let gone: Vec<_> = self
            .pods
            .range(from..)
            .take_while(|(key, _)| key.namespace == namespace && key.name == name)
            .filter(|(key, pod)| pod.api.is_some() && but != Some(key))
            .map(|(key, _)| key.clone())
            .collect();
        for key in gone {
            self.change_pod(&key, |pod| pod.api = None);
        }
    }

    /// A pod of this node that the runtime has given an address, or that has it no more.
    pub fn set_started(&mut self, key: &PodKey, started: Option<StartedPod>) {
        self.change_pod(key, |pod| pod.started = started);
    }

    /// Changes a pod, and all that depends on it.
    fn change_pod(&mut self, key: &PodKey, change: impl FnOnce(&mut Entry)) {
        let entry = self.pods.entry(key.clone()).or_default();
        let before = entry.facts.clone();
        let address_before = entry.started.as_ref().map(|pod| pod.address);
        change(entry);
        let after = Facts::of(entry.api.as_ref(), entry.started.as_ref(), &self.node, self.network);
        let after = after.map(Arc::new);
        let address = entry.started.as_ref().map(|pod| pod.address);
        entry.facts.clone_from(&after);
        if entry.api.is_none() && entry.started.is_none() {
            self.pods.remove(key);
        }
        if before != after {
            let labels = self.namespaces.get(&key.namespace);
            let namespace = (key.namespace.as_str(), labels);
            for (set, element, is_member) in self
                .peers
                .update(namespace, before.as_deref(), after.as_deref())
                .into_iter()
                .chain(self.named.update(before.as_deref(), after.as_deref()))
            {
                set_element(&mut self.table, &mut self.touched, &set, element, is_member);
            }
        }
        if address_before != address {
            if let Some(address) = address_before.filter(|address| self.owners.get(address) == Some(key)) {
                self.owners.remove(&address);
                self.set_chains(address, [None, None]);
            }
            let local = self.local.entry(key.namespace.clone()).or_default();
            if let Some(address) = address {
                local.insert(key.clone());
                self.owners.insert(address, key.clone());
            } else {
                local.remove(key);
                if local.is_empty() {
                    self.local.remove(&key.namespace);
                }
            }
        }
        if address_before != address || before != after {
            self.select(key);
        }
    }

    /// All namespaces, as a list has them.
    pub fn replace_namespaces(&mut self, namespaces: Vec<Namespace>) {
        let listed: BTreeSet<_> =
            namespaces.iter().filter_map(|namespace| namespace.metadata.name.as_deref()).collect();
        let gone: Vec<_> =
            self.namespaces.keys().filter(|name| !listed.contains(name.as_str())).cloned().collect();
        for name in gone {
            self.delete_namespace(&name);
        }
        for namespace in &namespaces {
            self.apply_namespace(namespace);
        }
    }

    /// A namespace that was created or changed.
    pub fn apply_namespace(&mut self, namespace: &Namespace) {
        let Some(name) = &namespace.metadata.name else { return };
        self.set_namespace(name, Some(namespace.metadata.labels.clone().unwrap_or_default()));
    }

    /// A namespace that was deleted.
    pub fn delete_namespace(&mut self, name: &str) {
        self.set_namespace(name, None);
    }

    fn set_namespace(&mut self, name: &str, labels: Option<Labels>) {
        let before = self.namespaces.get(name).cloned();
        if before == labels {
            return;
        }
        match labels.clone() {
            Some(labels) => self.namespaces.insert(name.to_owned(), labels),
            None => self.namespaces.remove(name),
        };
        let changed = self.peers.namespace_changed(before.as_ref(), labels.as_ref());
        if changed.is_empty() {
            return;
        }
        let pods: Vec<_> = pods_of(&self.pods, name).map(|(_, facts)| facts.clone()).collect();
        for (key, is_selected) in changed {
            for facts in pods.iter().filter(|facts| key.pods().matches(&facts.labels)) {
                for (set, element, is_member) in self.peers.set(&key, facts, is_selected) {
                    set_element(&mut self.table, &mut self.touched, &set, element, is_member);
                }
            }
        }
    }

    /// All policies, as a list has them.
    pub fn replace_policies(&mut self, policies: &[NetworkPolicy]) {
        let listed: BTreeSet<_> = policies.iter().map(ObjectRef::of).collect();
        let gone: Vec<_> = self.policies.keys().filter(|name| !listed.contains(*name)).cloned().collect();
        for name in gone {
            self.set_policy(&name, None);
        }
        for policy in policies {
            self.apply_policy(policy);
        }
    }

    /// A policy that was created or changed.
    pub fn apply_policy(&mut self, policy: &NetworkPolicy) {
        self.set_policy(&ObjectRef::of(policy), Some(Policy::from_api(policy)));
    }

    /// A policy that was deleted.
    pub fn delete_policy(&mut self, policy: &ObjectRef) {
        self.set_policy(policy, None);
    }

    fn set_policy(&mut self, name: &ObjectRef, policy: Option<Policy>) {
        let before = self.policies.get(name).cloned();
        if before.as_deref() == policy.as_ref() {
            return;
        }
        let after = policy.map(Arc::new);
        let index = self.selecting.entry(name.namespace.clone()).or_default();
        if let Some(before) = &before {
            index.remove(&before.subjects, &name.name);
        }
        match &after {
            Some(after) => {
                index.insert(&after.subjects, name.name.clone());
                self.policies.insert(name.clone(), after.clone());
            }
            None => {
                self.policies.remove(name);
            }
        }
        if index.is_empty() {
            self.selecting.remove(&name.namespace);
        }
        let selects = |key: &&PodKey| {
            let facts = self.pods.get(*key).and_then(|pod| pod.facts.as_deref());
            facts.is_some_and(|facts| {
                before.iter().chain(&after).any(|policy| policy.subjects.matches(&facts.labels))
            })
        };
        let local = self.local.get(&name.namespace).into_iter().flatten();
        for key in local.filter(selects).cloned().collect::<Vec<_>>() {
            self.select(&key);
        }
    }

    /// Finds the policies that select a pod of this node, and gives it their chains.
    fn select(&mut self, key: &PodKey) {
        let Some(entry) = self.pods.get(key) else { return };
        let (Some(started), Some(facts)) = (&entry.started, &entry.facts) else { return };
        let address = started.address;
        if self.owners.get(&address) != Some(key) {
            return;
        }
        let candidates = self.selecting.get(&key.namespace).map(|index| index.candidates(&facts.labels));
        let policies: Vec<_> = candidates
            .into_iter()
            .flatten()
            .filter_map(|name| self.policies.get(&ObjectRef::namespaced(key.namespace.clone(), name)))
            .filter(|policy| policy.subjects.matches(&facts.labels))
            .collect();
        let chain = |direction: Direction| {
            let rules: Vec<_> = policies
                .iter()
                .filter_map(|policy| match direction {
                    Direction::Ingress => policy.ingress.as_deref(),
                    Direction::Egress => policy.egress.as_deref(),
                })
                .collect();
            // SPEC: a pod that no policy selects has all connections; one that some select has those that any allows.
            let allows = || rules.iter().copied().flatten().flat_map(super::Rule::allows);
            (!rules.is_empty()).then(|| Chain::new(direction, allows().collect::<Vec<Allow>>()))
        };
        let chains = Direction::ALL.map(chain);
        self.set_chains(address, chains);
    }

    /// Gives an address chains, in the order of [`Direction::ALL`].
    fn set_chains(&mut self, address: Ipv4Addr, chains: [Option<Chain>; 2]) {
        for (direction, chain) in Direction::ALL.into_iter().zip(chains) {
            let pod = (direction, address);
            let before = self.table.pods.get(&pod).cloned();
            let after = chain.as_ref().map(Chain::name);
            if before == after {
                continue;
            }
            self.touched.pods.insert(pod);
            match (chain, after) {
                (Some(chain), Some(name)) => {
                    self.use_chain(&name, chain);
                    self.table.pods.insert(pod, name);
                }
                _ => {
                    self.table.pods.remove(&pod);
                }
            }
            if let Some(before) = before {
                self.release_chain(&before);
            }
        }
        let is_selected =
            Direction::ALL.iter().any(|direction| self.table.pods.contains_key(&(*direction, address)));
        let own = Element::Address(address);
        set_element(&mut self.table, &mut self.touched, SELF, own, is_selected);
    }

    fn use_chain(&mut self, name: &ChainName, chain: Chain) {
        let users = self.users.entry(name.clone()).or_default();
        *users += 1;
        if *users > 1 {
            return;
        }
        for key in chain.sets() {
            let readers = self.readers.entry(key.clone()).or_default();
            *readers += 1;
            if *readers == 1 {
                self.add_set(key);
            }
        }
        self.touched.chains.insert(name.clone());
        self.table.chains.insert(name.clone(), chain);
    }

    fn release_chain(&mut self, name: &ChainName) {
        let Some(users) = self.users.get_mut(name) else { return };
        *users -= 1;
        if *users > 0 {
            return;
        }
        self.users.remove(name);
        self.touched.chains.insert(name.clone());
        let Some(chain) = self.table.chains.remove(name) else { return };
        for key in chain.sets() {
            let Some(readers) = self.readers.get_mut(&key) else { continue };
            *readers -= 1;
            if *readers > 0 {
                continue;
            }
            self.readers.remove(&key);
            match &key {
                SetKey::Pods(peers) => self.peers.remove(peers),
                SetKey::Named(port) => self.named.remove(port),
                SetKey::Selves | SetKey::Blocks(_) | SetKey::Ports(_) => {}
            }
            let name = key.name();
            self.table.sets.remove(&name);
            self.touched.sets.insert(name);
        }
    }

    /// Adds a set, with the pods that belong to it.
    fn add_set(&mut self, key: SetKey) {
        let name = key.name();
        let elements = match &key {
            SetKey::Pods(peers) => {
                self.peers.add(peers.clone());
                self.peers.fill(peers, &self.pods, &self.namespaces)
            }
            SetKey::Named(port) => {
                self.named.add(port.clone());
                self.named.fill(port, &self.pods)
            }
            constant => constant.constant_elements(),
        };
        self.touched.sets.insert(name.clone());
        self.table.sets.insert(name, SetContent { key, elements });
    }
}

fn set_element(table: &mut Table, touched: &mut Touched, set: &str, element: Element, is_member: bool) {
    let Some(content) = table.sets.get_mut(set) else { return };
    let is_changed =
        if is_member { content.elements.insert(element) } else { content.elements.remove(&element) };
    if is_changed {
        touched.elements.insert((set.to_owned(), element));
    }
}

/// The pods of a namespace that have addresses.
fn pods_of<'a>(
    pods: &'a BTreeMap<PodKey, Entry>,
    namespace: &'a str,
) -> impl Iterator<Item = (&'a PodKey, &'a Arc<Facts>)> {
    let from = PodKey { namespace: namespace.to_owned(), ..PodKey::default() };
    pods.range(from..)
        .take_while(move |(key, _)| key.namespace == namespace)
        .filter_map(|(key, pod)| Some((key, pod.facts.as_ref()?)))
}
