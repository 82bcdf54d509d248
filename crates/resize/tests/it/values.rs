//! Which requests, limits and claims a pod may have, new or changed.

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod, PodOS, ResourceClaim};
use plumb_resize::validate;

use super::pods::{ContainerExt, PodExt, container, list, pod, resources};

#[track_caller]
fn check<const N: usize>(cases: [(&str, Pod, &[&str]); N]) {
    for (name, pod, expected) in cases {
        let found: Vec<String> = validate::pod(&pod, None).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{name}");
    }
}

fn one(requests: &str, limits: &str) -> Pod {
    pod([container("a", requests, limits)])
}

#[test]
fn a_request_is_at_most_its_limit() {
    check([
        ("less", one("cpu=100m memory=1Mi", "cpu=200m memory=2Mi"), &[]),
        ("as much", one("cpu=0.2 memory=2Mi", "cpu=200m memory=2048Ki"), &[]),
        ("nothing", one("", ""), &[]),
        ("no limit", one("cpu=100m ephemeral-storage=1Gi", ""), &[]),
        ("no request", one("", "cpu=100m"), &[]),
        (
            "more cpu",
            one("cpu=1500m", "cpu=1"),
            &[
                "spec.containers[0].resources.requests: Invalid value: \"1500m\": must be less than or equal to cpu \
               limit of 1",
            ],
        ),
        (
            "more of both, of the second container and of an init container",
            pod([container("a", "", ""), container("b", "cpu=2 memory=2Gi", "cpu=1 memory=1Gi")])
                .init([container("i", "memory=2Mi", "memory=1Mi")]),
            &[
                "spec.containers[1].resources.requests: Invalid value: \"2\": must be less than or equal to cpu \
                 limit of 1",
                "spec.containers[1].resources.requests: Invalid value: \"2Gi\": must be less than or equal to memory \
                 limit of 1Gi",
                "spec.initContainers[0].resources.requests: Invalid value: \"2Mi\": must be less than or equal to \
                 memory limit of 1Mi",
            ],
        ),
        (
            "amounts are shown as they were written",
            one("memory=1.5Gi", "memory=1024Mi"),
            &[
                "spec.containers[0].resources.requests: Invalid value: \"1.5Gi\": must be less than or equal to memory \
               limit of 1024Mi",
            ],
        ),
        (
            "more than a limit of zero",
            one("cpu=1", "cpu=0"),
            &[
                "spec.containers[0].resources.requests: Invalid value: \"1\": must be less than or equal to cpu limit \
               of 0",
            ],
        ),
    ]);
}

#[test]
fn amounts_are_readable_not_negative_and_countable() {
    check([
        (
            "not a number",
            one("cpu=lots", "cpu=1"),
            &[
                "spec.containers[0].resources.requests[cpu]: Invalid value: \"lots\": quantities must match the \
                 regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ],
        ),
        (
            "negative",
            one("cpu=-1", "cpu=1"),
            &[
                "spec.containers[0].resources.requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
            ],
        ),
        (
            "both negative, and the wrong way round",
            one("memory=-1Mi", "memory=-2Mi"),
            &[
                "spec.containers[0].resources.limits[memory]: Invalid value: \"-2Mi\": must be greater than or equal \
                 to 0",
                "spec.containers[0].resources.requests[memory]: Invalid value: \"-1Mi\": must be greater than or \
                 equal to 0",
                "spec.containers[0].resources.requests: Invalid value: \"-1Mi\": must be less than or equal to \
                 memory limit of -2Mi",
            ],
        ),
        ("the most memory there is", one("memory=9223372036854775807", ""), &[]),
        ("the most cpu there is", one("cpu=9223372036854775807m", ""), &[]),
    ]);
}

/// Kubernetes takes these, and computes with what is left of them in 64 bits.
#[test]
fn amounts_too_large_to_count_are_refused() {
    for (name, pod, path) in [
        ("thousandths of cpu", one("cpu=9300P", ""), "spec.containers[0].resources.requests[cpu]"),
        (
            "bytes of memory",
            one("memory=9300P", "memory=9300P"),
            "spec.containers[0].resources.limits[memory]",
        ),
        (
            "pieces",
            one("cpu=1", "example.com/gpu=9300P"),
            "spec.containers[0].resources.limits[example.com/gpu]",
        ),
        (
            "overhead",
            one("cpu=1", "").with(|s| s.overhead = list("memory=9300P")),
            "spec.overhead.limits[memory]",
        ),
        ("of a whole", one("", "").whole("memory=9300P", ""), "spec.resources.requests[memory]"),
    ] {
        let errors = validate::pod(&pod, None);
        let error = errors.first().unwrap_or_else(|| panic!("{name}: let in"));
        assert_eq!(error.path, path, "{name}: {error}");
        assert!(error.to_string().contains("Invalid value"), "{name}: {error}");
    }
    check([(
        "a sum of amounts that can be counted",
        pod([
            container("a", "memory=9223372036854775807", ""),
            container("b", "memory=9223372036854775807", ""),
        ]),
        &[],
    )]);
}

#[test]
fn huge_pages_and_extended_resources_are_not_overcommitted() {
    check([
        ("huge pages", one("cpu=1 hugepages-2Mi=4Mi", "hugepages-2Mi=4Mi"), &[]),
        ("whole pages of a gigabyte", one("cpu=1", "hugepages-1Gi=2Gi"), &[]),
        ("a device", one("cpu=1 example.com/gpu=2", "example.com/gpu=2"), &[]),
        (
            "fewer pages than the limit",
            one("cpu=1 hugepages-2Mi=2Mi", "hugepages-2Mi=4Mi"),
            &[
                "spec.containers[0].resources.requests: Invalid value: \"2Mi\": must be equal to hugepages-2Mi limit of \
               4Mi",
            ],
        ),
        (
            "more devices than the limit",
            one("example.com/gpu=2", "example.com/gpu=1"),
            &[
                "spec.containers[0].resources.requests: Invalid value: \"2\": must be equal to example.com/gpu limit of \
               1",
            ],
        ),
        (
            "no limit",
            one("cpu=1 example.com/gpu=1 hugepages-2Mi=2Mi", ""),
            &[
                "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable \
                 resources",
                "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable \
                 resources",
            ],
        ),
        (
            "half a device",
            one("", "example.com/gpu=500m"),
            &[
                "spec.containers[0].resources.limits[example.com/gpu]: Invalid value: \"500m\": must be an integer",
            ],
        ),
        (
            "pages that are not whole",
            one("cpu=1 hugepages-2Mi=3Mi", "hugepages-2Mi=3Mi"),
            &[
                "spec.containers[0].resources.limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive \
                 integer multiple of hugepages-2Mi",
                "spec.containers[0].resources.requests[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive \
                 integer multiple of hugepages-2Mi",
            ],
        ),
        (
            "pages of no size",
            one("cpu=1", "hugepages-big=2Mi"),
            &[
                "spec.containers[0].resources.limits[hugepages-big]: Invalid value: \"2Mi\": 2Mi is not positive \
               integer multiple of hugepages-big",
            ],
        ),
        (
            "pages of size zero",
            one("cpu=1", "hugepages-0=2Mi"),
            &[
                "spec.containers[0].resources.limits[hugepages-0]: Invalid value: \"2Mi\": 2Mi is not positive integer \
               multiple of hugepages-0",
            ],
        ),
        (
            "pages alone",
            one("", "hugepages-2Mi=2Mi"),
            &["spec.containers[0].resources: Forbidden: HugePages require cpu or memory"],
        ),
    ]);
}

#[test]
fn pages_that_were_never_whole_may_stay_so() {
    let stored = one("cpu=1", "hugepages-2Mi=3Mi");
    let new = one("cpu=2", "hugepages-2Mi=3Mi");
    assert_eq!(validate::pod(&new, Some(&stored)), []);
    let whole = one("cpu=1", "hugepages-2Mi=4Mi");
    assert_eq!(validate::pod(&new, Some(&whole)).len(), 1);
}

#[test]
fn resources_have_names_that_exist() {
    let message = |name: &str| {
        let pod = one(&format!("cpu=1 {name}=1"), &format!("{name}=1"));
        validate::pod(&pod, None).first().map(|error| error.detail.clone())
    };
    for good in
        ["cpu", "memory", "ephemeral-storage", "example.com/gpu", "kubernetes.io/batteries", "a.b-c/D_e.f"]
    {
        assert_eq!(message(good), None, "{good}");
    }
    for (bad, detail) in [
        ("gpu", "must be a standard resource type or fully qualified"),
        ("storage", "must be a standard resource for containers"),
        ("pods", "must be a standard resource for containers"),
        ("requests.cpu", "must be a standard resource for containers"),
        ("requests.hugepages-2Mi", "must be a standard resource for containers"),
        ("requests.example.com/gpu", "doesn't follow extended resource name standard"),
        ("/gpu", "prefix part must be non-empty"),
        ("example.com/", "name part must be non-empty"),
        ("-", "name part must consist of alphanumeric characters"),
        ("example.com/gpu!", "name part must consist of alphanumeric characters"),
        ("Example.com/gpu", "prefix part a lowercase RFC 1123 subdomain must consist of"),
        ("example..com/gpu", "prefix part a lowercase RFC 1123 subdomain must consist of"),
        ("a/b/c", "a valid label key must consist of alphanumeric characters"),
    ] {
        let found = message(bad).unwrap_or_else(|| panic!("{bad}: let in"));
        assert!(found.starts_with(detail), "{bad}: {found}");
    }
    let long = "a".repeat(64);
    assert_eq!(
        message(&format!("example.com/{long}")).as_deref(),
        Some("name part must be no more than 63 bytes")
    );
    let domain = ["abcdefgh."; 30].concat() + "com";
    let found = message(&format!("{domain}/gpu"));
    assert_eq!(found.as_deref(), Some("prefix part must be no more than 253 bytes"));
    check([(
        "a name that is wrong in two ways",
        one("cpu=1", "gpu=1"),
        &[
            "spec.containers[0].resources.limits[gpu]: Invalid value: \"gpu\": must be a standard resource type or \
             fully qualified",
            "spec.containers[0].resources.limits[gpu]: Invalid value: \"gpu\": must be a standard resource for \
             containers",
        ],
    )]);
}

#[test]
fn claims_name_what_the_pod_declares_and_nothing_twice() {
    let claimed = |claims: &[(&str, &str)]| -> Container {
        let claim = |(name, request): &(&str, &str)| ResourceClaim {
            name: (*name).to_owned(),
            request: Some((*request).to_owned()).filter(|request| !request.is_empty()),
        };
        let mut container = container("a", "", "");
        container.resources.get_or_insert_default().claims = Some(claims.iter().map(claim).collect());
        container
    };
    let declared = |claims: &[(&str, &str)]| pod([claimed(claims)]).declares_claims(&["gpu", "nic"]);
    let path = "spec.containers[0].resources.claims";
    for (name, claims, expected) in [
        ("one", &[("gpu", "")][..], vec![]),
        ("two", &[("gpu", ""), ("nic", "")], vec![]),
        ("two requests of one", &[("gpu", "big"), ("gpu", "small")], vec![]),
        ("no name", &[("", "big")], vec!["[0]: Required value".to_owned()]),
        ("twice", &[("gpu", ""), ("gpu", "")], vec!["[1]: Duplicate value: \"gpu\"".to_owned()]),
        (
            "a request twice",
            &[("gpu", "big"), ("gpu", "big")],
            vec!["[1]: Duplicate value: \"gpu/big\"".to_owned()],
        ),
        (
            "a whole after a part",
            &[("gpu", "big"), ("gpu", "")],
            vec!["[1]: Duplicate value: \"gpu\"".to_owned()],
        ),
        (
            "a part after the whole",
            &[("gpu", ""), ("gpu", "big")],
            vec!["[1]: Duplicate value: \"gpu\"".to_owned()],
        ),
        (
            "a request with dots",
            &[("gpu", "a.b")],
            vec!["[0].request: Invalid value: \"a.b\": must not contain dots".to_owned()],
        ),
        (
            "none such",
            &[("tpu", "")],
            vec![
                "[0]: Not found: \"tpu\": must be one of the names in pod.spec.resourceClaims: gpu, nic"
                    .to_owned(),
            ],
        ),
    ] {
        let found: Vec<_> = validate::pod(&declared(claims), None).iter().map(ToString::to_string).collect();
        let expected: Vec<_> = expected.iter().map(|error| format!("{path}{error}")).collect();
        assert_eq!(found, expected, "{name}");
    }
    check([(
        "nothing declared",
        pod([container("a", "", "").claims(&["gpu"])]),
        &["spec.containers[0].resources.claims[0]: Not found: \"gpu\": must be one of the names in \
           pod.spec.resourceClaims which is empty"],
    )]);
    let odd = validate::pod(&declared(&[("gpu", "Big")]), None);
    assert!(odd[0].detail.starts_with("a lowercase RFC 1123 label must consist of"), "{}", odd[0]);
}

#[test]
fn a_whole_holds_its_containers() {
    let two = || pod([container("a", "cpu=100m memory=64Mi", ""), container("b", "cpu=200m", "cpu=400m")]);
    check([
        ("as much as they ask for", two().whole("cpu=300m memory=64Mi", "cpu=400m memory=64Mi"), &[]),
        (
            "less than they ask for",
            two().whole("cpu=250m memory=32Mi", "cpu=400m"),
            &[
                "spec.resources.requests[cpu]: Invalid value: \"250m\": must be greater than or equal to aggregate \
                 container requests of 300m",
                "spec.resources.requests[memory]: Invalid value: \"32Mi\": must be greater than or equal to aggregate \
                 container requests of 64Mi",
            ],
        ),
        (
            "less than one of them may use",
            two().whole("cpu=300m", "cpu=350m"),
            &[
                "spec.resources.containers[1][cpu].limits: Invalid value: \"400m\": must be less than or equal to pod \
               limits of 350m",
            ],
        ),
        (
            "less than an init container asks for",
            two().init([container("i", "cpu=2", "")]).whole("cpu=1", ""),
            &[
                "spec.resources.requests[cpu]: Invalid value: \"1\": must be greater than or equal to aggregate \
               container requests of 2",
            ],
        ),
        (
            "fewer huge pages than they have",
            pod([container("a", "cpu=1", "hugepages-2Mi=4Mi"), container("b", "cpu=1", "hugepages-2Mi=4Mi")])
                .whole("cpu=2 hugepages-2Mi=6Mi", "hugepages-2Mi=6Mi"),
            &[
                "spec.resources.limits[hugepages-2Mi]: Invalid value: \"6Mi\": must be greater than or equal to \
               aggregate container limits of 8Mi",
            ],
        ),
        (
            "a request above its own limit",
            one("", "").whole("cpu=2", "cpu=1"),
            &["spec.resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1"],
        ),
        (
            "negative",
            one("", "").whole("cpu=-1", ""),
            &["spec.resources.requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"],
        ),
        (
            "a device",
            one("", "").whole("", "cpu=1 example.com/gpu=1"),
            &[
                "spec.resources.limits[example.com/gpu]: Unsupported value: \"example.com/gpu\": supported values: \
               \"cpu\", \"hugepages-\", \"memory\"",
            ],
        ),
        (
            "on windows",
            two().whole("cpu=-1", "").with(|spec| spec.os = Some(PodOS { name: "windows".to_owned() })),
            &["spec.resources: Forbidden: may not be set for a windows pod"],
        ),
    ]);
}

#[test]
fn fields_of_a_pod_are_validated_in_the_order_of_kube_apiserver() {
    let bad = |name: &str| container(name, "cpu=2", "cpu=1").policy("disk=NotRequired");
    let pod = pod([bad("a")]).init([bad("i")]).whole("cpu=-1", "").with(|spec| {
        spec.overhead = list("cpu=-1");
        spec.ephemeral_containers = Some(vec![EphemeralContainer {
            name: "debug".to_owned(),
            resources: Some(resources("cpu=2", "cpu=1")),
            resize_policy: bad("debug").resize_policy,
            ..EphemeralContainer::default()
        }]);
    });
    let paths: Vec<_> = validate::pod(&pod, None).into_iter().map(|error| error.path).collect();
    assert_eq!(
        paths,
        [
            "spec.containers[0].resources.requests",
            "spec.containers[0].resizePolicy",
            "spec.initContainers[0].resources.requests",
            "spec.initContainers[0].resizePolicy",
            "spec.ephemeralContainers[0].resources.requests",
            "spec.ephemeralContainers[0].resizePolicy",
            "spec.ephemeralContainers[0].resources",
            "spec.ephemeralContainers[0].resizePolicy",
            "spec.resources.requests[cpu]",
            "spec.resources.requests[cpu]",
            "spec.overhead.limits[cpu]",
        ]
    );
}

#[test]
fn a_pod_without_a_spec_lacks_one() {
    check([("no spec", Pod::default(), &["spec: Required value"])]);
}
