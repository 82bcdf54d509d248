//! The class of a pod.

use k8s_openapi::api::core::v1::{Container, Pod};
use plumb_resize::qos::QosClass;
use plumb_resize::qos::QosClass::{BestEffort, Burstable, Guaranteed};

use super::pods::{ContainerExt, PodExt, container, pod};

fn full(name: &str) -> Container {
    container(name, "cpu=1 memory=1Gi", "cpu=1 memory=1Gi")
}

fn none(name: &str) -> Container {
    container(name, "", "")
}

#[test]
fn the_class_of_a_spec() {
    let table: [(&str, Pod, QosClass); 29] = [
        ("nothing", pod([none("a")]), BestEffort),
        ("no containers", pod([]), BestEffort),
        ("no resources field", pod([none("a")]).with(|spec| spec.containers[0].resources = None), BestEffort),
        ("zeros", pod([container("a", "cpu=0 memory=0", "cpu=0")]), BestEffort),
        (
            "storage alone",
            pod([container("a", "ephemeral-storage=1Gi", "ephemeral-storage=1Gi")]),
            BestEffort,
        ),
        ("a device alone", pod([container("a", "example.com/gpu=1", "example.com/gpu=1")]), BestEffort),
        ("a cpu request", pod([container("a", "cpu=1m", "")]), Burstable),
        ("a memory request", pod([container("a", "memory=1", "")]), Burstable),
        ("a cpu limit", pod([container("a", "", "cpu=1")]), Burstable),
        ("limits without requests", pod([container("a", "", "cpu=1 memory=1Gi")]), Burstable),
        ("requests below limits", pod([container("a", "cpu=1 memory=1Gi", "cpu=2 memory=1Gi")]), Burstable),
        ("cpu alone", pod([container("a", "cpu=1", "cpu=1")]), Burstable),
        ("a zero memory limit", pod([container("a", "cpu=1 memory=0", "cpu=1 memory=0")]), Burstable),
        ("all of it", pod([full("a")]), Guaranteed),
        ("in other words", pod([container("a", "cpu=1000m memory=1024Mi", "cpu=1 memory=1Gi")]), Guaranteed),
        (
            "and storage",
            pod([container("a", "cpu=1 memory=1Gi ephemeral-storage=1Gi", "cpu=1 memory=1Gi")]),
            Guaranteed,
        ),
        ("two", pod([full("a"), full("b")]), Guaranteed),
        ("one of two", pod([full("a"), none("b")]), Burstable),
        ("a sidecar without", pod([full("a")]).init([none("i").sidecar()]), Burstable),
        ("an init container without", pod([full("a")]).init([none("i")]), Burstable),
        ("an init container with", pod([full("a")]).init([full("i")]), Guaranteed),
        ("only an init container", pod([none("a")]).init([full("i")]), Burstable),
        // Pod-level resources alone decide, where there are any.
        ("a Guaranteed whole", pod([none("a")]).whole("cpu=1 memory=1Gi", "cpu=1 memory=1Gi"), Guaranteed),
        ("a whole with requests", pod([full("a")]).whole("cpu=1 memory=1Gi", ""), Burstable),
        ("a whole with limits", pod([full("a")]).whole("", "cpu=1 memory=1Gi"), Burstable),
        ("a whole with cpu", pod([full("a")]).whole("cpu=1", "cpu=1"), Burstable),
        ("a whole with zeros", pod([full("a")]).whole("cpu=0", "cpu=0"), BestEffort),
        (
            "a whole with huge pages",
            pod([full("a")]).whole("hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi"),
            BestEffort,
        ),
        ("an empty whole, which speaks for the pod", pod([full("a")]).whole("", ""), BestEffort),
    ];
    for (name, pod, class) in table {
        assert_eq!(QosClass::of_spec(pod.spec_of()), Ok(class), "{name}");
    }
}

#[test]
fn the_recorded_class_comes_before_the_computed_one() {
    let recorded = |class: &str| {
        let class = class.to_owned();
        pod([full("a")]).status(|status| status.qos_class = Some(class))
    };
    assert_eq!(QosClass::of_pod(&recorded("Burstable")), Ok(Burstable));
    assert_eq!(QosClass::of_pod(&recorded("")), Ok(Guaranteed), "an empty one is none");
    assert_eq!(QosClass::of_pod(&recorded("Golden")), Ok(Guaranteed), "an unknown one is none");
    assert_eq!(QosClass::of_pod(&pod([full("a")])), Ok(Guaranteed));
    assert_eq!(QosClass::of_pod(&Pod::default()), Ok(BestEffort));
}

#[test]
fn classes_have_names_and_an_order() {
    for class in [Guaranteed, Burstable, BestEffort] {
        assert_eq!(QosClass::named(class.name()), Some(class));
        assert_eq!(class.to_string(), class.name());
    }
    assert_eq!(QosClass::named("guaranteed"), None);
    assert!(Guaranteed < Burstable && Burstable < BestEffort);
}

#[test]
fn a_quantity_that_cannot_be_read_is_named() {
    let pod = pod([container("a", "", "memory=much")]);
    let bad = QosClass::of_spec(pod.spec_of()).unwrap_err();
    assert_eq!((bad.resource.as_str(), bad.text.as_str()), ("memory", "much"));
}
