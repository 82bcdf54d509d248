//! What a resize waits for, and what the API server says to one that no node could hold.

use plumb_resize::admission::{Ledger, LedgerEntry, Request, WhatIf, over_capacity, what_if};
use plumb_resize::pod::{PodResources, PodShape};
use plumb_resize::resource::Amounts;
use plumb_resize::rules::Rules;

use super::{MIB, NODE, POD, PodExt, plain};

fn held(allocated: (i64, i64), actual: (i64, i64)) -> LedgerEntry {
    let amounts = |(cpu, memory): (i64, i64)| Amounts::new(cpu, memory * MIB);
    LedgerEntry { allocated: amounts(allocated), actual: amounts(actual) }
}

/// A full node: the resized pod at 1000m and 100Mi, one that keeps, and two that shrink.
fn full_node() -> Ledger {
    let mut ledger = Ledger::new(NODE);
    ledger.hold(POD, held((1_000, 100), (1_000, 100)));
    ledger.hold("keeps", held((1_000, 300), (1_000, 300)));
    ledger.hold("shrinks", held((500, 300), (1_000, 300)));
    ledger.hold("shrinks more", held((200, 100), (1_000, 300)));
    ledger
}

fn asks(ledger: &Ledger, to: &str) -> WhatIf {
    let pod = plain("1000 100");
    let shape = PodShape::of(&pod).unwrap();
    let resources = |text| PodResources::desired(plain(text).spec_of()).unwrap();
    let (allocated, desired) = (resources("1000 100"), resources(to));
    what_if(Request { pod: POD, shape: &shape, allocated: &allocated, desired: &desired }, ledger)
}

#[test]
fn an_explanation_has_the_shortage_and_the_pods_whose_shrink_would_suffice() {
    type Case = (&'static str, &'static str, (i64, i64), &'static [&'static str], bool);
    let table: [Case; 6] = [
        ("either would do", "1500 100", (500, 0), &["shrinks", "shrinks more"], true),
        ("only one would do", "1501 100", (501, 0), &["shrinks more"], true),
        ("only one frees memory", "1000 101", (0, 1), &["shrinks more"], true),
        ("both together would do", "2300 100", (1_300, 0), &[], true),
        ("not even both", "2301 100", (1_301, 0), &[], false),
        ("both resources are missing", "1700 200", (700, 100), &["shrinks more"], true),
    ];
    for (name, to, (cpu, memory), enough_alone, after_all_shrinks) in table {
        // Cpu is full; of memory there is nothing left either.
        let mut ledger = full_node();
        assert_eq!(ledger.available_to(POD).free(), Amounts::new(1_000, 100 * MIB));
        let expected = WhatIf {
            missing: Amounts::new(cpu, memory * MIB),
            enough_alone: enough_alone.iter().map(ToString::to_string).collect(),
            after_all_shrinks,
        };
        assert_eq!(asks(&ledger, to), expected, "{name}");
        ledger.hold("shrinks", held((500, 300), (500, 300)));
        ledger.hold("shrinks more", held((200, 100), (200, 100)));
        let settled = asks(&ledger, to);
        assert_eq!(settled.missing == Amounts::ZERO, after_all_shrinks, "{name}: as foretold");
    }
}

#[test]
fn a_pods_own_shrink_is_not_what_it_waits_for() {
    let mut ledger = full_node();
    ledger.hold(POD, held((100, 100), (1_000, 100)));
    let said = asks(&ledger, "1500 100");
    assert_eq!(said.enough_alone, ["shrinks", "shrinks more"]);
}

#[test]
fn nothing_is_missing_of_what_fits() {
    let said = asks(&full_node(), "500 50");
    assert_eq!((said.missing, said.after_all_shrinks), (Amounts::ZERO, true));
}

#[test]
fn the_api_server_names_what_the_node_could_never_hold() {
    let table = [
        ("fits", (4_000, 1_000), None),
        (
            "cpu",
            (4_001, 1_000),
            Some("node didn't have enough allocatable resources: cpu, requested: 4001, allocatable: 4000"),
        ),
        (
            "memory",
            (1, 1_001),
            Some(
                "node didn't have enough allocatable resources: memory, requested: 1049624576, \
                 allocatable: 1048576000",
            ),
        ),
        (
            "both",
            (5_000, 1_001),
            Some(
                "node didn't have enough allocatable resources: cpu, requested: 5000, allocatable: 4000; \
                 memory, requested: 1049624576, allocatable: 1048576000",
            ),
        ),
    ];
    for (name, (cpu, memory), expected) in table {
        let requests = Amounts::new(cpu, memory * MIB);
        assert_eq!(over_capacity(requests, NODE, &Rules::v1_36()).as_deref(), expected, "{name}");
        assert_eq!(over_capacity(requests, NODE, &Rules::kep()), None, "{name}: left to the node");
    }
}
