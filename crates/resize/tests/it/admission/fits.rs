//! Admission on a node with other pods.

use plumb_resize::admission::{Deferral, Ledger, LedgerEntry, Shortage, admit_new};
use plumb_resize::pod::{PodResources, PodShape};
use plumb_resize::resource::{Amounts, Resource};
use plumb_resize::rules::Rules;

use super::{FITS, MIB, NODE, NodeFacts, POD, Pod, PodExt, PodSizes, answer, containers, plain};

fn holds(cpu: i64, memory: i64) -> LedgerEntry {
    let amounts = Amounts::new(cpu, memory * MIB);
    LedgerEntry { allocated: amounts, actual: amounts }
}

/// The node with the resized pod at 1000m and 100Mi, and with these others.
fn node_with(others: &[(&str, LedgerEntry)]) -> Ledger {
    let mut ledger = Ledger::new(NODE);
    ledger.hold(POD, holds(1_000, 100));
    for (pod, held) in others {
        ledger.hold(pod, *held);
    }
    ledger
}

#[track_caller]
fn both(ledger: &Ledger, from: &Pod, to: &Pod) -> String {
    let kep = answer(from, to, NodeFacts::default(), ledger, &Rules::kep());
    let shipped = answer(from, to, NodeFacts::default(), ledger, &Rules::v1_36());
    assert_eq!(kep, shipped, "the dialects agree on what does not fit now");
    kep
}

#[test]
fn a_node_that_is_too_full_for_now() {
    let ledger = node_with(&[("a", holds(1_000, 300)), ("b", holds(1_000, 300))]);
    let from = plain("1000 100");
    let table = [
        ("all that is left", "2000 400", FITS),
        (
            "more cpu than is left",
            "2001 100",
            "deferred: Node didn't have enough resource: cpu, requested: 2001, used: 2000, capacity: 4000",
        ),
        (
            "more memory than is left",
            "1000 401",
            "deferred: Node didn't have enough resource: memory, requested: 420478976, used: 629145600, \
             capacity: 1048576000",
        ),
        (
            "more of both: cpu is named",
            "3000 500",
            "deferred: Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000",
        ),
    ];
    for (name, to, expected) in table {
        assert_eq!(both(&ledger, &from, &plain(to)), expected, "{name}");
    }
}

#[test]
fn others_count_with_the_larger_of_allocated_and_actual() {
    let (small, large) = (Amounts::new(500, 100 * MIB), Amounts::new(2_500, 800 * MIB));
    for (name, held) in [
        ("growing", LedgerEntry { allocated: large, actual: small }),
        ("shrinking", LedgerEntry { allocated: small, actual: large }),
    ] {
        let ledger = node_with(&[("other", held)]);
        assert_eq!(both(&ledger, &plain("1000 100"), &plain("1500 100")), FITS, "{name}");
        assert_eq!(
            both(&ledger, &plain("1000 100"), &plain("1501 100")),
            "deferred: Node didn't have enough resource: cpu, requested: 1501, used: 2500, capacity: 4000",
            "{name}"
        );
    }
}

#[test]
fn a_shrink_frees_capacity_only_once_it_is_actual() {
    let (before, after) = (Amounts::new(3_000, 64 * MIB), Amounts::new(1_000, 64 * MIB));
    let mut ledger = node_with(&[("other", LedgerEntry { allocated: before, actual: before })]);
    let grows = |ledger: &Ledger| both(ledger, &plain("1000 100"), &plain("2000 100"));
    let full = "deferred: Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000";
    assert_eq!(grows(&ledger), full);
    ledger.hold("other", LedgerEntry { allocated: after, actual: before });
    assert_eq!(grows(&ledger), full, "allocated to shrink");
    ledger.hold("other", LedgerEntry { allocated: after, actual: after });
    assert_eq!(grows(&ledger), FITS, "shrunk");
}

#[test]
fn a_decrease_is_never_deferred() {
    // The node has become too small for what is on it.
    let ledger = node_with(&[("other", holds(9_000, 9_000))]);
    let from = plain("1000 100");
    assert_eq!(both(&ledger, &from, &plain("900 50")), FITS);
    assert_eq!(both(&ledger, &from, &plain("1000 50")), FITS, "what it holds of the other it keeps");
    assert_eq!(
        both(&ledger, &from, &plain("900 101")),
        "deferred: Node didn't have enough resource: memory, requested: 105906176, used: 9437184000, \
         capacity: 1048576000",
        "what it wants more of it asks for"
    );
}

#[test]
fn a_pod_larger_than_its_node_can_shrink_and_stay_larger() {
    let mut ledger = Ledger::new(NODE);
    ledger.hold(POD, holds(9_000, 100));
    assert_eq!(both(&ledger, &plain("9000 100"), &plain("8000 100")), FITS);
    assert_eq!(both(&ledger, &plain("9000 100"), &plain("8000 200")), FITS);
}

#[test]
fn a_pod_may_be_allocated_again_what_it_still_has() {
    // 500m are allocated, and 1000m are still actual: going to 800m takes nothing from other pods.
    let mut ledger = node_with(&[("other", holds(3_000, 100))]);
    let allocated = Amounts::new(500, 100 * MIB);
    ledger.hold(POD, LedgerEntry { allocated, actual: Amounts::new(1_000, 100 * MIB) });
    assert_eq!(both(&ledger, &plain("500 100"), &plain("800 100")), FITS);
    assert_eq!(
        both(&ledger, &plain("500 100"), &plain("1100 100")),
        "deferred: Node didn't have enough resource: cpu, requested: 1100, used: 3000, capacity: 4000"
    );
}

#[test]
fn overhead_counts() {
    let with_overhead = |size: &str| plain(size).overhead("cpu=200m memory=10Mi");
    let ledger = node_with(&[("other", holds(2_000, 100))]);
    assert_eq!(both(&ledger, &with_overhead("1000 100"), &with_overhead("1800 100")), FITS);
    assert_eq!(
        both(&ledger, &with_overhead("1000 100"), &with_overhead("1801 100")),
        "deferred: Node didn't have enough resource: cpu, requested: 2001, used: 2000, capacity: 4000"
    );
}

#[test]
fn init_containers_and_resources_of_the_pod_count_as_they_do_for_the_scheduler() {
    let ledger = node_with(&[("other", holds(2_000, 100))]);
    let with_init = |size: &str| plain("1000 100").init(containers(size));
    let full = "deferred: Node didn't have enough resource: cpu, requested: 2001, used: 2000, capacity: 4000";
    assert_eq!(both(&ledger, &with_init("500 64"), &with_init("2000 64")), FITS);
    assert_eq!(both(&ledger, &with_init("500 64"), &with_init("2001 64")), full);
    let level = |level: &str| plain("1000/- 100/-").level(level);
    assert_eq!(both(&ledger, &level("1000/- 100/-"), &level("2000/- 100/-")), FITS);
    assert_eq!(both(&ledger, &level("1000/- 100/-"), &level("2001/- 100/-")), full);
}

#[test]
fn a_new_pod_finds_what_no_one_else_holds() {
    let mut ledger = node_with(&[]);
    let asks = |pod: &Pod| {
        let resources = PodResources::desired(pod.spec_of()).unwrap();
        PodShape::of(pod).unwrap().requests(&resources)
    };
    assert_eq!(admit_new("new", asks(&plain("3000 900")), &ledger), Ok(()));
    let shortage = admit_new("new", asks(&plain("3001 900")), &ledger).unwrap_err();
    let expected = Shortage { resource: Resource::Cpu, requested: 3_001, used: 1_000, capacity: 4_000 };
    assert_eq!(shortage, expected);
    assert_eq!(
        shortage.to_string(),
        "Node didn't have enough resource: cpu, requested: 3001, used: 1000, capacity: 4000"
    );
    // A pod that the ledger knows already (a restarted agent admits again) is not counted twice, but nor may
    // it keep what does not fit.
    ledger.hold("new", holds(3_000, 900));
    assert_eq!(admit_new("new", asks(&plain("3000 900")), &ledger), Ok(()));
    ledger.hold("new", holds(3_500, 900));
    assert!(admit_new("new", asks(&plain("3500 900")), &ledger).is_err());
}

#[test]
fn a_deferred_resize_has_a_reason_for_events() {
    let shortage = Shortage { resource: Resource::Memory, requested: 2, used: 1, capacity: 2 };
    assert_eq!(Deferral::Shortage(shortage).reason(), "OutOfmemory");
    let other = Deferral::Other { reason: "NodeShutdown".to_owned(), message: "going down".to_owned() };
    assert_eq!((other.reason(), other.to_string()), ("NodeShutdown".to_owned(), "going down".to_owned()));
}

#[test]
fn a_released_pod_is_forgotten() {
    let mut ledger = node_with(&[("other", holds(3_000, 900))]);
    assert_eq!(ledger.available_to(POD).free(), Amounts::new(1_000, 100 * MIB));
    ledger.release("other");
    ledger.release("other");
    assert_eq!(ledger.held("other"), None);
    assert_eq!(ledger.available_to(POD).free(), NODE);
    assert_eq!(ledger.allocatable(), NODE);
}
