//! Rules about main containers: what of their resources may change, and what not.

use k8s_openapi::api::core::v1::{EphemeralContainer, PodSpec};

use super::super::pods::{ContainerExt, PodExt, container, pod, resources};
use super::{Case, burstable, check, set};

const ONLY_CPU_AND_MEMORY: &[&str] = &["spec: Forbidden: only cpu and memory resources are mutable"];

#[test]
fn cpu_and_memory_change_in_any_direction() {
    let grown =
        |spec: &mut PodSpec| set(&mut spec.containers[0], "cpu=150m memory=64Mi", "cpu=1 memory=128Mi");
    check([
        Case::same("cpu grows", pod([burstable("a")]), grown, &[]),
        Case::same(
            "cpu shrinks",
            pod([burstable("a")]),
            |spec| set(&mut spec.containers[0], "cpu=50m memory=64Mi", "cpu=100m memory=128Mi"),
            &[],
        ),
        Case::same(
            "memory grows",
            pod([burstable("a")]),
            |spec| set(&mut spec.containers[0], "cpu=100m memory=1Gi", "cpu=200m memory=2Gi"),
            &[],
        ),
        Case::same(
            "a memory limit shrinks without a restart",
            pod([burstable("a").policy("memory=NotRequired")]),
            |spec| set(&mut spec.containers[0], "cpu=100m memory=8Mi", "cpu=200m memory=16Mi"),
            &[],
        ),
        Case::same(
            "a memory limit shrinks with a restart",
            pod([burstable("a").policy("memory=RestartContainer")]),
            |spec| set(&mut spec.containers[0], "cpu=100m memory=8Mi", "cpu=200m memory=16Mi"),
            &[],
        ),
        Case::same(
            "one grows and the other shrinks",
            pod([burstable("a")]),
            |spec| set(&mut spec.containers[0], "cpu=150m memory=32Mi", "cpu=300m memory=64Mi"),
            &[],
        ),
        Case::same(
            "cpu moves from one container to another",
            pod([burstable("a"), burstable("b")]),
            |spec| {
                set(&mut spec.containers[0], "cpu=50m memory=64Mi", "cpu=200m memory=128Mi");
                set(&mut spec.containers[1], "cpu=150m memory=64Mi", "cpu=200m memory=128Mi");
            },
            &[],
        ),
        Case::same(
            "limits where there were none",
            pod([container("a", "cpu=100m memory=64Mi", "")]),
            |spec| set(&mut spec.containers[0], "cpu=100m memory=64Mi", "cpu=200m"),
            &[],
        ),
        Case::same(
            "requests where there were none",
            pod([container("a", "cpu=100m", ""), container("b", "", "")]),
            |spec| set(&mut spec.containers[1], "memory=64Mi", ""),
            &[],
        ),
        Case::same(
            "zero is not nothing",
            pod([container("a", "cpu=100m memory=64Mi", "")]),
            |spec| set(&mut spec.containers[0], "cpu=0 memory=64Mi", ""),
            &[],
        ),
        Case::same(
            "the same amounts in other words",
            pod([container("a", "cpu=1 ephemeral-storage=1Gi", "")]),
            |spec| set(&mut spec.containers[0], "cpu=1000m ephemeral-storage=1024Mi", ""),
            &[],
        ),
        Case::same(
            "beside resources that stay",
            pod([container(
                "a",
                "cpu=1 hugepages-2Mi=4Mi example.com/gpu=1",
                "hugepages-2Mi=4Mi example.com/gpu=1",
            )]),
            |spec| {
                let limits = "hugepages-2Mi=4Mi example.com/gpu=1";
                set(&mut spec.containers[0], "cpu=2 hugepages-2Mi=4Mi example.com/gpu=1", limits);
            },
            &[],
        ),
    ]);
}

#[test]
fn containers_stay_who_and_where_they_are() {
    const SET: &[&str] = &["spec.containers: Forbidden: containers may not be added or removed on resize"];
    let two = || pod([burstable("a"), burstable("b")]);
    check([
        Case::same("one is added", two(), |spec| spec.containers.push(burstable("c")), SET),
        Case::same("one is removed", two(), |spec| spec.containers.truncate(1), SET),
        Case::same(
            "one is renamed",
            two(),
            |spec| spec.containers[1].name = "c".to_owned(),
            &["spec.containers[1].name: Forbidden: containers may not be renamed or reordered on resize"],
        ),
        Case::same(
            "two change places",
            two(),
            |spec| spec.containers.swap(0, 1),
            &[
                "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize",
                "spec.containers[1].name: Forbidden: containers may not be renamed or reordered on resize",
            ],
        ),
        Case::same(
            "all of them go, which also leaves the pod in no class",
            two(),
            |spec| spec.containers.clear(),
            &[
                "spec: Invalid value: \"\": Pod QOS Class may not change as a result of resizing",
                "spec.containers: Forbidden: containers may not be added or removed on resize",
            ],
        ),
    ]);
}

#[test]
fn container_resources_cannot_be_removed() {
    const REQUESTS: &[&str] =
        &["spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed"];
    const LIMITS: &[&str] =
        &["spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed"];
    let requested = || pod([container("a", "cpu=100m memory=64Mi", "")]);
    let limited = || pod([burstable("a"), burstable("b")]);
    check([
        Case::same(
            "cpu request",
            requested(),
            |spec| set(&mut spec.containers[0], "memory=64Mi", ""),
            REQUESTS,
        ),
        Case::same(
            "memory request",
            requested(),
            |spec| set(&mut spec.containers[0], "cpu=100m", ""),
            REQUESTS,
        ),
        Case::same(
            "one name for another",
            pod([container("a", "cpu=100m", "")]),
            |spec| set(&mut spec.containers[0], "memory=64Mi", ""),
            REQUESTS,
        ),
        Case::same(
            "cpu limit",
            limited(),
            |spec| set(&mut spec.containers[0], "cpu=100m memory=64Mi", "memory=128Mi"),
            LIMITS,
        ),
        Case::same(
            "all limits",
            limited(),
            |spec| set(&mut spec.containers[0], "cpu=100m memory=64Mi", ""),
            LIMITS,
        ),
        Case::same(
            "a request whose limit stays comes back as large as the limit",
            limited(),
            |spec| set(&mut spec.containers[0], "cpu=100m", "cpu=200m memory=128Mi"),
            &[],
        ),
        Case::same(
            "everything, of one container",
            limited(),
            |spec| spec.containers[1].resources = None,
            &[
                "spec.containers[1].resources.requests: Forbidden: resource requests cannot be removed",
                "spec.containers[1].resources.limits: Forbidden: resource limits cannot be removed",
            ],
        ),
    ]);
}

#[test]
fn nothing_but_cpu_and_memory_changes() {
    let stored = || pod([container("a", "cpu=1 ephemeral-storage=1Gi", "cpu=2 ephemeral-storage=2Gi")]);
    check([
        Case::same(
            "a storage request",
            stored(),
            |spec| set(&mut spec.containers[0], "cpu=1 ephemeral-storage=2Gi", "cpu=2 ephemeral-storage=2Gi"),
            ONLY_CPU_AND_MEMORY,
        ),
        Case::same(
            "a storage limit",
            stored(),
            |spec| set(&mut spec.containers[0], "cpu=1 ephemeral-storage=1Gi", "cpu=2 ephemeral-storage=1Gi"),
            ONLY_CPU_AND_MEMORY,
        ),
        Case::same(
            "storage for one that had none",
            pod([container("a", "cpu=1", "")]),
            |spec| set(&mut spec.containers[0], "cpu=1 ephemeral-storage=10Gi", ""),
            ONLY_CPU_AND_MEMORY,
        ),
        Case::same(
            "storage is taken away",
            pod([container("a", "cpu=1 ephemeral-storage=1Gi", "")]),
            |spec| set(&mut spec.containers[0], "cpu=1", ""),
            &[
                "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
                "spec: Forbidden: only cpu and memory resources are mutable",
            ],
        ),
        Case::same(
            "huge pages",
            pod([container("a", "cpu=1", "hugepages-2Mi=2Mi")]),
            |spec| set(&mut spec.containers[0], "cpu=1", "hugepages-2Mi=4Mi"),
            ONLY_CPU_AND_MEMORY,
        ),
        Case::same(
            "an extended resource",
            pod([container("a", "cpu=1", "example.com/gpu=1")]),
            |spec| set(&mut spec.containers[0], "cpu=1", "example.com/gpu=2"),
            ONLY_CPU_AND_MEMORY,
        ),
        Case::same(
            "a policy",
            pod([burstable("a").policy("cpu=NotRequired memory=NotRequired")]),
            |spec| {
                let restart = "RestartContainer".to_owned();
                spec.containers[0].resize_policy.as_mut().unwrap()[0].restart_policy = restart;
            },
            ONLY_CPU_AND_MEMORY,
        ),
        Case::same(
            "the order of policies",
            pod([burstable("a").policy("cpu=NotRequired memory=NotRequired")]),
            |spec| spec.containers[0].resize_policy.as_mut().unwrap().reverse(),
            ONLY_CPU_AND_MEMORY,
        ),
        Case {
            name: "a policy is left out, and the kep's rules fill in what it was",
            stored: pod([burstable("a").policy("cpu=NotRequired memory=NotRequired")]),
            change: |spec| spec.containers[0].resize_policy = None,
            kep: &[],
            v1_36: ONLY_CPU_AND_MEMORY,
        },
    ]);
}

#[test]
fn containers_with_claims_are_resized_but_their_claims_stay() {
    let stored = || pod([burstable("a").claims(&["gpu"])]).declares_claims(&["gpu", "nic"]);
    check([
        Case::same(
            "cpu",
            stored(),
            |spec| set(&mut spec.containers[0], "cpu=150m memory=64Mi", "cpu=300m memory=128Mi"),
            &[],
        ),
        Case::same(
            "another claim",
            stored(),
            |spec| spec.containers[0] = burstable("a").claims(&["nic"]),
            ONLY_CPU_AND_MEMORY,
        ),
        Case::same(
            "one claim more",
            stored(),
            |spec| spec.containers[0] = burstable("a").claims(&["gpu", "nic"]),
            ONLY_CPU_AND_MEMORY,
        ),
        Case::same("no claim", stored(), |spec| spec.containers[0] = burstable("a"), ONLY_CPU_AND_MEMORY),
        Case::same(
            "a claim that the pod does not declare",
            stored(),
            |spec| spec.containers[0] = burstable("a").claims(&["fpga"]),
            &[
                "spec.containers[0].resources.claims[0]: Not found: \"fpga\": must be one of the names in \
                 pod.spec.resourceClaims: gpu, nic",
                "spec: Forbidden: only cpu and memory resources are mutable",
            ],
        ),
    ]);
}

#[test]
fn ephemeral_containers_are_not_touched() {
    let stored = pod([burstable("a")]).with(|spec| {
        spec.ephemeral_containers =
            Some(vec![EphemeralContainer { name: "debug".to_owned(), ..EphemeralContainer::default() }]);
    });
    check([Case::same(
        "what a body says of them is not looked at",
        stored,
        |spec| {
            let debug = &mut spec.ephemeral_containers.as_mut().unwrap()[0];
            debug.resources = Some(resources("cpu=1", ""));
            spec.ephemeral_containers.as_mut().unwrap().push(EphemeralContainer::default());
        },
        &[],
    )]);
}
