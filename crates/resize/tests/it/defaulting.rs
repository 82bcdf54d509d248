//! What the API server fills in, copies back and sets.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use plumb_features::{Feature, FeatureGates};
use plumb_resize::defaulting::{allocate_at_creation, copy_back, default_pod, drop_disabled};
use plumb_resize::features;
use plumb_resize::list::WireList;
use plumb_resize::rules::Rules;

use super::pods::{ContainerExt, PodExt, container, list, pod, resources};

fn defaulted(mut pod: Pod, rules: &Rules) -> Pod {
    default_pod(&mut pod, rules).unwrap();
    pod
}

fn rules() -> [(&'static str, Rules); 2] {
    [("kep", Rules::kep()), ("v1.36", Rules::v1_36())]
}

/// The rules of a dialect without one of its features.
fn without(feature: &Feature, dialect: &str) -> Rules {
    Rules::new(dialect.parse().unwrap(), &FeatureGates::default().with(feature, false))
}

fn gate_off() -> Rules {
    without(&features::IN_PLACE_POD_VERTICAL_SCALING, "kep")
}

#[test]
fn a_limit_without_a_request_is_a_request_too() {
    let table = [
        ("nothing", ("", ""), ""),
        ("requests alone", ("cpu=1 memory=1Gi", ""), "cpu=1 memory=1Gi"),
        ("limits alone", ("", "cpu=2 memory=1.5Gi"), "cpu=2 memory=1.5Gi"),
        ("some of both", ("cpu=1", "cpu=2 memory=2Gi"), "cpu=1 memory=2Gi"),
        ("zero is a request", ("cpu=0", "cpu=2"), "cpu=0"),
        ("any resource", ("", "example.com/gpu=1 hugepages-2Mi=2Mi"), "example.com/gpu=1 hugepages-2Mi=2Mi"),
        ("a limit that cannot be read", ("", "cpu=lots"), "cpu=lots"),
    ];
    for (name, (requests, limits), expected) in table {
        for (dialect, rules) in rules() {
            let all = || container("c", requests, limits);
            let pod = defaulted(pod([all()]).init([all(), all().sidecar()]), &rules);
            let spec = pod.spec_of();
            for container in spec.containers.iter().chain(spec.init_containers.as_ref().unwrap()) {
                assert_eq!(container.resources, Some(resources(expected, limits)), "{name} ({dialect})");
            }
        }
    }
}

#[test]
fn nothing_is_made_of_nothing() {
    for (dialect, rules) in rules() {
        let bare = pod([container("c", "", "")]).with(|spec| {
            spec.containers[0].resources.as_mut().unwrap().limits = Some(WireList::new());
        });
        let pod = defaulted(bare.clone(), &rules);
        assert_eq!(
            pod.spec_of().containers[0].resources,
            bare.spec_of().containers[0].resources,
            "{dialect}"
        );
        assert_eq!(defaulted(Pod::default(), &rules), Pod::default(), "{dialect}: no spec");
    }
}

#[test]
fn pod_level_requests_default_to_those_of_containers_or_the_limit() {
    let huge = || container("h", "cpu=100m", "hugepages-2Mi=4Mi");
    let table: [(&str, Pod, (&str, &str)); 12] = [
        ("nothing", pod([container("c", "cpu=1", "")]).whole("", ""), ("", "")),
        ("requests alone", pod([container("c", "cpu=1", "")]).whole("cpu=2", ""), ("cpu=2", "")),
        ("a limit alone", pod([container("c", "", "")]).whole("", "cpu=2"), ("cpu=2", "cpu=2")),
        (
            "the containers' sum",
            pod([container("c", "cpu=1", ""), container("d", "cpu=500m", "")]).whole("", "cpu=4 memory=1Gi"),
            ("cpu=1500m memory=1Gi", "cpu=4 memory=1Gi"),
        ),
        (
            "with sidecars",
            pod([container("c", "cpu=1", "")])
                .init([container("s", "cpu=1", "").sidecar()])
                .whole("", "cpu=4"),
            ("cpu=2", "cpu=4"),
        ),
        (
            "with an init container",
            pod([container("c", "cpu=1", "")]).init([container("i", "cpu=3", "")]).whole("", "cpu=4"),
            ("cpu=3", "cpu=4"),
        ),
        (
            "what the containers' limits make them ask for",
            pod([container("c", "", "cpu=1")]).whole("", "cpu=4"),
            ("cpu=1", "cpu=4"),
        ),
        (
            "also of what is not limited",
            pod([container("c", "memory=64Mi", "")]).whole("", "cpu=4"),
            ("cpu=4 memory=64Mi", "cpu=4"),
        ),
        (
            "but only of what a whole can have",
            pod([container("c", "ephemeral-storage=1Gi", "")]).whole("", "cpu=4"),
            ("cpu=4", "cpu=4"),
        ),
        (
            "what is given stays",
            pod([container("c", "cpu=1", "")]).whole("cpu=3", "cpu=4 memory=1Gi"),
            ("cpu=3 memory=1Gi", "cpu=4 memory=1Gi"),
        ),
        (
            "huge pages add up",
            pod([huge(), huge()]).whole("cpu=1", ""),
            ("cpu=1 hugepages-2Mi=8Mi", "hugepages-2Mi=8Mi"),
        ),
        (
            "unless they are requested",
            pod([huge()]).whole("cpu=1 hugepages-2Mi=8Mi", ""),
            ("cpu=1 hugepages-2Mi=8Mi", ""),
        ),
    ];
    for (name, given, (requests, limits)) in table {
        for (dialect, rules) in rules() {
            let pod = defaulted(given.clone(), &rules);
            assert_eq!(pod.spec_of().resources, Some(resources(requests, limits)), "{name} ({dialect})");
            assert_eq!(defaulted(pod.clone(), &rules), pod, "{name} ({dialect}): once is enough");
        }
    }
    let unreadable = pod([container("c", "cpu=lots", "")]).whole("", "cpu=4");
    let bad = default_pod(&mut unreadable.clone(), &Rules::kep()).unwrap_err();
    assert_eq!(bad.text, "lots");
    assert_eq!(defaulted(pod([container("c", "cpu=1", "cpu=2")]), &Rules::kep()).spec_of().resources, None);
}

#[test]
fn policies_are_filled_in_under_the_keps_rules_alone() {
    let table = [
        ("none", "", "cpu=NotRequired memory=NotRequired"),
        ("cpu", "cpu=RestartContainer", "cpu=RestartContainer memory=NotRequired"),
        ("memory", "memory=RestartContainer", "memory=RestartContainer cpu=NotRequired"),
        ("both", "memory=NotRequired cpu=RestartContainer", "memory=NotRequired cpu=RestartContainer"),
        (
            "a wrong one stays for validation",
            "disk=Sometimes",
            "disk=Sometimes cpu=NotRequired memory=NotRequired",
        ),
    ];
    let with = |policy: &str| container("c", "cpu=1", "").policy(policy);
    for (name, given, expected) in table {
        let given = pod([with(given)]).init([with(given).sidecar(), with(given)]);
        let kep = defaulted(given.clone(), &Rules::kep());
        let policies = |container: &Container| container.resize_policy.clone();
        let expected = policies(&with(expected));
        assert_eq!(policies(&kep.spec_of().containers[0]), expected, "{name}: main");
        let init = kep.spec_of().init_containers.as_ref().unwrap();
        assert_eq!(policies(&init[0]), expected, "{name}: sidecar");
        let untouched = policies(&given.spec_of().containers[0]);
        assert_eq!(policies(&init[1]), untouched, "{name}: plain init containers are not resized");
        for rules in [Rules::v1_36(), gate_off()] {
            assert_eq!(defaulted(given.clone(), &rules), given, "{name}: not otherwise");
        }
    }
    let absent = pod([container("c", "cpu=1", "")]);
    assert_eq!(defaulted(absent.clone(), &Rules::v1_36()), absent, "an absent list stays absent");
}

#[test]
fn fields_that_an_old_client_leaves_out_are_copied_back() {
    let with = |policy: &str| container("c", "cpu=1", "").policy(policy);
    let other = |name: &str| Container { name: name.to_owned(), ..with("memory=RestartContainer") };
    let stored = pod([with("cpu=RestartContainer"), other("d")]).init([other("i").sidecar()]).running();
    let mut sent = stored.clone();
    for container in sent
        .spec
        .iter_mut()
        .flat_map(|spec| spec.init_containers.iter_mut().flatten().chain(&mut spec.containers))
    {
        container.resize_policy = None;
    }
    // Known by its name, wherever it stands.
    sent.spec.as_mut().unwrap().containers.reverse();
    let mut reversed = stored.clone();
    reversed.spec.as_mut().unwrap().containers.reverse();
    for statuses in
        sent.status.iter_mut().flat_map(|s| [&mut s.container_statuses, &mut s.init_container_statuses])
    {
        statuses.iter_mut().flatten().for_each(|status| status.allocated_resources = None);
    }
    let mut updated = sent.clone();
    copy_back(&stored, &mut updated, &Rules::kep());
    assert_eq!(updated, reversed);
    // An empty list is one that was left out: on the wire they are the same.
    let mut emptied = sent.clone().with(|spec| spec.containers[0].resize_policy = Some(vec![]));
    copy_back(&stored, &mut emptied, &Rules::kep());
    assert_eq!(emptied, reversed);

    let mut untouched = sent.clone();
    copy_back(&stored, &mut untouched, &Rules::v1_36());
    assert_eq!(untouched, sent, "not under the rules of 1.36");
}

#[test]
fn pod_level_allocations_that_an_old_client_leaves_out_are_copied_back() {
    let mut stored = pod([container("c", "cpu=1", "")]).whole("cpu=2", "cpu=3");
    allocate_at_creation(&mut stored, &Rules::kep());
    let mut sent = stored.clone();
    sent.status.as_mut().unwrap().allocated_resources = None;
    let mut updated = sent.clone();
    copy_back(&stored, &mut updated, &Rules::kep());
    assert_eq!(updated, stored);
    copy_back(&stored, &mut sent, &Rules::v1_36());
    assert_eq!(sent.status.unwrap().allocated_resources, None, "not under the rules of 1.36");
}

#[test]
fn fields_that_a_client_sets_are_not_overwritten() {
    let stored = pod([container("c", "cpu=1", "").policy("cpu=RestartContainer")]).running();
    let mut sent = stored.clone().with(|spec| {
        spec.containers[0] = container("c", "cpu=1", "").policy("cpu=NotRequired");
        spec.containers.push(container("new", "", ""));
    });
    sent.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0].allocated_resources = list("cpu=7");
    let before = sent.clone();
    copy_back(&stored, &mut sent, &Rules::kep());
    assert_eq!(sent, before);
    let mut bare = Pod::default();
    copy_back(&stored, &mut bare, &Rules::kep());
    assert_eq!(bare, Pod::default());
}

#[test]
fn copying_back_comes_before_filling_in() {
    let rules = Rules::kep();
    let stored = defaulted(pod([container("c", "cpu=1", "").policy("memory=RestartContainer")]), &rules);
    let mut sent = stored.clone().with(|spec| spec.containers[0].resize_policy = None);
    copy_back(&stored, &mut sent, &rules);
    assert_eq!(defaulted(sent, &rules), stored);
}

#[test]
fn a_new_pod_is_allocated_what_it_requests_under_the_keps_rules_alone() {
    let given = pod([container("c", "", "cpu=1 example.com/gpu=1"), container("d", "", "")])
        .init([container("i", "cpu=1", ""), container("s", "memory=1Mi", "").sidecar()])
        .whole("", "cpu=2");
    let mut pod = defaulted(given, &Rules::kep());
    allocate_at_creation(&mut pod, &Rules::kep());
    let status = pod.status_of();
    let shown = |statuses: Option<&Vec<ContainerStatus>>| -> Vec<(String, Option<WireList>)> {
        statuses.into_iter().flatten().map(|s| (s.name.clone(), s.allocated_resources.clone())).collect()
    };
    assert_eq!(
        shown(status.container_statuses.as_ref()),
        [("c".to_owned(), list("cpu=1 example.com/gpu=1")), ("d".to_owned(), None)]
    );
    assert_eq!(shown(status.init_container_statuses.as_ref()), [("s".to_owned(), list("memory=1Mi"))]);
    assert_eq!(status.allocated_resources, list("cpu=1 memory=1Mi"), "as a whole");
    assert!(
        status.container_statuses.iter().flatten().all(|status| status.resources.is_none()),
        "nothing runs yet"
    );

    for rules in [Rules::v1_36(), gate_off()] {
        let mut pod = super::pods::pod([container("c", "cpu=1", "")]);
        let before = pod.clone();
        allocate_at_creation(&mut pod, &rules);
        assert_eq!(pod, before, "not otherwise");
    }
}

#[test]
fn with_the_gate_off_new_fields_are_dropped_unless_the_pod_has_them_already() {
    let plain = || pod([container("c", "cpu=1", "")]).init([container("s", "", "").sidecar()]);
    let policy = |pod: Pod| {
        pod.with(|spec| {
            let policies = container("c", "", "").policy("cpu=NotRequired").resize_policy;
            spec.containers[0].resize_policy.clone_from(&policies);
            spec.init_containers.as_mut().unwrap()[0].resize_policy = policies;
        })
    };
    let reported = policy(plain()).running().status(|status| {
        status.resize = Some("Proposed".to_owned());
        status.allocated_resources = list("cpu=1");
        status.resources = Some(resources("cpu=1", ""));
    });
    let after = |stored: Option<&Pod>, rules: &Rules| {
        let mut pod = reported.clone();
        drop_disabled(stored, &mut pod, rules);
        pod
    };
    let bare = plain().running().status(|status| {
        let statuses =
            status.container_statuses.iter_mut().chain(&mut status.init_container_statuses).flatten();
        for status in statuses {
            status.allocated_resources = None;
            status.resources = None;
        }
    });
    for (dialect, on) in rules() {
        let off = without(&features::IN_PLACE_POD_VERTICAL_SCALING, dialect);
        assert_eq!(after(None, &on), reported, "{dialect}: on");
        assert_eq!(after(None, &off), bare, "{dialect}: a new pod");
        assert_eq!(after(Some(&plain()), &off), bare, "{dialect}: a pod without them");
        assert_eq!(after(Some(&reported), &off), reported, "{dialect}: a pod with them");
        let whole_off = without(&features::POD_LEVEL_RESOURCES, dialect);
        let found = after(Some(&plain()), &whole_off);
        assert_eq!((&found.status_of().resources, &found.status_of().allocated_resources), (&None, &None));
        assert_eq!(found.spec, reported.spec, "{dialect}: only the whole is dropped");
        assert_eq!(after(Some(&reported), &whole_off), reported, "{dialect}: a whole that is there");
    }
}
