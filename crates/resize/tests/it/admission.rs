//! Whether a node takes a resize, row by row, in the words that people will read.

mod explanations;
mod fits;

use k8s_openapi::api::core::v1::Pod;
use plumb_features::KnownFeatures;
use plumb_resize::admission::{
    CpuManager, Ledger, MemoryManager, NodeFacts, Os, Request, Swap, Verdict, admit,
};
use plumb_resize::features;
use plumb_resize::pod::{PodResources, PodShape};
use plumb_resize::resource::Amounts;
use plumb_resize::rules::{Dialect, Rules};

use super::pods::{ContainerExt, PodExt, pod};
use super::sizes::{MIB, PodSizes, containers};

/// What the node has for pods.
const NODE: Amounts = Amounts::new(4_000, 1_000 * MIB);
const POD: &str = "resized";

/// What a node says to a resize from one pod to another, in one line.
#[track_caller]
fn answer(from: &Pod, to: &Pod, node: NodeFacts, ledger: &Ledger, rules: &Rules) -> String {
    let shape = PodShape::of(from).unwrap();
    let resources = |pod: &Pod| PodResources::desired(pod.spec_of()).unwrap();
    let (allocated, desired) = (resources(from), resources(to));
    let request = Request { pod: POD, shape: &shape, allocated: &allocated, desired: &desired };
    match admit(request, node, ledger, rules) {
        Verdict::Fits => "fits".to_owned(),
        Verdict::Deferred(why) => format!("deferred: {why}"),
        Verdict::Infeasible(why) => format!("infeasible: {why} ({})", why.label()),
    }
}

const FITS: &str = "fits";
const GATE_OFF: &str = "infeasible: InPlacePodVerticalScaling is disabled (feature_gate_off)";
const WINDOWS: &str = "infeasible: In-place pod resize is not supported on Windows (windows)";
const OTHER_OS: &str = "infeasible: In-place pod resize is not supported on this node (unsupported_platform)";
const SWAP: &str = "infeasible: In-place resize of containers with swap is not supported. (swap_limitation)";
const POD_LEVEL: &str =
    "infeasible: InPlacePodLevelResourcesVerticalScaling is disabled (plr_feature_gate_off)";
const STATIC_CPU: &str = "infeasible: Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \
                          \"static\" (guaranteed_pod_cpu_manager_static_policy)";
const FRACTION: &str = "infeasible: Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \
                        \"static\": the cpu of container \"c1\" must be a whole number of cores \
                        (guaranteed_pod_cpu_manager_static_policy)";
const STATIC_MEMORY: &str = "infeasible: Resize is infeasible for Guaranteed Pods alongside Memory Manager \
                             policy \"Static\" (guaranteed_pod_memory_manager_static_policy)";

struct Row {
    name: &'static str,
    node: NodeFacts,
    gates: &'static str,
    from: Pod,
    to: Pod,
    kep: &'static str,
    shipped: &'static str,
}

/// Answers every row in both dialects, on a node with nothing else on it.
#[track_caller]
fn expect(rows: impl IntoIterator<Item = Row>) {
    for Row { name, node, gates, from, to, kep, shipped } in rows {
        let gates = KnownFeatures::new(features::FEATURES).parse(gates).unwrap();
        for (dialect, expected) in [(Dialect::Kep, kep), (Dialect::V1_36, shipped)] {
            let rules = Rules::new(dialect, &gates);
            let said = answer(&from, &to, node, &Ledger::new(NODE), &rules);
            assert_eq!(said, expected, "{name} ({dialect:?})");
        }
    }
}

fn plain(size: &str) -> Pod {
    pod(containers(size))
}

fn linux() -> NodeFacts {
    NodeFacts::default()
}

#[test]
fn the_feature_and_the_platform() {
    let row = |name, os, gates, kep, shipped| Row {
        name,
        node: NodeFacts { os, ..linux() },
        gates,
        from: plain("100 64"),
        to: plain("200 64"),
        kep,
        shipped,
    };
    let off = "InPlacePodVerticalScaling=false";
    let windows = |runtime_resizes| Os::Windows { runtime_resizes };
    expect(vec![
        row("linux", Os::Linux, "", FITS, FITS),
        row("gate off", Os::Linux, off, GATE_OFF, GATE_OFF),
        row("the gate comes first", Os::Other, off, GATE_OFF, GATE_OFF),
        row("windows, with a runtime that resizes", windows(true), "", FITS, WINDOWS),
        row("windows, with one that does not", windows(false), "", WINDOWS, WINDOWS),
        row("anything else", Os::Other, "", OTHER_OS, OTHER_OS),
    ]);
}

#[test]
fn swap() {
    let row = |name, from: Pod, to: Pod, swap, expected| Row {
        name,
        node: NodeFacts { swap, ..linux() },
        gates: "",
        from,
        to,
        kep: expected,
        shipped: expected,
    };
    let restarts = |size: &str| {
        pod(containers(size).into_iter().map(|container| container.policy("memory=RestartContainer")))
    };
    let limited = Swap::Limited;
    expect(vec![
        row("none on the node", plain("20/30 35/45"), plain("20/30 40/45"), Swap::None, FITS),
        row("memory request changes", plain("20/30 35/45"), plain("20/30 40/45"), limited, SWAP),
        row("memory request is added", plain("20/30 -"), plain("20/30 35/-"), limited, SWAP),
        row("memory limit alone changes", plain("20/30 35/45"), plain("20/30 35/50"), limited, FITS),
        row("cpu alone changes", plain("20/30 35/45"), plain("25/30 35/45"), limited, FITS),
        row("restarted for memory", restarts("20/30 35/45"), restarts("20/30 40/45"), limited, FITS),
        row("Guaranteed pods don't swap", plain("30 45"), plain("30 50"), limited, FITS),
        row("nor do requests equal to limits", plain("20/30 45"), plain("20/30 50"), limited, FITS),
        row("before, but not after", plain("20/30 35/45"), plain("20/30 45/45"), limited, SWAP),
    ]);
}

#[test]
fn resources_of_the_pod_as_a_whole() {
    let level = |level: &str| plain("100/- 64/-").level(level);
    let off = "InPlacePodLevelResourcesVerticalScaling=false";
    let row = |name, gates, from, to, expected| Row {
        name,
        node: linux(),
        gates,
        from,
        to,
        kep: expected,
        shipped: expected,
    };
    let (small, large) = ("200/400 128/256", "300/400 128/256");
    expect(vec![
        row("gate on", "", level(small), level(large), FITS),
        row("gate off", off, level(small), level(large), POD_LEVEL),
        row("gate off, and added", off, plain("100/- 64/-"), level(small), POD_LEVEL),
        row("gate off, and it is not the pod that changes", off, plain("100 64"), plain("200 64"), FITS),
    ]);
}

#[test]
fn the_static_cpu_manager() {
    let row = |name, gates, from: &str, to: &str, kep, shipped| Row {
        name,
        node: NodeFacts { cpu_manager: CpuManager::Static, ..linux() },
        gates,
        from: plain(from),
        to: plain(to),
        kep,
        shipped,
    };
    let open = "InPlacePodVerticalScalingExclusiveCPUs=true";
    expect(vec![
        row("whole cores", "", "1000 64", "2000 64", FITS, STATIC_CPU),
        row("a fraction", "", "1000 64", "1500 64", FRACTION, STATIC_CPU),
        row("from a fraction to whole cores", "", "1500 64", "2000 64", FITS, STATIC_CPU),
        row("a fraction that does not change", "", "1000 64 | 500 64", "2000 64 | 500 64", FITS, STATIC_CPU),
        row("memory alone", "", "1500 64", "1500 96", FITS, FITS),
        row("a Burstable pod", "", "1000/2000 64", "1500/2000 64", FITS, FITS),
        row("gate on, whole cores", open, "1000 64", "2000 64", FITS, FITS),
        row("gate on, a fraction", open, "1000 64", "1500 64", FITS, FITS),
    ]);
}

#[test]
fn the_static_memory_manager() {
    let row = |name, gates, from: &str, to: &str, expected| Row {
        name,
        node: NodeFacts { memory_manager: MemoryManager::Static, ..linux() },
        gates,
        from: plain(from),
        to: plain(to),
        kep: expected,
        shipped: expected,
    };
    let open = "InPlacePodVerticalScalingExclusiveMemory=true";
    expect(vec![
        row("more", "", "100 64", "100 96", STATIC_MEMORY),
        row("less", "", "100 64", "100 32", STATIC_MEMORY),
        row("cpu alone", "", "100 64", "200 64", FITS),
        row("a Burstable pod", "", "100/200 64/128", "100/200 96/128", FITS),
        row("gate on", open, "100 64", "100 96", FITS),
    ]);
}

#[test]
fn resizes_that_no_state_of_the_node_could_hold_are_infeasible() {
    let row = |name, to: &str, kep, shipped| Row {
        name,
        node: linux(),
        gates: "",
        from: plain("100 64"),
        to: plain(to),
        kep,
        shipped,
    };
    expect(vec![
        row("just all of it", "4000 1000", FITS, FITS),
        row(
            "cpu",
            "4001 64",
            "infeasible: Node didn't have enough capacity: cpu, requested: 4001, capacity: 4000 \
             (insufficient_node_allocatable)",
            "deferred: Node didn't have enough resource: cpu, requested: 4001, used: 0, capacity: 4000",
        ),
        row(
            "memory",
            "100 1001",
            "infeasible: Node didn't have enough capacity: memory, requested: 1049624576, \
             capacity: 1048576000 (insufficient_node_allocatable)",
            "deferred: Node didn't have enough resource: memory, requested: 1049624576, used: 0, \
             capacity: 1048576000",
        ),
        row(
            "both: cpu is named",
            "5000 2000",
            "infeasible: Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000 \
             (insufficient_node_allocatable)",
            "deferred: Node didn't have enough resource: cpu, requested: 5000, used: 0, capacity: 4000",
        ),
    ]);
}

#[test]
fn reasons_against_a_resize_have_a_fixed_order() {
    // Everything at once, and then one reason less each time.
    let everything = NodeFacts {
        os: Os::Other,
        cpu_manager: CpuManager::Static,
        memory_manager: MemoryManager::Static,
        swap: Swap::Limited,
    };
    let row = |node, expected| Row {
        name: "the first reason",
        node,
        gates: "",
        from: plain("1000 64"),
        to: plain("9500 96"),
        kep: expected,
        shipped: if expected == FRACTION { STATIC_CPU } else { expected },
    };
    let on_linux = NodeFacts { os: Os::Linux, ..everything };
    let unpinned = NodeFacts { cpu_manager: CpuManager::None, ..on_linux };
    expect(vec![row(everything, OTHER_OS), row(on_linux, FRACTION), row(unpinned, STATIC_MEMORY)]);
}
