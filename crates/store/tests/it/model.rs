//! Any sequence of operations against a naive model: a list of all states and events that ever were.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use plumb_store::{
    Attributes, Edit, Event, EventFilter, Key, List, Object, Options, Precondition, Prefix, Store,
    UpdateOutcome, Watch, Write, WriteError,
};
use proptest::prelude::*;

use crate::{
    sim::SimDisk,
    support::{key, small, text, value},
};

#[derive(Debug, Clone)]
enum Op {
    Put { at: usize, expect: Expecting, node: usize },
    Delete { at: usize, expect: Expecting },
    Append { at: usize },
    Transact { puts: Vec<usize>, delete: usize },
    List { under: usize, back: u64, limit: usize },
    Get { at: usize, back: u64 },
    Watch { under: usize, node: Option<usize>, back: u64 },
    Unwatch { which: usize },
    Reopen,
}

#[derive(Debug, Clone, Copy)]
enum Expecting {
    Anything,
    Absent,
    Present,
    /// The revision it has, less this.
    Current(u64),
}

const KEYS: [&str; 9] = ["a", "a-1", "a/x", "a/x/1", "a/x/2", "a/y/1", "a0", "b/x/1", "b/x/2"];
const PREFIXES: [&str; 8] = ["", "a", "a/x", "a/x/1", "a/y", "b", "b/x", "none"];
const NODES: [&str; 3] = ["", "one", "two"];

fn expecting() -> impl Strategy<Value = Expecting> {
    prop_oneof![
        3 => Just(Expecting::Anything),
        1 => Just(Expecting::Absent),
        1 => Just(Expecting::Present),
        3 => (0_u64..2).prop_map(Expecting::Current),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let at = || 0..KEYS.len();
    let under = || 0..PREFIXES.len();
    prop_oneof![
        8 => (at(), expecting(), 0..NODES.len()).prop_map(|(at, expect, node)| Op::Put { at, expect, node }),
        3 => (at(), expecting()).prop_map(|(at, expect)| Op::Delete { at, expect }),
        2 => at().prop_map(|at| Op::Append { at }),
        1 => (prop::collection::vec(at(), 0..4), at()).prop_map(|(puts, delete)| Op::Transact { puts, delete }),
        3 => (under(), 0_u64..12, 0_usize..4).prop_map(|(under, back, limit)| Op::List { under, back, limit }),
        2 => (at(), 0_u64..12).prop_map(|(at, back)| Op::Get { at, back }),
        2 => (under(), prop::option::of(1..NODES.len()), 0_u64..12)
            .prop_map(|(under, node, back)| Op::Watch { under, node, back }),
        1 => (0_usize..8).prop_map(|which| Op::Unwatch { which }),
        1 => Just(Op::Reopen),
    ]
}

type Objects = BTreeMap<Key, Object>;

/// All that ever was.
struct Model {
    /// The objects after each revision.
    states: Vec<Objects>,
    events: Vec<(u64, Key)>,
}

impl Model {
    fn now(&self) -> &Objects {
        self.states.last().unwrap()
    }

    fn revision(&self) -> u64 {
        self.states.len() as u64 - 1
    }

    fn at(&self, revision: u64) -> &Objects {
        &self.states[usize::try_from(revision).unwrap()]
    }

    fn set(&mut self, at: &Key, to: Option<(Bytes, Attributes)>) {
        let revision = self.revision() + 1;
        let mut state = self.now().clone();
        match to {
            None => drop(state.remove(at)),
            Some((value, attributes)) => {
                let before = state.get(at);
                let object = Object {
                    key: at.clone(),
                    value,
                    attributes,
                    create_revision: before.map_or(revision, |object| object.create_revision),
                    mod_revision: revision,
                    version: before.map_or(1, |object| object.version + 1),
                };
                state.insert(at.clone(), object);
            }
        }
        self.states.push(state);
        self.events.push((revision, at.clone()));
    }

    fn list(&self, under: &Prefix, revision: u64) -> Vec<Object> {
        self.at(revision).values().filter(|object| under.covers(&object.key)).cloned().collect()
    }

    /// The revisions of the events that a watch must receive.
    fn received(&self, filter: &EventFilter, from: u64) -> Vec<u64> {
        let concerns = |revision: u64, at: &Key| match &filter.attribute {
            None => true,
            Some((name, value)) => [revision - 1, revision].into_iter().any(|revision| {
                self.at(revision).get(at).is_some_and(|object| object.attributes.get(name) == Some(value))
            }),
        };
        let of_filter = |(revision, at): &&(u64, Key)| {
            *revision > from && filter.prefix.covers(at) && concerns(*revision, at)
        };
        self.events.iter().filter(of_filter).map(|(revision, _)| *revision).collect()
    }

    fn check_event(&self, event: &Event) {
        let before = self.at(event.revision - 1).get(event.key());
        let after = self.at(event.revision).get(event.key());
        assert_eq!(
            (event.previous().map(AsRef::as_ref), event.current().map(AsRef::as_ref)),
            (before, after)
        );
    }
}

fn attributes(node: usize) -> Attributes {
    if node == 0 { Attributes::none() } else { Attributes::one("node", NODES[node]) }
}

struct Watching {
    watch: Watch,
    filter: EventFilter,
    from: u64,
}

struct Run {
    disk: SimDisk,
    options: Options,
    store: Store,
    model: Model,
    watching: Vec<Watching>,
}

impl Run {
    fn new() -> Self {
        let disk = SimDisk::default();
        // A checkpoint every few writes, so that reopening meets all kinds of files; and a short past.
        let options = Options { checkpoint: 2_000, history: 5_000, ..small() };
        let store = Store::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
        Self {
            disk,
            options,
            store,
            model: Model { states: vec![Objects::new()], events: vec![] },
            watching: vec![],
        }
    }

    fn expect(&self, at: &Key, expecting: Expecting) -> (Precondition, bool) {
        let current = self.model.now().get(at);
        match expecting {
            Expecting::Anything => (Precondition::Anything, true),
            Expecting::Absent => (Precondition::Absent, current.is_none()),
            Expecting::Present => (Precondition::Present, current.is_some()),
            Expecting::Current(less) => {
                let revision = current.map_or(7, |object| object.mod_revision - less);
                (Precondition::Revision(revision), current.is_some() && less == 0)
            }
        }
    }

    fn check_written(&self, written: Result<Arc<Event>, WriteError>, happens: bool, at: &Key) {
        match written {
            Ok(event) => {
                assert!(happens);
                assert_eq!(event.revision, self.model.revision());
                self.model.check_event(&event);
            }
            Err(WriteError::Conflict(conflict)) => {
                assert!(!happens);
                assert_eq!(conflict.current.as_deref(), self.model.now().get(at));
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn step(&mut self, n: usize, op: Op) {
        match op {
            Op::Put { at, expect, node } => {
                let at = key(KEYS[at]);
                let (expect, happens) = self.expect(&at, expect);
                let text = value(format!("{n}"));
                let write =
                    Write::put(at.clone(), text.clone()).attributes(attributes(node)).precondition(expect);
                let written = self.store.write(write).wait();
                if happens {
                    self.model.set(&at, Some((text, attributes(node))));
                }
                self.check_written(written, happens, &at);
            }
            Op::Delete { at, expect } => {
                let at = key(KEYS[at]);
                let (expect, holds) = self.expect(&at, expect);
                let happens = holds && self.model.now().contains_key(&at);
                let written = self.store.write(Write::delete(at.clone()).precondition(expect)).wait();
                if happens {
                    self.model.set(&at, None);
                }
                self.check_written(written, happens, &at);
            }
            Op::Append { at } => {
                let at = key(KEYS[at]);
                let longer = |old: Option<&Object>| old.map(|old| value(text(old) + "+"));
                let updated =
                    self.store.update(&at, |old| Ok::<_, ()>(longer(old.map(AsRef::as_ref)).map(Edit::put)));
                match updated.wait().unwrap() {
                    UpdateOutcome::Unchanged(object) => {
                        assert_eq!((object, self.model.now().get(&at)), (None, None));
                    }
                    UpdateOutcome::Changed(event) => {
                        let longer = longer(self.model.now().get(&at)).unwrap();
                        self.model.set(&at, Some((longer, Attributes::none())));
                        self.check_written(Ok(event), true, &at);
                    }
                }
            }
            Op::Transact { puts, delete } => self.transact(n, &puts, &key(KEYS[delete])),
            Op::List { under, back, limit } => self.list(&Prefix::new(PREFIXES[under]).unwrap(), back, limit),
            Op::Get { at, back } => {
                let at = key(KEYS[at]);
                assert_eq!(self.store.get(&at).as_deref(), self.model.now().get(&at));
                let revision = self.model.revision().saturating_sub(back);
                match self.store.get_at(&at, revision) {
                    Ok(object) => assert_eq!(object.as_deref(), self.model.at(revision).get(&at)),
                    Err(_) => assert!(revision < self.store.stats().oldest),
                }
            }
            Op::Watch { under, node, back } => {
                let mut filter = EventFilter::prefix(Prefix::new(PREFIXES[under]).unwrap());
                if let Some(node) = node {
                    filter = filter.attribute("node", NODES[node]);
                }
                let from = self.model.revision().saturating_sub(back);
                match self.store.watch(filter.clone(), from) {
                    Ok(watch) => self.watching.push(Watching { watch, filter, from }),
                    Err(_) => assert!(from < self.store.stats().oldest),
                }
            }
            Op::Unwatch { which } if which < self.watching.len() => {
                let watching = self.watching.swap_remove(which);
                self.check_watch(watching, false);
            }
            Op::Unwatch { .. } => {}
            Op::Reopen => {
                self.end_watches();
                self.store = Store::open_on(Arc::new(self.disk.clone()), self.options.clone()).unwrap();
            }
        }
        assert_eq!(self.store.revision(), self.model.revision());
    }

    fn transact(&mut self, n: usize, puts: &[usize], delete: &Key) {
        let text = value(format!("{n} together"));
        let mut writes: Vec<_> = puts.iter().map(|at| Write::put(key(KEYS[*at]), text.clone())).collect();
        writes.push(Write::delete(delete.clone()));
        let put_before = puts.iter().any(|at| KEYS[*at] == delete.as_str());
        let happens = put_before || self.model.now().contains_key(delete);
        match self.store.transact(writes).wait() {
            Ok(events) => {
                assert!(happens);
                for at in puts {
                    self.model.set(&key(KEYS[*at]), Some((text.clone(), Attributes::none())));
                }
                self.model.set(delete, None);
                assert_eq!(events.len(), puts.len() + 1);
                for event in events {
                    self.model.check_event(&event);
                }
            }
            Err(error) => assert!(!happens, "{error}"),
        }
    }

    /// All pages of a list at a revision.
    fn list(&self, under: &Prefix, back: u64, limit: usize) {
        let revision = self.model.revision().saturating_sub(back);
        let expected = self.model.list(under, revision);
        let mut list = List::all(under.clone()).at(revision).limit(limit);
        let mut found = Vec::new();
        loop {
            let Ok(page) = self.store.list(&list) else {
                return assert!(revision < self.store.stats().oldest);
            };
            assert!(limit == 0 || page.objects.len() <= limit);
            found.extend(page.objects.iter().map(|object| object.as_ref().clone()));
            assert_eq!(page.remaining, expected.len() - found.len());
            match page.objects.last() {
                Some(end) if page.remaining > 0 => list = list.after(end.key.clone()),
                _ => break,
            }
        }
        assert_eq!(found, expected);
    }

    /// A watch has received exactly the expected events, or the first of them if it ends early.
    fn check_watch(&self, mut watching: Watching, to_the_end: bool) {
        let mut received = Vec::new();
        while let Ok(Some(event)) = watching.watch.try_next() {
            self.model.check_event(&event);
            received.push(event.revision);
        }
        let expected = self.model.received(&watching.filter, watching.from);
        if to_the_end {
            assert_eq!(received, expected, "{:?} from {}", watching.filter, watching.from);
        } else {
            assert!(expected.starts_with(&received), "{:?} from {}", watching.filter, watching.from);
            assert!(expected.iter().all(|r| received.contains(r) || *r > watching.watch.progress()));
        }
    }

    fn end_watches(&mut self) {
        self.store.close();
        for watching in std::mem::take(&mut self.watching) {
            self.check_watch(watching, true);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_behaves_like_a_list_of_all_its_states(ops in prop::collection::vec(op(), 1..120)) {
        let mut run = Run::new();
        for (n, op) in ops.into_iter().enumerate() {
            run.step(n, op);
        }
        run.end_watches();
    }
}
