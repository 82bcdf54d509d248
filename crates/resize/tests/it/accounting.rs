//! What a pod counts for while it changes: for the scheduler, on its node, and in a quota.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodStatus};
use plumb_features::FeatureGates;
use plumb_resize::accounting::{QuotaUsage, held, in_quota, is_deferred, on_node, requested};
use plumb_resize::admission::{Ledger, LedgerEntry};
use plumb_resize::features;
use plumb_resize::list::ResourceList;
use plumb_resize::resource::Amounts;
use plumb_resize::rules::{Dialect, Rules};

use super::pods::{ContainerExt, PodExt, container, list, pod, resources};

/// Where a resize stands, as a status says it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stands {
    Nowhere,
    Proposed,
    InProgress,
    Deferred,
    Infeasible,
    /// Asked for again after a refusal; the node has yet to answer, and its old answer still stands there.
    ProposedAgain,
}

const EVERYWHERE: [Stands; 6] = [
    Stands::Nowhere,
    Stands::Proposed,
    Stands::InProgress,
    Stands::Deferred,
    Stands::Infeasible,
    Stands::ProposedAgain,
];

impl Stands {
    /// Writes it into a status, in the words of a dialect.
    fn publish(self, status: &mut PodStatus, dialect: Dialect) {
        let (word, condition) = match self {
            Self::Nowhere => (None, None),
            Self::Proposed => (Some("Proposed"), None),
            Self::InProgress => (Some("InProgress"), Some(("PodResizeInProgress", None))),
            Self::Deferred => (Some("Deferred"), Some(("PodResizePending", Some("Deferred")))),
            Self::Infeasible => (Some("Infeasible"), Some(("PodResizePending", Some("Infeasible")))),
            Self::ProposedAgain => (Some("Proposed"), Some(("PodResizePending", Some("Infeasible")))),
        };
        status.resize = word.filter(|_| dialect == Dialect::Kep).map(str::to_owned);
        status.conditions = condition.map(|(type_, reason)| {
            vec![PodCondition {
                type_: type_.to_owned(),
                status: "True".to_owned(),
                reason: reason.map(str::to_owned),
                ..PodCondition::default()
            }]
        });
    }
}

fn amounts(text: &str) -> ResourceList {
    ResourceList::read(list(text).as_ref()).unwrap()
}

/// The allocated and actual resources in the status of one container, either of which may be missing.
fn shown(name: &str, allocated: Option<&str>, actual: Option<(&str, &str)>) -> ContainerStatus {
    ContainerStatus {
        name: name.to_owned(),
        allocated_resources: allocated.and_then(list),
        resources: actual.map(|(requests, limits)| resources(requests, limits)),
        ..ContainerStatus::default()
    }
}

fn dialects() -> [(Dialect, Rules); 2] {
    [(Dialect::Kep, Rules::kep()), (Dialect::V1_36, Rules::v1_36())]
}

/// One container that desires, is allocated and has this much cpu, where the status says so.
fn changing(
    desired: i64,
    allocated: Option<i64>,
    actual: Option<i64>,
    stands: Stands,
    dialect: Dialect,
) -> Pod {
    let cpu = |amount: i64| format!("cpu={amount}");
    let both = cpu(desired);
    pod([container("c", &both, &both)]).status(|status| {
        let allocated = allocated.map(cpu);
        let actual = actual.map(cpu);
        let actual = actual.as_deref().map(|amount| (amount, amount));
        status.container_statuses = Some(vec![shown("c", allocated.as_deref(), actual)]);
        stands.publish(status, dialect);
    })
}

/// Every desired, allocated and actual amount, in every state, under both sets of rules.
#[test]
fn the_larger_counts_of_what_still_can_be() {
    let maybe = || [None, Some(1), Some(2), Some(3)];
    for (dialect, rules) in dialects() {
        for stands in EVERYWHERE {
            for (desired, allocated, actual) in (1..=3)
                .flat_map(|d| maybe().map(|a| (d, a)))
                .flat_map(|(desired, allocated)| maybe().map(|actual| (desired, allocated, actual)))
            {
                let pod = changing(desired, allocated, actual, stands, dialect);
                let name = format!("{dialect:?} {stands:?}: {desired} {allocated:?} {actual:?}");
                // An infeasible amount does not count. Under the kep's rules one that is being actuated is
                // allocated by then. Without an answer in words, an old refusal is all there is to go by.
                let refused = match dialect {
                    Dialect::Kep => stands == Stands::Infeasible,
                    Dialect::V1_36 => matches!(stands, Stands::Infeasible | Stands::ProposedAgain),
                };
                let carried_out = dialect == Dialect::Kep && stands == Stands::InProgress;
                let known = allocated.max(actual);
                let largest = known.unwrap_or(0).max(desired);
                let expected = if refused || carried_out { known.unwrap_or(desired) } else { largest };
                assert_eq!(
                    on_node(&pod, &rules),
                    Ok(amounts(&format!("cpu={expected}"))),
                    "{name}: on its node"
                );
                assert_eq!(
                    requested(&pod),
                    Ok(amounts(&format!("cpu={desired}"))),
                    "{name}: before it has one"
                );

                let expected = known.unwrap_or(desired);
                assert_eq!(held(&pod), Ok(amounts(&format!("cpu={expected}"))), "{name}: held");
                assert_eq!(is_deferred(&pod), stands == Stands::Deferred, "{name}");

                let usage = in_quota(&pod, &rules).unwrap();
                let expected = if refused { known.unwrap_or(desired) } else { largest };
                assert_eq!(
                    usage.requests,
                    amounts(&format!("cpu={expected}")),
                    "{name}: requests in a quota"
                );
                // The API carries no allocated limits.
                let limit = match actual {
                    Some(actual) if refused => actual,
                    actual => actual.unwrap_or(0).max(desired),
                };
                assert_eq!(usage.limits, amounts(&format!("cpu={limit}")), "{name}: limits in a quota");
            }
        }
    }
}

#[test]
fn rows_to_be_read() {
    use Stands::{Deferred, InProgress, Infeasible, Nowhere, Proposed, ProposedAgain};
    // desired, allocated and actual; on the node under the kep's rules and under 1.36's; and in a quota.
    let table = [
        ("settled", (2, 2, 2), Nowhere, 2, 2, 2),
        ("a growth is asked for", (3, 2, 2), Proposed, 3, 3, 3),
        ("a growth is being carried out", (3, 3, 2), InProgress, 3, 3, 3),
        ("a growth is deferred, and counts", (3, 2, 2), Deferred, 3, 3, 3),
        ("a growth is refused", (9, 2, 2), Infeasible, 2, 2, 2),
        ("a smaller one is asked for after it", (4, 2, 2), ProposedAgain, 4, 2, 4),
        ("a shrink is asked for", (1, 2, 2), Proposed, 2, 2, 2),
        ("a shrink is allocated but not actual", (1, 1, 2), InProgress, 2, 2, 2),
        ("an older shrink is on its way, a growth put off", (5, 1, 2), Deferred, 5, 5, 5),
        ("an older shrink is on its way, a growth refused", (5, 1, 2), Infeasible, 2, 2, 2),
    ];
    for (name, (desired, allocated, actual), stands, kep, v1_36, quota) in table {
        for ((dialect, rules), expected) in dialects().into_iter().zip([kep, v1_36]) {
            let pod = changing(desired, Some(allocated), Some(actual), stands, dialect);
            let cpu = |amount: i32| amounts(&format!("cpu={amount}"));
            assert_eq!(on_node(&pod, &rules), Ok(cpu(expected)), "{name} ({dialect:?})");
            let quota = if dialect == Dialect::Kep { quota } else { quota.min(expected) };
            assert_eq!(in_quota(&pod, &rules).unwrap().requests, cpu(quota), "{name} ({dialect:?}): quota");
        }
    }
}

#[test]
fn with_the_gate_off_the_spec_alone_counts() {
    let off = FeatureGates::default().with(&features::IN_PLACE_POD_VERTICAL_SCALING, false);
    for dialect in [Dialect::Kep, Dialect::V1_36] {
        let rules = Rules::new(dialect, &off);
        for stands in EVERYWHERE {
            let pod = changing(2, Some(3), Some(4), stands, dialect);
            let spec = amounts("cpu=2");
            assert_eq!(on_node(&pod, &rules).as_ref(), Ok(&spec), "{dialect:?} {stands:?}");
            let usage = QuotaUsage { requests: spec.clone(), limits: spec };
            assert_eq!(in_quota(&pod, &rules), Ok(usage), "{dialect:?} {stands:?}");
        }
    }
}

#[test]
fn a_pod_that_has_ended_counts_for_nothing() {
    for phase in ["Succeeded", "Failed"] {
        let ended = changing(2, Some(3), Some(4), Stands::Nowhere, Dialect::Kep)
            .status(|status| status.phase = Some(phase.to_owned()));
        for (_, rules) in dialects() {
            assert_eq!(on_node(&ended, &rules), Ok(ResourceList::default()), "{phase}");
            assert_eq!(in_quota(&ended, &rules), Ok(QuotaUsage::default()), "{phase}");
            assert_eq!(held(&ended), Ok(ResourceList::default()), "{phase}");
        }
    }
    assert_eq!(on_node(&Pod::default(), &Rules::kep()), Ok(ResourceList::default()), "no spec");
}

/// A pod of every kind of container, each with a larger allocation than its request.
fn family() -> Pod {
    pod([container("a", "cpu=100m memory=10Mi", "cpu=200m"), container("b", "cpu=100m", "")])
        .init([container("i", "cpu=1", "cpu=1"), container("s", "cpu=50m", "cpu=60m").sidecar()])
        .status(|status| {
            status.container_statuses = Some(vec![
                shown("a", Some("cpu=300m memory=10Mi"), Some(("cpu=250m memory=20Mi", "cpu=500m"))),
                shown("b", Some("cpu=100m"), Some(("cpu=100m", ""))),
            ]);
            status.init_container_statuses = Some(vec![
                shown("i", Some("cpu=4"), Some(("cpu=4", "cpu=4"))),
                shown("s", Some("cpu=900m"), Some(("cpu=50m", "cpu=80m"))),
            ]);
        })
}

#[test]
fn sidecars_count_with_their_status_and_init_containers_with_their_spec() {
    for (dialect, rules) in dialects() {
        // 300m + 100m + 900m, against a core for the init container; the larger of each resource.
        assert_eq!(on_node(&family(), &rules), Ok(amounts("cpu=1300m memory=20Mi")), "{dialect:?}");
        let usage = in_quota(&family(), &rules).unwrap();
        assert_eq!(usage.requests, amounts("cpu=1300m memory=20Mi"), "{dialect:?}");
        assert_eq!(usage.limits, amounts("cpu=1"), "{dialect:?}");
    }
    assert_eq!(requested(&family()), Ok(amounts("cpu=1 memory=10Mi")));
}

#[test]
fn a_status_under_another_list_is_not_the_containers() {
    let strayed = family().status(|status| status.container_statuses = status.init_container_statuses.take());
    assert_eq!(on_node(&strayed, &Rules::kep()), Ok(amounts("cpu=1 memory=10Mi")));
}

#[test]
fn overhead_counts_with_requests_and_with_limits_that_exist() {
    let overhead = |pod: Pod| pod.with(|spec| spec.overhead = list("cpu=250m memory=120Mi"));
    let pod = overhead(pod([container("c", "cpu=1 memory=1Gi", "cpu=2 memory=0")]));
    assert_eq!(requested(&pod), Ok(amounts("cpu=1250m memory=1144Mi")));
    for (dialect, rules) in dialects() {
        assert_eq!(on_node(&pod, &rules), requested(&pod), "{dialect:?}");
        let usage = in_quota(&pod, &rules).unwrap();
        assert_eq!(usage.requests, amounts("cpu=1250m memory=1144Mi"), "{dialect:?}");
        assert_eq!(usage.limits, amounts("cpu=2250m memory=0"), "{dialect:?}");
    }
}

#[test]
fn other_resources_count_too() {
    let pod = pod([
        container("c", "cpu=1 example.com/gpu=2", "example.com/gpu=2"),
        container("d", "memory=1Gi", ""),
    ])
    .init([container("i", "ephemeral-storage=1Gi", "")])
    .running();
    let expected = amounts("cpu=1 ephemeral-storage=1Gi example.com/gpu=2 memory=1Gi");
    assert_eq!(requested(&pod), Ok(expected.clone()));
    for (dialect, rules) in dialects() {
        assert_eq!(on_node(&pod, &rules).as_ref(), Ok(&expected), "{dialect:?}");
    }
}

/// A whole that desires, is allocated and has these amounts of cpu.
fn whole(desired: i64, allocated: i64, actual: i64, stands: Stands, dialect: Dialect) -> Pod {
    pod([container("c", "cpu=1 memory=1Gi", "cpu=1")])
        .running()
        .whole(&format!("cpu={desired}"), &format!("cpu={desired}"))
        .status(|status| {
            status.allocated_resources = list(&format!("cpu={allocated}"));
            status.resources = Some(resources(&format!("cpu={actual}"), &format!("cpu={actual}")));
            stands.publish(status, dialect);
        })
}

#[test]
fn pod_level_resources_count_instead_of_those_of_containers() {
    let plain = pod([container("c", "cpu=1 memory=1Gi", "cpu=2")]).whole("cpu=3", "cpu=4");
    assert_eq!(requested(&plain), Ok(amounts("cpu=3 memory=1Gi")));
    for (dialect, rules) in dialects() {
        let usage = in_quota(&plain, &rules).unwrap();
        assert_eq!(usage.limits, amounts("cpu=4"), "{dialect:?}");
        for (stands, (desired, allocated, actual), kep, v1_36) in [
            (Stands::Proposed, (5, 4, 3), 5, 5),
            (Stands::InProgress, (3, 4, 5), 5, 5),
            (Stands::InProgress, (6, 4, 5), 5, 6),
            (Stands::Deferred, (6, 4, 5), 6, 6),
            (Stands::Infeasible, (6, 4, 5), 5, 5),
            (Stands::ProposedAgain, (6, 4, 5), 6, 5),
        ] {
            let pod = whole(desired, allocated, actual, stands, dialect);
            let expected = if dialect == Dialect::Kep { kep } else { v1_36 };
            let name = format!("{dialect:?} {stands:?}: {desired} {allocated} {actual}");
            assert_eq!(on_node(&pod, &rules), Ok(amounts(&format!("cpu={expected} memory=1Gi"))), "{name}");
            // A quota looks at the whole as it was asked for, wherever its resize stands.
            let usage = in_quota(&pod, &rules).unwrap();
            assert_eq!(usage.requests, amounts(&format!("cpu={desired} memory=1Gi")), "{name}: quota");
            assert_eq!(usage.limits, amounts(&format!("cpu={desired}")), "{name}: quota");
        }
    }
}

#[test]
fn a_whole_that_was_refused_before_there_was_any_leaves_its_containers_to_count() {
    for (dialect, rules) in dialects() {
        let pod = pod([container("c", "cpu=1", "")]).running().whole("cpu=64", "").status(|status| {
            status.allocated_resources = list("memory=1Gi");
            status.resources = Some(resources("", ""));
            Stands::Infeasible.publish(status, dialect);
        });
        assert_eq!(on_node(&pod, &rules), Ok(amounts("cpu=1")), "{dialect:?}");
    }
}

#[test]
fn where_wholes_cannot_be_resized_their_status_does_not_count() {
    let off = FeatureGates::default().with(&features::POD_LEVEL_RESOURCES, false);
    for dialect in [Dialect::Kep, Dialect::V1_36] {
        let pod = whole(2, 4, 5, Stands::Nowhere, dialect);
        assert_eq!(on_node(&pod, &Rules::new(dialect, &off)), Ok(amounts("cpu=2 memory=1Gi")), "{dialect:?}");
    }
}

#[test]
fn a_new_pod_counts_as_it_is_allocated_at_creation() {
    let rules = Rules::kep();
    let mut created = pod([container("c", "cpu=4", "")]).whole("cpu=6", "");
    plumb_resize::defaulting::allocate_at_creation(&mut created, &rules);
    // Shrunk before its node has said anything, which may still start it as it was.
    let shrunk = created.respec(|spec| {
        spec.containers[0].resources = Some(resources("cpu=1", ""));
        spec.resources = Some(resources("cpu=2", ""));
    });
    assert_eq!(on_node(&shrunk, &rules), Ok(amounts("cpu=6")));
    assert_eq!(requested(&shrunk), Ok(amounts("cpu=2")));
}

#[test]
fn on_the_node_itself_a_pod_counts_with_the_larger_of_allocated_and_actual() {
    let mut ledger = Ledger::new(Amounts::new(4_000, 400));
    let held = |allocated, actual| LedgerEntry {
        allocated: Amounts::new(allocated, 10),
        actual: Amounts::new(actual, 20),
    };
    for (name, allocated, actual, counted) in
        [("settled", 500, 500, 500), ("growing", 900, 500, 900), ("shrinking", 500, 900, 900)]
    {
        ledger.hold("pod", held(allocated, actual));
        assert_eq!(ledger.available_to("other").free(), Amounts::new(4_000 - counted, 380), "{name}");
        assert_eq!(ledger.available_to("pod").free(), Amounts::new(4_000, 400), "{name}: for itself");
    }
    ledger.release("pod");
    assert_eq!(ledger.available_to("other").free(), Amounts::new(4_000, 400));
}

#[test]
fn sums_too_large_to_say_stay_too_large() {
    let most = "memory=9223372036854775807";
    let huge = pod([container("a", most, ""), container("b", most, ""), container("c", most, "")]);
    for (dialect, rules) in dialects() {
        let counted = on_node(&huge, &rules).unwrap().get("memory").unwrap();
        assert!(counted.units().is_err() || counted.units() == Ok(i64::MAX), "{dialect:?}: {counted}");
    }
}

#[test]
fn a_quantity_that_cannot_be_read_is_an_error_wherever_it_stands() {
    let in_spec = pod([container("c", "cpu=lots", "")]);
    let in_status = pod([container("c", "cpu=1", "")])
        .status(|status| status.container_statuses = Some(vec![shown("c", Some("cpu=lots"), None)]));
    let in_overhead = pod([container("c", "cpu=1", "")]).with(|spec| spec.overhead = list("cpu=lots"));
    for pod in [in_spec, in_status, in_overhead] {
        assert_eq!(on_node(&pod, &Rules::kep()).unwrap_err().text, "lots");
        assert_eq!(in_quota(&pod, &Rules::v1_36()).unwrap_err().text, "lots");
    }
}
