//! A namespace with a limit range and one valid pod, which is resized within its bounds and beyond them.

use k8s_openapi::api::core::v1::{LimitRangeItem, LimitRangeSpec};
use plumb_resize::limit_range::violations;
use plumb_resize::rules::Rules;
use plumb_resize::validate;

use super::super::pods::{PodExt, container, list, pod};

fn range(type_: &str, min: &str, max: &str, ratio: &str) -> LimitRangeSpec {
    LimitRangeSpec {
        limits: vec![LimitRangeItem {
            type_: type_.to_owned(),
            min: list(min),
            max: list(max),
            max_limit_request_ratio: list(ratio),
            ..LimitRangeItem::default()
        }],
    }
}

#[test]
fn a_resize_stays_within_the_bounds_of_its_namespace() {
    let bounds = range("Container", "cpu=50m memory=50Mi", "cpu=500m memory=500Mi", "");
    let stored = pod([container("c", "cpu=100m memory=100Mi", "cpu=200m memory=200Mi")]).running();
    let table: [(&str, &str, &str, &[&str]); 8] = [
        ("cpu grows", "cpu=300m memory=100Mi", "cpu=400m memory=200Mi", &[]),
        ("cpu shrinks", "cpu=60m memory=100Mi", "cpu=70m memory=200Mi", &[]),
        (
            "cpu beyond the maximum",
            "cpu=100m memory=100Mi",
            "cpu=600m memory=200Mi",
            &["maximum cpu usage per Container is 500m, but limit is 600m"],
        ),
        (
            "cpu below the minimum",
            "cpu=10m memory=100Mi",
            "cpu=200m memory=200Mi",
            &["minimum cpu usage per Container is 50m, but request is 10m"],
        ),
        ("memory within bounds", "cpu=100m memory=60Mi", "cpu=200m memory=480Mi", &[]),
        (
            "memory beyond the maximum",
            "cpu=100m memory=100Mi",
            "cpu=200m memory=600Mi",
            &["maximum memory usage per Container is 500Mi, but limit is 600Mi"],
        ),
        (
            "memory below the minimum",
            "cpu=100m memory=10Mi",
            "cpu=200m memory=200Mi",
            &["minimum memory usage per Container is 50Mi, but request is 10Mi"],
        ),
        (
            "both at once",
            "cpu=10m memory=100Mi",
            "cpu=200m memory=1Gi",
            &[
                "minimum cpu usage per Container is 50m, but request is 10m",
                "maximum memory usage per Container is 500Mi, but limit is 1Gi",
            ],
        ),
    ];
    for (name, requests, limits, expected) in table {
        let new = stored.respec(|spec| {
            let resources = spec.containers[0].resources.as_mut().unwrap();
            (resources.requests, resources.limits) = (list(requests), list(limits));
        });
        for rules in [Rules::kep(), Rules::v1_36()] {
            assert_eq!(validate::resize(&stored, &new, &rules), [], "{name}: the rules of a resize");
        }
        assert_eq!(violations(new.spec_of(), &bounds).unwrap(), expected, "{name}");
    }
}

#[test]
fn a_pod_is_bounded_as_a_whole_and_in_how_far_it_may_burst() {
    let two = pod([container("a", "cpu=300m", "cpu=600m"), container("b", "cpu=300m", "cpu=900m")]);
    assert_eq!(
        violations(two.spec_of(), &range("Pod", "cpu=1", "cpu=1", "")).unwrap(),
        [
            "minimum cpu usage per Pod is 1, but request is 600m",
            "maximum cpu usage per Pod is 1, but limit is 1500m"
        ]
    );
    assert_eq!(
        violations(two.spec_of(), &range("Container", "", "", "cpu=2")).unwrap(),
        ["cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000"]
    );
    let bare = pod([container("a", "", "")]);
    assert_eq!(
        violations(bare.spec_of(), &range("Container", "cpu=1", "cpu=2", "cpu=2")).unwrap(),
        [
            "minimum cpu usage per Container is 1.  No request is specified",
            "maximum cpu usage per Container is 2.  No limit is specified",
            "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
        ]
    );
}
