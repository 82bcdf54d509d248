//! Rules about the pod: what it is, where it runs, and its class.

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateWaiting, NodeAllocatableResourceClaimStatus, Pod, PodOS,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::super::pods::{PodExt, container, pod};
use super::{Case, burstable, check, guaranteed, set};

fn grow(spec: &mut k8s_openapi::api::core::v1::PodSpec) {
    set(&mut spec.containers[0], "cpu=150m memory=96Mi", "cpu=300m memory=256Mi");
}

fn mirror() -> Pod {
    let mut pod = pod([burstable("a")]);
    let annotations = [("kubernetes.io/config.mirror".to_owned(), "abc".to_owned())];
    pod.metadata.annotations = Some(annotations.into());
    pod
}

fn windows() -> Pod {
    pod([burstable("a")]).with(|spec| spec.os = Some(PodOS { name: "windows".to_owned() }))
}

#[test]
fn pods_that_can_be_resized() {
    let deleted = {
        let mut pod = pod([burstable("a")]).running();
        pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        pod
    };
    let waiting = pod([burstable("a")]).running().status(|status| {
        let container = &mut status.container_statuses.as_mut().unwrap()[0];
        container.state = Some(ContainerState {
            waiting: Some(ContainerStateWaiting::default()),
            ..ContainerState::default()
        });
        container.resources = None;
    });
    check([
        Case::same("one that runs", pod([burstable("a")]).running(), grow, &[]),
        Case::same("one that nothing is known of", pod([burstable("a")]), grow, &[]),
        Case::same("one that no node has yet", pod([burstable("a")]).with(|s| s.node_name = None), grow, &[]),
        Case::same("one that is being deleted", deleted, grow, &[]),
        Case::same(
            "one that has ended",
            pod([burstable("a")]).status(|status| status.phase = Some("Succeeded".to_owned())),
            grow,
            &[],
        ),
        Case::same("one whose containers wait", waiting, grow, &[]),
        Case::same(
            "one for linux",
            pod([burstable("a")]).with(|s| s.os = Some(PodOS { name: "linux".into() })),
            grow,
            &[],
        ),
        Case::same("nothing changes", pod([burstable("a")]).running(), |_| {}, &[]),
        Case::same(
            "nothing changes of one that asks for nothing",
            pod([container("a", "", "")]),
            |_| {},
            &[],
        ),
    ]);
}

#[test]
fn pods_that_cannot() {
    let old_node = pod([burstable("a")]).running().status(|status| {
        status.container_statuses.as_mut().unwrap()[0].resources = None;
    });
    let claims = pod([burstable("a")]).status(|status| {
        let claim = NodeAllocatableResourceClaimStatus {
            resource_claim_name: "cpus".to_owned(),
            ..NodeAllocatableResourceClaimStatus::default()
        };
        status.node_allocatable_resource_claim_statuses = Some(vec![claim]);
    });
    check([
        Case::same("a static pod", mirror(), grow, &["[]: Forbidden: static pods cannot be resized"]),
        Case::same(
            "a static pod, whatever else is wrong",
            mirror(),
            |spec| {
                set(&mut spec.containers[0], "cpu=-1", "");
                spec.containers.clear();
            },
            &["[]: Forbidden: static pods cannot be resized"],
        ),
        Case {
            name: "a windows pod",
            stored: windows(),
            change: grow,
            kep: &[],
            v1_36: &["[]: Forbidden: windows pods cannot be resized"],
        },
        Case {
            name: "a windows pod, though nothing changes",
            stored: windows(),
            change: |_| {},
            kep: &[],
            v1_36: &["[]: Forbidden: windows pods cannot be resized"],
        },
        Case::same(
            "one whose node does not report resources",
            old_node,
            grow,
            &["spec: Forbidden: Pod running on node without support for resize"],
        ),
        Case::same(
            "one with claims on what its node can allocate",
            claims,
            grow,
            &["spec: Forbidden: pods with node allocatable resource claims cannot be resized"],
        ),
    ]);
}

#[test]
fn only_the_first_running_container_shows_whether_the_node_supports_resizes() {
    let first_waits = pod([burstable("a"), burstable("b")]).running().status(|status| {
        let statuses = status.container_statuses.as_mut().unwrap();
        statuses[0].state = None;
        statuses[0].resources = None;
        statuses[1].resources = None;
    });
    let second_unknown = pod([burstable("a"), burstable("b")]).running().status(|status| {
        status.container_statuses.as_mut().unwrap()[1].resources = None;
    });
    check([
        Case::same(
            "the first that runs reports none",
            first_waits,
            grow,
            &["spec: Forbidden: Pod running on node without support for resize"],
        ),
        Case::same("the first that runs reports some", second_unknown, grow, &[]),
    ]);
}

#[test]
fn a_class_never_changes() {
    let recorded = |class: &str| {
        let class = class.to_owned();
        pod([burstable("a")]).status(|status| status.qos_class = Some(class))
    };
    check([
        Case::same(
            "Guaranteed stays Guaranteed",
            pod([guaranteed("a")]).running(),
            |spec| set(&mut spec.containers[0], "cpu=300m memory=1Gi", "cpu=300m memory=1Gi"),
            &[],
        ),
        Case::same(
            "Guaranteed to Burstable",
            pod([guaranteed("a")]).running(),
            |spec| set(&mut spec.containers[0], "cpu=100m memory=64Mi", "cpu=200m memory=64Mi"),
            &["spec: Invalid value: \"Guaranteed\": Pod QOS Class may not change as a result of resizing"],
        ),
        Case::same(
            "Burstable to Guaranteed",
            pod([burstable("a")]).running(),
            |spec| set(&mut spec.containers[0], "cpu=200m memory=128Mi", "cpu=200m memory=128Mi"),
            &["spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing"],
        ),
        Case::same(
            "Burstable to Guaranteed by adding limits alone",
            pod([container("a", "cpu=100m memory=64Mi", "")]).running(),
            |spec| set(&mut spec.containers[0], "cpu=100m memory=64Mi", "cpu=100m memory=64Mi"),
            &["spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing"],
        ),
        Case::same(
            "one of two containers becomes Guaranteed",
            pod([guaranteed("a"), burstable("b")]).running(),
            |spec| set(&mut spec.containers[0], "cpu=1 memory=1Gi", "cpu=1 memory=1Gi"),
            &[],
        ),
        Case::same(
            "BestEffort to Burstable",
            pod([container("a", "", "")]).running(),
            |spec| set(&mut spec.containers[0], "cpu=100m", ""),
            &["spec: Invalid value: \"BestEffort\": Pod QOS Class may not change as a result of resizing"],
        ),
        Case::same(
            "BestEffort stays BestEffort with zeros",
            pod([container("a", "", "")]).running(),
            |spec| set(&mut spec.containers[0], "cpu=0", ""),
            &[],
        ),
        Case::same(
            "Burstable to BestEffort with zeros",
            pod([container("a", "cpu=100m", "")]).running(),
            |spec| set(&mut spec.containers[0], "cpu=0", ""),
            &["spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing"],
        ),
        Case::same(
            "a limit brings a request with it",
            pod([container("a", "cpu=100m memory=64Mi", "cpu=100m")]).running(),
            |spec| set(&mut spec.containers[0], "cpu=100m memory=64Mi", "cpu=100m memory=64Mi"),
            &["spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing"],
        ),
        Case::same("the class that is recorded counts", recorded("Burstable"), grow, &[]),
        Case::same(
            "even against the spec",
            recorded("Guaranteed"),
            grow,
            &["spec: Invalid value: \"Guaranteed\": Pod QOS Class may not change as a result of resizing"],
        ),
        Case::same(
            "an unrecorded class is not shown",
            pod([guaranteed("a")]),
            grow,
            &["spec: Invalid value: \"\": Pod QOS Class may not change as a result of resizing"],
        ),
    ]);
}
