//! Guaranteed pods with three containers.

use std::cmp::Ordering::{self, Equal, Greater, Less};

use plumb_resize::qos::QosClass::Guaranteed;
use plumb_resize::resource::{PerResource, Requirements, Resource};

use super::super::pods::pod;
use super::super::sizes::{containers, sizes};
use super::walk::walk;

const FROM: &str = "100 200 | 150 300 | 200 400";

/// Which way the sum of limits goes.
fn net(to: &str) -> PerResource<Ordering> {
    let sum = |sizes: &[Requirements], r: Resource| sizes.iter().map(|s| s.limits[r].unwrap()).sum::<i64>();
    PerResource::of(|r| sum(&sizes(to), r).cmp(&sum(&sizes(FROM), r)))
}

#[test]
fn guaranteed() {
    let rows = [
        ("increase cpu and memory for all", "150 250 | 200 350 | 250 450", Greater, Greater),
        ("decrease cpu and memory for all", "50 150 | 100 250 | 150 350", Less, Less),
        ("increase cpu, decrease memory for all", "150 150 | 200 250 | 250 350", Greater, Less),
        ("decrease cpu, increase memory for all", "50 250 | 100 350 | 150 450", Less, Greater),
        ("increase cpu for c1, decrease c2: no net change", "150 200 | 100 300 | 200 400", Equal, Equal),
        ("increase memory for c1, decrease c2: no net change", "100 250 | 150 250 | 200 400", Equal, Equal),
        ("increase cpu for c1, decrease c2 and c3: net decrease", "150 200 | 100 300 | 150 400", Less, Equal),
        (
            "increase memory for c1, decrease c2 and c3: net decrease",
            "100 250 | 150 250 | 200 350",
            Equal,
            Less,
        ),
        (
            "increase cpu for c1 and c3, decrease c2: net increase",
            "150 200 | 100 300 | 250 400",
            Greater,
            Equal,
        ),
        (
            "increase memory for c1 and c3, decrease c2: net increase",
            "100 250 | 150 250 | 200 450",
            Equal,
            Greater,
        ),
    ];
    for (name, to, cpu, memory) in rows {
        assert_eq!(net(to), PerResource::new(cpu, memory), "{name}: the row is what it says");
        walk(name, Guaranteed, &pod(containers(FROM)), FROM, to, &[]);
    }
}
