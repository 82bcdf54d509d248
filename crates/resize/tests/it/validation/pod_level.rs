//! Rules about what a pod asks for as a whole.

use k8s_openapi::api::core::v1::{Pod, PodSpec, ResourceClaim};
use plumb_features::FeatureGates;
use plumb_resize::features;
use plumb_resize::rules::Rules;

use super::super::pods::{PodExt, container, pod, resources};
use super::{Case, burstable, check, guaranteed, set, texts, through_resize};

fn whole() -> Pod {
    pod([burstable("a")]).whole("cpu=200m memory=128Mi", "cpu=400m memory=256Mi")
}

fn set_whole(spec: &mut PodSpec, requests: &str, limits: &str) {
    spec.resources = Some(resources(requests, limits));
}

#[test]
fn a_pod_is_resized_as_a_whole() {
    check([
        Case::same(
            "requests grow",
            whole(),
            |spec| set_whole(spec, "cpu=300m memory=200Mi", "cpu=400m memory=256Mi"),
            &[],
        ),
        Case::same(
            "limits shrink",
            whole(),
            |spec| set_whole(spec, "cpu=200m memory=128Mi", "cpu=300m memory=200Mi"),
            &[],
        ),
        Case::same(
            "a container in it",
            whole(),
            |spec| set(&mut spec.containers[0], "cpu=200m memory=64Mi", "cpu=400m memory=128Mi"),
            &[],
        ),
        Case::same(
            "both at once",
            whole(),
            |spec| {
                set_whole(spec, "cpu=2 memory=128Mi", "cpu=4 memory=256Mi");
                set(&mut spec.containers[0], "cpu=2 memory=64Mi", "cpu=4 memory=128Mi");
            },
            &[],
        ),
        Case::same(
            "limits where there were none",
            pod([container("a", "", "")]).whole("cpu=200m memory=128Mi", ""),
            |spec| set_whole(spec, "cpu=200m memory=128Mi", "cpu=400m"),
            &[],
        ),
        Case::same(
            "as one that was not asked for before",
            pod([burstable("a")]),
            |spec| set_whole(spec, "", "cpu=400m memory=256Mi"),
            &[],
        ),
        Case::same(
            "a container does not make the class, the pod does",
            whole(),
            |spec| set(&mut spec.containers[0], "cpu=200m memory=128Mi", "cpu=200m memory=128Mi"),
            &[],
        ),
    ]);
}

#[test]
fn pod_level_resources_cannot_be_removed() {
    check([
        Case::same(
            "all of it",
            whole(),
            |spec| spec.resources = None,
            &["spec.resources: Forbidden: pod-level resources cannot be removed"],
        ),
        Case::same(
            "all of it, and an empty one left",
            whole(),
            |spec| set_whole(spec, "", ""),
            &[
                "spec: Invalid value: \"\": Pod QOS Class may not change as a result of resizing",
                "spec.resources.requests: Forbidden: pod-level resource requests cannot be removed",
                "spec.resources.limits: Forbidden: pod-level resource limits cannot be removed",
            ],
        ),
        Case::same(
            "a request",
            pod([container("a", "", "")]).whole("cpu=200m memory=128Mi", ""),
            |spec| set_whole(spec, "cpu=200m", ""),
            &["spec.resources.requests: Forbidden: pod-level resource requests cannot be removed"],
        ),
        Case::same(
            "a limit",
            whole(),
            |spec| set_whole(spec, "cpu=200m memory=128Mi", "cpu=400m"),
            &["spec.resources.limits: Forbidden: pod-level resource limits cannot be removed"],
        ),
        Case::same(
            "a request whose limit stays comes back as what the containers ask for",
            whole(),
            |spec| set_whole(spec, "cpu=200m", "cpu=400m memory=256Mi"),
            &[],
        ),
    ]);
}

#[test]
fn nothing_but_cpu_and_memory_changes_of_the_whole() {
    const ONLY_CPU_AND_MEMORY: &str =
        "spec: Forbidden: only cpu and memory resources are mutable at pod-level";
    check([
        Case::same(
            "huge pages",
            whole(),
            |spec| set_whole(spec, "cpu=200m memory=128Mi", "cpu=400m memory=256Mi hugepages-2Mi=4Mi"),
            &[ONLY_CPU_AND_MEMORY],
        ),
        Case::same(
            "storage, which no pod has as a whole",
            whole(),
            |spec| set_whole(spec, "cpu=200m memory=128Mi ephemeral-storage=1Gi", "cpu=400m memory=256Mi"),
            &[
                "spec.resources.requests[ephemeral-storage]: Unsupported value: \"ephemeral-storage\": supported \
                 values: \"cpu\", \"hugepages-\", \"memory\"",
                ONLY_CPU_AND_MEMORY,
            ],
        ),
        Case::same(
            "claims, which no pod has as a whole",
            whole().declares_claims(&["gpu"]),
            |spec| {
                let claim = ResourceClaim { name: "gpu".to_owned(), request: None };
                spec.resources.as_mut().unwrap().claims = Some(vec![claim]);
            },
            &[
                "spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level",
                ONLY_CPU_AND_MEMORY,
            ],
        ),
    ]);
}

#[test]
fn the_class_of_a_whole_never_changes() {
    check([
        Case::same(
            "Burstable to Guaranteed",
            whole(),
            |spec| set_whole(spec, "cpu=400m memory=256Mi", "cpu=400m memory=256Mi"),
            &["spec: Invalid value: \"\": Pod QOS Class may not change as a result of resizing"],
        ),
        Case::same(
            "Guaranteed containers in a Burstable whole",
            pod([guaranteed("a")]),
            |spec| set_whole(spec, "cpu=100m memory=64Mi", "cpu=400m memory=256Mi"),
            &["spec: Invalid value: \"\": Pod QOS Class may not change as a result of resizing"],
        ),
    ]);
}

#[test]
fn the_gate_decides_about_wholes() {
    const CLOSED: &str = "[]: Forbidden: resize of pods with pod-level resources is forbidden when \
                          InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled";
    let off = FeatureGates::default().with(&features::POD_LEVEL_RESOURCES, false);
    for dialect in ["kep", "v1.36"] {
        let rules = Rules::new(dialect.parse().unwrap(), &off);
        let container = |spec: &mut PodSpec| {
            set(&mut spec.containers[0], "cpu=150m memory=64Mi", "cpu=200m memory=128Mi");
        };
        assert_eq!(texts(&through_resize(&whole(), container, &rules)), [CLOSED], "{dialect}: a container");
        let add = |spec: &mut PodSpec| set_whole(spec, "", "cpu=400m memory=256Mi");
        let unasked = through_resize(&pod([burstable("a")]), add, &rules);
        assert_eq!(texts(&unasked), [] as [&str; 0], "{dialect}: a whole that is not looked at");
        // Whatever else is wrong with the containers is not looked into any further.
        let worse = |spec: &mut PodSpec| {
            set(&mut spec.containers[0], "cpu=2 memory=64Mi", "cpu=1");
            spec.containers.push(burstable("b"));
        };
        let errors = texts(&through_resize(&whole(), worse, &rules));
        assert_eq!(errors.last().map(String::as_str), Some(CLOSED), "{dialect}: more");
        assert!(!errors.iter().any(|error| error.contains("added or removed")), "{dialect}: {errors:?}");
    }
}
