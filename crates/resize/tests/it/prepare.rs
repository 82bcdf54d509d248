//! What is taken from the body of a `/resize` request.

use k8s_openapi::api::core::v1::{EphemeralContainer, Pod, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use plumb_features::FeatureGates;
use plumb_resize::features;
use plumb_resize::rules::{Dialect, Rules};
use plumb_resize::validate::prepare_resize;

use super::pods::{ContainerExt, PodExt, container, pod, resources};

fn stored() -> Pod {
    pod([container("a", "cpu=1", ""), container("b", "cpu=1", "").policy("cpu=NotRequired")])
        .init([container("s", "cpu=1", "").sidecar(), container("i", "cpu=1", "")])
        .whole("cpu=4", "")
        .running()
}

fn both_rules() -> [(&'static str, Rules); 2] {
    [("kep", Rules::kep()), ("v1.36", Rules::v1_36())]
}

#[test]
fn resources_and_policies_are_taken() {
    for (dialect, rules) in both_rules() {
        let body = stored().with(|spec| {
            spec.containers[0].resources = Some(resources("cpu=2", "cpu=3"));
            spec.containers[1].resources = None;
            spec.containers[1].resize_policy =
                container("b", "", "").policy("cpu=RestartContainer").resize_policy;
            let init = spec.init_containers.as_mut().unwrap();
            init[0].resources = Some(resources("memory=1Gi", ""));
            init[1].resources = Some(resources("cpu=5", ""));
            spec.resources = Some(resources("cpu=8", ""));
        });
        assert_eq!(prepare_resize(&stored(), body.clone(), &rules), body, "{dialect}");
    }
}

#[test]
fn other_fields_of_a_spec_are_ignored() {
    for (dialect, rules) in both_rules() {
        let body = stored().with(|spec| {
            spec.containers[0].image = Some("else".to_owned());
            spec.containers[0].command = Some(vec!["sh".to_owned()]);
            spec.init_containers.as_mut().unwrap()[0].restart_policy = None;
            spec.ephemeral_containers = Some(vec![EphemeralContainer::default()]);
            spec.node_name = Some("elsewhere".to_owned());
            spec.tolerations = Some(vec![Toleration::default()]);
            spec.overhead = super::pods::list("cpu=1");
            spec.active_deadline_seconds = Some(1);
        });
        let body = body.status(|status| {
            status.phase = Some("Failed".to_owned());
            status.qos_class = Some("BestEffort".to_owned());
            status.container_statuses = None;
        });
        assert_eq!(prepare_resize(&stored(), body, &rules), stored(), "{dialect}");
        let without_spec = Pod { metadata: stored().metadata, ..Pod::default() };
        assert_eq!(prepare_resize(&stored(), without_spec, &rules), stored(), "{dialect}: no spec");
    }
}

#[test]
fn of_metadata_only_the_resource_version_and_managed_fields_are_taken() {
    let mut kept = stored();
    kept.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
    kept.metadata.annotations = Some([("note".to_owned(), "kept".to_owned())].into());
    kept.metadata.finalizers = Some(vec!["example.com/wait".to_owned()]);
    let mut body = kept.clone();
    body.metadata.labels = None;
    body.metadata.annotations = Some([("kubernetes.io/config.mirror".to_owned(), "x".to_owned())].into());
    body.metadata.finalizers = None;
    body.metadata.owner_references = Some(vec![OwnerReference::default()]);
    body.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    body.metadata.generation = Some(99);
    body.metadata.uid = Some("another".to_owned());
    body.metadata.resource_version = Some("7".to_owned());
    body.metadata.managed_fields = Some(vec![ManagedFieldsEntry {
        manager: Some("kubectl".to_owned()),
        ..ManagedFieldsEntry::default()
    }]);
    let mut expected = kept.clone();
    expected.metadata.resource_version.clone_from(&body.metadata.resource_version);
    expected.metadata.managed_fields.clone_from(&body.metadata.managed_fields);
    assert_eq!(prepare_resize(&kept, body, &Rules::v1_36()), expected);

    // Without a version the request is not about any one in particular.
    let mut unconditional = kept.clone();
    unconditional.metadata.resource_version = None;
    let prepared = prepare_resize(&kept, unconditional, &Rules::v1_36());
    assert_eq!(prepared.metadata.resource_version, None);
}

#[test]
fn lists_that_do_not_correspond_are_passed_on_as_they_came() {
    let with_init = |pod: Pod, change: fn(&mut Vec<k8s_openapi::api::core::v1::Container>)| {
        pod.with(|spec| change(spec.init_containers.as_mut().unwrap()))
    };
    let table: [(&str, Pod); 7] = [
        ("a container more", stored().with(|spec| spec.containers.push(container("c", "", "")))),
        ("a container less", stored().with(|spec| spec.containers.truncate(1))),
        ("no containers", stored().with(|spec| spec.containers.clear())),
        ("another name", stored().with(|spec| spec.containers[1].name = "c".to_owned())),
        ("another order", stored().with(|spec| spec.containers.swap(0, 1))),
        ("an init container less", with_init(stored(), |init| init.truncate(1))),
        ("another order of init containers", with_init(stored(), |init| init.swap(0, 1))),
    ];
    for (name, body) in table {
        for (dialect, rules) in both_rules() {
            assert_eq!(prepare_resize(&stored(), body.clone(), &rules), body, "{name} ({dialect})");
        }
    }
    for init in [None, Some(vec![])] {
        let body = stored().with(|spec| spec.init_containers = init);
        let prepared = prepare_resize(&stored(), body, &Rules::kep());
        assert_eq!(prepared.spec_of().init_containers, Some(vec![]), "no init containers");
    }
}

#[test]
fn a_list_of_none_stays_as_it_is_stored() {
    let plain = pod([container("a", "cpu=1", "")]);
    let empty = plain.clone().with(|spec| spec.init_containers = Some(vec![]));
    for (stored, body) in [(&plain, &empty), (&empty, &plain)] {
        assert_eq!(&prepare_resize(stored, body.clone(), &Rules::kep()), stored);
    }
}

#[test]
fn the_whole_is_taken_only_where_it_can_be_resized() {
    let off = FeatureGates::default().with(&features::POD_LEVEL_RESOURCES, false);
    for dialect in [Dialect::Kep, Dialect::V1_36] {
        let rules = Rules::new(dialect, &off);
        let body = stored().with(|spec| spec.resources = Some(resources("cpu=9", "")));
        assert_eq!(prepare_resize(&stored(), body, &rules), stored(), "{dialect:?}");
    }
}
