//! Growth of limits by the node.

mod cpu;
mod memory;

use plumb_resize::aggregate::Role;
use plumb_resize::growth::{ContainerViolation, GrowthBounds, GrowthViolation, InvalidBounds, check, grown};
use plumb_resize::pod::{ContainerShape, PodResources, PodShape};
use plumb_resize::qos::QosClass;
use plumb_resize::resource::{Declared, PerResource, Requirements, Resource};

const MIB: i64 = 1 << 20;

#[test]
fn bounds_are_one_amount_or_one_for_each_container() {
    let bounds = |text: &str| GrowthBounds::parse(Resource::Memory, text);
    assert_eq!(bounds("512Mi").unwrap().maximum("any"), Some(512 * MIB));
    let named = bounds(" app = 1Gi , proxy=64Mi ").unwrap();
    assert_eq!(named.to_string(), "app=1Gi,proxy=64Mi");
    assert_eq!(bounds(&named.to_string()), Ok(named));
    assert_eq!(bounds("0"), Err(InvalidBounds::NotPositive("0".to_owned())));
    assert_eq!(bounds("a=1Gi,a=2Gi"), Err(InvalidBounds::Duplicate("a".to_owned())));
    assert_eq!(bounds("a=1Gi,2Gi"), Err(InvalidBounds::Form("2Gi".to_owned())));
    assert_eq!(bounds("=1Gi"), Err(InvalidBounds::Form("=1Gi".to_owned())));
    assert!(matches!(bounds("true"), Err(InvalidBounds::Amount { .. })));
    assert!(matches!(bounds(""), Err(InvalidBounds::Amount { .. })));
    let cpu = GrowthBounds::parse(Resource::Cpu, "app=2,proxy=500m").unwrap();
    assert_eq!(
        (cpu.maximum("app"), cpu.maximum("proxy"), cpu.maximum("other")),
        (Some(2000), Some(500), None)
    );
    assert_eq!(cpu.to_string(), "app=2,proxy=500m");
}

/// A pod of two containers of 100 thousandths of a core and 64 MiB.
fn pair() -> (PodShape, PodResources) {
    let container = |name: &str| ContainerShape {
        name: name.to_owned(),
        role: Role::Main,
        policy: PerResource::default(),
    };
    let containers = vec![container("app"), container("other")];
    let shape = PodShape { containers, overhead: Declared::NONE, qos: QosClass::Guaranteed };
    (shape, PodResources { containers: vec![Requirements::equal(100, 64 * MIB); 2], pod: None })
}

#[test]
fn a_node_may_raise_memory_limits_within_the_bounds_and_nothing_else() {
    let (shape, old) = pair();
    let bounds = PerResource::new(None, GrowthBounds::parse(Resource::Memory, "app=128Mi").ok());
    let app = |requirements: Requirements| {
        let mut new = old.clone();
        new.containers[0] = requirements;
        check(&shape, &old, &new, &bounds)
    };
    let from = old.containers[0];
    let memory = |request: Option<i64>, limit: Option<i64>| {
        let mut to = from;
        (to.requests.memory, to.limits.memory) = (request.map(|mib| mib * MIB), limit.map(|mib| mib * MIB));
        to
    };
    assert_eq!(app(from), Ok(()));
    assert_eq!(app(grown(from, 128 * MIB)), Ok(()));
    assert_eq!(app(memory(Some(64), Some(128))), Ok(()), "a limit alone");
    let violation = |resource, violation| {
        Err(GrowthViolation::Container { container: "app".to_owned(), resource, violation })
    };
    let upward = violation(Resource::Memory, ContainerViolation::NotUpward);
    for lower in [memory(Some(64), Some(63)), memory(Some(64), None), memory(Some(65), Some(64))] {
        assert_eq!(app(lower), upward, "{lower:?}");
    }
    let request = violation(Resource::Memory, ContainerViolation::Request);
    for odd in [memory(Some(100), Some(80)), memory(Some(63), Some(80)), memory(None, Some(80))] {
        assert_eq!(app(odd), request, "{odd:?}");
    }
    let above = app(grown(from, 129 * MIB)).unwrap_err();
    assert_eq!(above.to_string(), r#"the memory limit 129Mi of container "app" is above its maximum 128Mi"#);
    let mut cpu = grown(from, 80 * MIB);
    cpu.limits.cpu = Some(200);
    assert_eq!(app(cpu), violation(Resource::Cpu, ContainerViolation::NotOptedIn));
    let mut other = old.clone();
    other.containers[1] = grown(from, 80 * MIB);
    let message = check(&shape, &old, &other, &bounds).unwrap_err().to_string();
    assert_eq!(message, r#"container "other" has no maximum up to which its memory may grow"#);
    let pod_level = PodResources { pod: Some(Requirements::equal(1000, 1024 * MIB)), ..old.clone() };
    assert_eq!(check(&shape, &old, &pod_level, &bounds), Err(GrowthViolation::PodLevel));
}

#[test]
fn a_node_may_raise_each_resource_only_as_far_as_its_own_bounds_allow() {
    let (shape, old) = pair();
    let bounds = PerResource::new(
        GrowthBounds::parse(Resource::Cpu, "app=1").ok(),
        GrowthBounds::parse(Resource::Memory, "128Mi").ok(),
    );
    let app = |requests: (i64, i64), limits: (i64, i64)| {
        let mut new = old.clone();
        new.containers[0] = Requirements {
            requests: Declared::both(requests.0, requests.1 * MIB),
            limits: Declared::both(limits.0, limits.1 * MIB),
        };
        check(&shape, &old, &new, &bounds).map_err(|violation| violation.to_string())
    };
    for (what, requests, limits, expected) in [
        ("the cpu limit alone", (100, 64), (1000, 64), Ok(())),
        ("with its request", (1000, 64), (1000, 64), Ok(())),
        ("both resources", (200, 128), (200, 128), Ok(())),
        ("lower", (50, 64), (50, 64), Err("the cpu limit of container \"app\" may only be raised")),
        (
            "too far",
            (100, 64),
            (1001, 64),
            Err("the cpu limit 1001m of container \"app\" is above its maximum 1"),
        ),
        (
            "one resource within its bounds and one not",
            (200, 64),
            (200, 129),
            Err("the memory limit 129Mi of container \"app\" is above its maximum 128Mi"),
        ),
        (
            "the request by more",
            (300, 64),
            (200, 64),
            Err("the cpu request of container \"app\" may be raised by as much as its limit, and no more"),
        ),
    ] {
        assert_eq!(app(requests, limits), expected.map_err(str::to_owned), "{what}");
    }
}
