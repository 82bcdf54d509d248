//! Rules about init containers: sidecars are resized like main ones, plain ones where the rules say so.

use k8s_openapi::api::core::v1::{Container, Pod};
use plumb_features::FeatureGates;
use plumb_resize::features;
use plumb_resize::rules::{Dialect, Rules};

use super::super::pods::{ContainerExt, PodExt, container, pod};
use super::{Case, burstable, check, init, set, texts, through_resize};

const IMMUTABLE: &[&str] = &["spec: Forbidden: resources for non-sidecar init containers are immutable"];
const ONLY_CPU_AND_MEMORY: &[&str] = &[
    "spec.initContainers[0]: Forbidden: only cpu and memory resources for init or sidecar containers are mutable",
];

fn with_init(container: Container) -> Pod {
    pod([burstable("main")]).init([container])
}

fn sidecar() -> Pod {
    with_init(burstable("proxy").sidecar())
}

fn plain() -> Pod {
    with_init(burstable("setup"))
}

#[test]
fn sidecars_are_resized_like_main_containers() {
    const REQUESTS: &[&str] =
        &["spec.initContainers[0].resources.requests: Forbidden: resource requests cannot be removed"];
    const LIMITS: &[&str] =
        &["spec.initContainers[0].resources.limits: Forbidden: resource limits cannot be removed"];
    check([
        Case::same(
            "cpu and memory",
            sidecar(),
            |spec| set(&mut init(spec)[0], "cpu=50m memory=128Mi", "cpu=300m memory=256Mi"),
            &[],
        ),
        Case::same(
            "a memory limit shrinks, with a restart",
            with_init(burstable("proxy").sidecar().policy("memory=RestartContainer")),
            |spec| set(&mut init(spec)[0], "cpu=100m memory=8Mi", "cpu=200m memory=16Mi"),
            &[],
        ),
        Case::same(
            "a limit goes",
            sidecar(),
            |spec| set(&mut init(spec)[0], "cpu=100m memory=64Mi", "cpu=200m"),
            LIMITS,
        ),
        Case::same(
            "a request goes",
            with_init(container("proxy", "cpu=100m memory=64Mi", "").sidecar()),
            |spec| set(&mut init(spec)[0], "cpu=100m", ""),
            REQUESTS,
        ),
        Case::same(
            "storage",
            sidecar(),
            |spec| {
                let limits = "cpu=200m memory=128Mi ephemeral-storage=1Gi";
                set(&mut init(spec)[0], "cpu=100m memory=64Mi", limits);
            },
            ONLY_CPU_AND_MEMORY,
        ),
        Case::same(
            "a policy",
            with_init(burstable("proxy").sidecar().policy("cpu=NotRequired memory=RestartContainer")),
            |spec| {
                let not_required = "NotRequired".to_owned();
                init(spec)[0].resize_policy.as_mut().unwrap()[1].restart_policy = not_required;
            },
            ONLY_CPU_AND_MEMORY,
        ),
        Case::same(
            "one with claims",
            with_init(burstable("proxy").sidecar().claims(&["gpu"])).declares_claims(&["gpu"]),
            |spec| set(&mut init(spec)[0], "cpu=50m memory=64Mi", "cpu=200m memory=128Mi"),
            &[],
        ),
    ]);
}

#[test]
fn plain_init_containers_are_resized_where_the_rules_say_so() {
    check([
        Case {
            name: "cpu",
            stored: plain(),
            change: |spec| set(&mut init(spec)[0], "cpu=150m memory=64Mi", "cpu=200m memory=128Mi"),
            kep: IMMUTABLE,
            v1_36: &[],
        },
        Case {
            name: "cpu, changed without a restart",
            stored: with_init(burstable("setup").policy("cpu=NotRequired")),
            change: |spec| set(&mut init(spec)[0], "cpu=150m memory=64Mi", "cpu=200m memory=128Mi"),
            kep: IMMUTABLE,
            v1_36: &[],
        },
        Case {
            name: "cpu, changed by a restart",
            stored: with_init(burstable("setup").policy("cpu=RestartContainer memory=RestartContainer")),
            change: |spec| set(&mut init(spec)[0], "cpu=150m memory=64Mi", "cpu=200m memory=128Mi"),
            kep: IMMUTABLE,
            v1_36: &[
                "spec.initContainers[0]: Forbidden: non-sidecar init containers with a resize policy of \
                     RestartContainer cannot be resized",
            ],
        },
        Case::same(
            "others beside one with such a policy",
            with_init(burstable("setup").policy("cpu=RestartContainer")),
            |spec| set(&mut spec.containers[0], "cpu=150m memory=64Mi", "cpu=200m memory=128Mi"),
            &[],
        ),
        Case {
            name: "a request goes",
            stored: with_init(container("setup", "cpu=100m memory=64Mi", "")),
            change: |spec| set(&mut init(spec)[0], "cpu=100m", ""),
            kep: IMMUTABLE,
            v1_36: &[
                "spec.initContainers[0].resources.requests: Forbidden: resource requests cannot be removed",
            ],
        },
        Case {
            name: "storage",
            stored: plain(),
            change: |spec| {
                let limits = "cpu=200m memory=128Mi ephemeral-storage=1Gi";
                set(&mut init(spec)[0], "cpu=100m memory=64Mi", limits);
            },
            kep: IMMUTABLE,
            v1_36: ONLY_CPU_AND_MEMORY,
        },
        Case {
            name: "a policy alone",
            stored: with_init(burstable("setup").policy("cpu=NotRequired")),
            change: |spec| init(spec)[0].resize_policy = None,
            kep: IMMUTABLE,
            v1_36: ONLY_CPU_AND_MEMORY,
        },
        Case::same(
            "the same amount in other words",
            plain(),
            |spec| set(&mut init(spec)[0], "cpu=0.1 memory=65536Ki", "cpu=0.2 memory=128Mi"),
            &[],
        ),
    ]);
}

#[test]
fn the_gate_decides_about_plain_init_containers_in_1_36() {
    let off = FeatureGates::default().with(&features::INIT_CONTAINERS, false);
    let rules = Rules::new(Dialect::V1_36, &off);
    let grow: fn(&mut _) = |spec| set(&mut init(spec)[0], "cpu=150m memory=64Mi", "cpu=200m memory=128Mi");
    assert_eq!(texts(&through_resize(&plain(), grow, &rules)), IMMUTABLE);
    assert_eq!(texts(&through_resize(&sidecar(), grow, &rules)), [] as [&str; 0]);
}

#[test]
fn init_containers_stay_who_and_where_they_are() {
    const SET: &[&str] =
        &["spec.initContainers: Forbidden: initContainers may not be added or removed on resize"];
    let two = || pod([burstable("main")]).init([burstable("a").sidecar(), burstable("b")]);
    check([
        Case::same("one is added", two(), |spec| init(spec).push(burstable("c")), SET),
        Case::same(
            "the first is added",
            pod([burstable("main")]),
            |spec| {
                spec.init_containers = Some(vec![burstable("c")]);
            },
            SET,
        ),
        Case::same("one is removed", two(), |spec| init(spec).truncate(1), SET),
        Case::same("all are removed", two(), |spec| spec.init_containers = None, SET),
        Case::same("all are removed, and an empty list left", two(), |spec| init(spec).clear(), SET),
        Case::same(
            "one is renamed",
            two(),
            |spec| init(spec)[0].name = "c".to_owned(),
            &[
                "spec.initContainers[0].name: Forbidden: initContainers may not be renamed or reordered on resize",
            ],
        ),
        Case::same(
            "two change places",
            two(),
            |spec| init(spec).swap(0, 1),
            &[
                "spec.initContainers[0].name: Forbidden: initContainers may not be renamed or reordered on resize",
                "spec.initContainers[1].name: Forbidden: initContainers may not be renamed or reordered on resize",
            ],
        ),
        Case::same(
            "both lists differ",
            two(),
            |spec| {
                spec.containers[0].name = "other".to_owned();
                init(spec).truncate(1);
            },
            &[
                "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize",
                "spec.initContainers: Forbidden: initContainers may not be added or removed on resize",
            ],
        ),
    ]);
}
