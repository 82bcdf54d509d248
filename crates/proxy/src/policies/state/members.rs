//! Which pods belong to the sets of peers and of named ports.
//!
//! An address counts once for each pod that has it: for a moment a pod that ends and one that begins may both have it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use super::super::local::PodKey;
use super::super::selector::{Labels, SelectorIndex};
use super::super::table::{Element, NamedPort, PeerKey, SetKey, SetName};
use super::pod::Facts;
use super::{Entry, pods_of};

/// An element that a set has, or has no more.
pub(super) type Membership = (SetName, Element, bool);

/// The sets of one kind.
#[derive(Debug, Default)]
pub(super) struct Members<K> {
    sets: BTreeMap<SetName, BTreeMap<Element, usize>>,
    index: K,
}

/// Peers by the labels that they select.
#[derive(Debug, Default)]
pub(super) struct PeerMembers {
    within: BTreeMap<String, SelectorIndex<Arc<PeerKey>>>,
    across: SelectorIndex<Arc<PeerKey>>,
    /// Those across namespaces.
    all_across: BTreeSet<Arc<PeerKey>>,
}

/// Named ports that policies refer to.
#[derive(Debug, Default)]
pub(super) struct NamedMembers(BTreeSet<NamedPort>);

impl<K> Members<K> {
    /// Counts a pod's element in a set. Returns the change of the set, if there is one.
    fn count(&mut self, set: &SetName, element: Element, is_more: bool) -> Option<Membership> {
        let counts = self.sets.get_mut(set)?;
        let count = counts.entry(element).or_default();
        if is_more {
            *count += 1;
            return (*count == 1).then(|| (set.clone(), element, true));
        }
        *count = count.saturating_sub(1);
        if *count > 0 {
            return None;
        }
        counts.remove(&element);
        Some((set.clone(), element, false))
    }

    fn elements(&self, set: &SetName) -> BTreeSet<Element> {
        self.sets.get(set).into_iter().flat_map(|counts| counts.keys().copied()).collect()
    }
}

fn addresses(facts: &Facts) -> impl Iterator<Item = Element> + '_ {
    facts.addresses.iter().map(|address: &Ipv4Addr| Element::Address(*address))
}

impl Members<PeerMembers> {
    /// Adds a set, which is empty.
    pub(super) fn add(&mut self, key: PeerKey) {
        self.sets.insert(SetKey::Pods(key.clone()).name(), BTreeMap::new());
        let key = Arc::new(key);
        match &*key {
            PeerKey::Within { namespace, pods } => {
                self.index.within.entry(namespace.clone()).or_default().insert(pods, key.clone());
            }
            PeerKey::Across { pods, .. } => {
                self.index.across.insert(pods, key.clone());
                self.index.all_across.insert(key.clone());
            }
        }
    }

    pub(super) fn remove(&mut self, key: &PeerKey) {
        self.sets.remove(&SetKey::Pods(key.clone()).name());
        let key = Arc::new(key.clone());
        match &*key {
            PeerKey::Within { namespace, pods } => {
                if let Some(index) = self.index.within.get_mut(namespace) {
                    index.remove(pods, &key);
                    if index.is_empty() {
                        self.index.within.remove(namespace);
                    }
                }
            }
            PeerKey::Across { pods, .. } => {
                self.index.across.remove(pods, &key);
                self.index.all_across.remove(&key);
            }
        }
    }

    /// Puts all pods into a new set that belong to it.
    pub(super) fn fill(
        &mut self,
        key: &PeerKey,
        pods: &BTreeMap<PodKey, Entry>,
        namespaces: &BTreeMap<String, Labels>,
    ) -> BTreeSet<Element> {
        let mut selected = Vec::new();
        match key {
            PeerKey::Within { namespace, .. } => {
                selected.extend(pods_of(pods, namespace).map(|(_, facts)| facts));
            }
            PeerKey::Across { namespaces: selector, .. } => {
                let none = Labels::new();
                let mut last: Option<(&str, bool)> = None;
                for (pod, entry) in pods {
                    let is_selected = match last {
                        Some((namespace, is_selected)) if namespace == pod.namespace => is_selected,
                        _ => selector.matches(namespaces.get(&pod.namespace).unwrap_or(&none)),
                    };
                    last = Some((&pod.namespace, is_selected));
                    selected.extend(entry.facts.as_ref().filter(|_| is_selected));
                }
            }
        }
        let set = SetKey::Pods(key.clone()).name();
        for facts in selected.into_iter().filter(|facts| key.pods().matches(&facts.labels)) {
            for element in addresses(facts) {
                self.count(&set, element, true);
            }
        }
        self.elements(&set)
    }

    /// A pod of a namespace with these labels has changed.
    pub(super) fn update(
        &mut self,
        (namespace, labels): (&str, Option<&Labels>),
        before: Option<&Facts>,
        after: Option<&Facts>,
    ) -> Vec<Membership> {
        let none = Labels::new();
        let labels = labels.unwrap_or(&none);
        let mut changes = Vec::new();
        // First those that it is in by now: what it stays in does not change.
        for (facts, is_more) in [(after, true), (before, false)] {
            let Some(facts) = facts else { continue };
            let within = self.index.within.get(namespace).map(|index| index.candidates(&facts.labels));
            let across = self.index.across.candidates(&facts.labels).into_iter();
            let across = across.filter(|key| match &**key {
                PeerKey::Across { namespaces, .. } => namespaces.matches(labels),
                PeerKey::Within { .. } => false,
            });
            let selecting: Vec<_> = within.into_iter().flatten().chain(across).collect();
            for key in selecting.into_iter().filter(|key| key.pods().matches(&facts.labels)) {
                changes.extend(self.set(&key, facts, is_more));
            }
        }
        changes
    }

    /// Counts a pod in a set, or no more.
    pub(super) fn set(&mut self, key: &PeerKey, facts: &Facts, is_more: bool) -> Vec<Membership> {
        let set = SetKey::Pods(key.clone()).name();
        addresses(facts).filter_map(|element| self.count(&set, element, is_more)).collect()
    }

    /// The peers that select a namespace by one of these labels alone, and whether they do by now.
    pub(super) fn namespace_changed(
        &self,
        before: Option<&Labels>,
        after: Option<&Labels>,
    ) -> Vec<(Arc<PeerKey>, bool)> {
        let none = Labels::new();
        let (before, after) = (before.unwrap_or(&none), after.unwrap_or(&none));
        let changed = self.index.all_across.iter().filter_map(|key| match &**key {
            PeerKey::Across { namespaces, .. } => {
                let is_selected = namespaces.matches(after);
                (namespaces.matches(before) != is_selected).then(|| (key.clone(), is_selected))
            }
            PeerKey::Within { .. } => None,
        });
        changed.collect()
    }
}

impl Members<NamedMembers> {
    /// Adds a set, which is empty.
    pub(super) fn add(&mut self, port: NamedPort) {
        self.sets.insert(SetKey::Named(port.clone()).name(), BTreeMap::new());
        self.index.0.insert(port);
    }

    pub(super) fn remove(&mut self, port: &NamedPort) {
        self.sets.remove(&SetKey::Named(port.clone()).name());
        self.index.0.remove(port);
    }

    pub(super) fn fill(&mut self, port: &NamedPort, pods: &BTreeMap<PodKey, Entry>) -> BTreeSet<Element> {
        let set = SetKey::Named(port.clone()).name();
        for facts in pods.values().filter_map(|pod| pod.facts.as_deref()) {
            for (_, element) in named(facts).filter(|(named, _)| named == port) {
                self.count(&set, element, true);
            }
        }
        self.elements(&set)
    }

    pub(super) fn update(&mut self, before: Option<&Facts>, after: Option<&Facts>) -> Vec<Membership> {
        let mut changes = Vec::new();
        for (facts, is_more) in [(after, true), (before, false)] {
            for (port, element) in facts.into_iter().flat_map(named) {
                if self.index.0.contains(&port) {
                    changes.extend(self.count(&SetKey::Named(port).name(), element, is_more));
                }
            }
        }
        changes
    }
}

/// The elements of a pod in the sets of its named ports.
fn named(facts: &Facts) -> impl Iterator<Item = (NamedPort, Element)> + '_ {
    facts.ports.iter().flat_map(|(name, protocol, port)| {
        let named = NamedPort { protocol: *protocol, name: name.clone() };
        facts.addresses.iter().map(move |address| (named.clone(), Element::Named(*address, *protocol, *port)))
    })
}
