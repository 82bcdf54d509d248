//! No resize takes what is not there.

use std::collections::BTreeMap;

use plumb_resize::admission::{Ledger, LedgerEntry, NodeFacts, Request, Verdict, admit, admit_new, what_if};
use plumb_resize::aggregate::Role;
use plumb_resize::pod::{ContainerShape, PodResources, PodShape};
use plumb_resize::qos::QosClass;
use plumb_resize::resource::{Amounts, Declared, PerResource, Requirements, Resource};
use plumb_resize::rules::Rules;
use proptest::collection::vec;
use proptest::prelude::*;

use super::per_resource;

const NODE: Amounts = Amounts::new(1_000, 1_000);

fn shape() -> PodShape {
    let container = ContainerShape { name: "c".to_owned(), role: Role::Main, policy: PerResource::default() };
    PodShape { containers: vec![container], overhead: Declared::both(10, 20), qos: QosClass::Burstable }
}

fn asking(amounts: Amounts) -> PodResources {
    let requests = Declared::of(|r| Some(amounts[r]));
    PodResources { containers: vec![Requirements { requests, limits: Declared::NONE }], pod: None }
}

fn rules() -> impl Strategy<Value = Rules> {
    prop_oneof![Just(Rules::kep()), Just(Rules::v1_36())]
}

fn amounts() -> impl Strategy<Value = Amounts> + Clone {
    per_resource(0i64..600)
}

fn held() -> impl Strategy<Value = LedgerEntry> {
    (amounts(), amounts()).prop_map(|(allocated, actual)| LedgerEntry { allocated, actual })
}

/// What happens on a node.
#[derive(Clone, Debug)]
enum Event {
    /// A pod asks to be resized.
    Resize(Amounts),
    /// The allocation of a pod is actual.
    Settle,
    /// A pod comes, asking for this much.
    Come(Amounts),
    /// A pod goes.
    Go,
}

fn events() -> impl Strategy<Value = Vec<(usize, Event)>> {
    let event = prop_oneof![
        4 => amounts().prop_map(Event::Resize),
        2 => Just(Event::Settle),
        2 => amounts().prop_map(Event::Come),
        1 => Just(Event::Go),
    ];
    vec((0usize..4, event), 0..40)
}

fn verdict(pod: &str, allocated: Amounts, desired: Amounts, ledger: &Ledger, rules: &Rules) -> Verdict {
    let shape = shape();
    let (allocated, desired) = (asking(allocated), asking(desired));
    let request = Request { pod, shape: &shape, allocated: &allocated, desired: &desired };
    admit(request, NodeFacts::default(), ledger, rules)
}

/// With what the pod costs on top.
fn whole(amounts: Amounts) -> Amounts {
    shape().requests(&asking(amounts))
}

fn total(pods: &BTreeMap<String, LedgerEntry>) -> Amounts {
    pods.values().fold(Amounts::ZERO, |sum, held| sum.plus(held.allocated.larger(held.actual)))
}

proptest! {
    #[test]
    fn the_ledger_agrees_with_adding_up(
        changes in vec((0usize..6, prop_oneof![3 => held().prop_map(Some), 1 => Just(None)]), 0..60)
    ) {
        let mut ledger = Ledger::new(NODE);
        let mut pods: BTreeMap<String, LedgerEntry> = BTreeMap::new();
        for (pod, change) in changes {
            let pod = format!("pod-{pod}");
            if let Some(held) = change {
                ledger.hold(&pod, held);
                pods.insert(pod, held);
            } else {
                ledger.release(&pod);
                pods.remove(&pod);
            }
            prop_assert_eq!(ledger.available_to("other").others, total(&pods));
            for (pod, held) in &pods {
                prop_assert_eq!(ledger.held(pod), Some(*held));
                prop_assert_eq!(ledger.available_to(pod).others, total(&pods).less(held.counted()));
            }
        }
    }

    #[test]
    fn the_ledger_forgets_even_what_was_too_large_to_add_up(huge in vec(per_resource(0..i64::MAX), 1..6)) {
        let mut ledger = Ledger::new(NODE);
        for (i, amounts) in huge.iter().enumerate() {
            ledger.hold(&i.to_string(), LedgerEntry { allocated: *amounts, actual: *amounts });
        }
        for i in 0..huge.len() {
            ledger.release(&i.to_string());
        }
        prop_assert_eq!(ledger, Ledger::new(NODE));
    }

    #[test]
    fn a_node_is_never_allocated_twice(events in events(), rules in rules()) {
        let mut ledger = Ledger::new(NODE);
        let mut pods: BTreeMap<String, LedgerEntry> = BTreeMap::new();
        for (pod, event) in events {
            let pod = format!("pod-{pod}");
            match (event, pods.get(&pod).copied()) {
                (Event::Come(asked), None) if admit_new(&pod, whole(asked), &ledger).is_ok() => {
                    pods.insert(pod.clone(), LedgerEntry { allocated: whole(asked), actual: whole(asked) });
                }
                (Event::Resize(asked), Some(held)) => {
                    let allocated = held.allocated.less(whole(Amounts::ZERO));
                    if verdict(&pod, allocated, asked, &ledger, &rules) == Verdict::Fits {
                        pods.insert(pod.clone(), LedgerEntry { allocated: whole(asked), ..held });
                    }
                }
                (Event::Settle, Some(held)) => {
                    pods.insert(pod.clone(), LedgerEntry { actual: held.allocated, ..held });
                }
                (Event::Go, Some(_)) => {
                    pods.remove(&pod);
                }
                _ => {}
            }
            match pods.get(&pod) {
                Some(held) => ledger.hold(&pod, *held),
                None => ledger.release(&pod),
            }
            prop_assert!(total(&pods).within(NODE), "{:?}", pods);
        }
    }

    #[test]
    fn a_pure_shrink_always_fits(
        others in vec(held(), 0..6),
        (held, asked) in amounts().prop_flat_map(|held| {
            (Just(held), (0..=held.cpu, 0..=held.memory).prop_map(|(cpu, memory)| Amounts::new(cpu, memory)))
        }),
        allocatable in amounts(),
        rules in rules(),
    ) {
        let mut ledger = Ledger::new(allocatable);
        for (i, held) in others.into_iter().enumerate() {
            ledger.hold(&i.to_string(), held);
        }
        ledger.hold("shrinks", LedgerEntry { allocated: whole(held), actual: whole(held) });
        prop_assert_eq!(verdict("shrinks", held, asked, &ledger, &rules), Verdict::Fits);
    }

    #[test]
    fn the_shortage_is_exactly_the_amount_that_does_not_fit(
        others in vec(held(), 0..4), own in amounts(), asked in amounts(), rules in rules(),
    ) {
        let mut ledger = Ledger::new(NODE);
        ledger.hold("it", LedgerEntry { allocated: whole(own), actual: whole(own) });
        for (i, held) in others.into_iter().enumerate() {
            ledger.hold(&i.to_string(), held);
        }
        let (shape, allocated, desired) = (shape(), asking(own), asking(asked));
        let request = Request { pod: "it", shape: &shape, allocated: &allocated, desired: &desired };
        let said = what_if(request, &ledger);
        let fits = admit(request, NodeFacts::default(), &ledger, &rules) == Verdict::Fits;
        prop_assert_eq!(fits, said.missing == Amounts::ZERO);
        prop_assert!(said.enough_alone.is_empty() || said.after_all_shrinks);
        // A node larger by what is missing takes it, and one smaller than that by anything does not.
        let on = |size: Amounts| {
            let mut other = Ledger::new(size);
            let pods = (0..4).map(|i| i.to_string()).chain(["it".to_owned()]);
            for pod in pods {
                ledger.held(&pod).into_iter().for_each(|held| other.hold(&pod, held));
            }
            admit(request, NodeFacts::default(), &other, &rules)
        };
        prop_assert_eq!(on(NODE.plus(said.missing)), Verdict::Fits);
        for r in Resource::ALL.into_iter().filter(|r| said.missing[*r] > 0) {
            let mut smaller = NODE.plus(said.missing);
            smaller[r] -= 1;
            prop_assert_ne!(on(smaller), Verdict::Fits);
        }
    }
}
