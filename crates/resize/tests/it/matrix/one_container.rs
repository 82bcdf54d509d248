//! Pods with one container.

use plumb_resize::qos::QosClass::{Burstable, Guaranteed};

use super::walk::walk_all;

#[test]
fn guaranteed() {
    walk_all(
        Guaranteed,
        &[
            ("increase cpu", "30 45", "35 45"),
            ("decrease cpu", "30 45", "25 45"),
            ("increase memory", "30 45", "30 50"),
            ("decrease memory", "30 45", "30 40"),
            ("increase cpu and memory", "30 45", "35 50"),
            ("decrease cpu and memory", "30 45", "25 40"),
            ("increase cpu and decrease memory", "30 45", "35 40"),
            ("decrease cpu and increase memory", "30 45", "25 50"),
        ],
    );
}

#[test]
fn burstable_with_cpu_and_memory() {
    walk_all(
        Burstable,
        &[
            ("requests: increase cpu", "20/30 35/45", "25/30 35/45"),
            ("requests: decrease cpu", "20/30 35/45", "15/30 35/45"),
            ("requests: increase memory", "20/30 35/45", "20/30 40/45"),
            ("requests: decrease memory", "20/30 35/45", "20/30 30/45"),
            ("requests: increase cpu and memory", "20/30 35/45", "25/30 40/45"),
            ("requests: decrease cpu and memory", "20/30 35/45", "15/30 30/45"),
            ("limits: increase cpu", "20/30 35/45", "20/35 35/45"),
            ("limits: decrease cpu", "20/30 35/45", "20/25 35/45"),
            ("limits: increase memory", "20/30 35/45", "20/30 35/50"),
            ("limits: decrease memory", "20/30 35/45", "20/30 35/40"),
            ("limits: increase cpu and memory", "20/30 35/45", "20/35 35/50"),
            ("limits: decrease cpu and memory", "20/30 35/45", "20/25 35/40"),
            ("requests and limits: increase cpu", "20/30 35/45", "25/35 35/45"),
            ("requests and limits: decrease cpu", "20/30 35/45", "15/25 35/45"),
            ("requests and limits: increase memory", "20/30 35/45", "20/30 40/50"),
            ("requests and limits: decrease memory", "20/30 35/45", "20/30 30/40"),
            ("requests and limits: increase cpu and memory", "20/30 35/45", "25/35 40/50"),
            ("requests and limits: decrease cpu and memory", "20/30 35/45", "15/25 30/40"),
            ("requests and limits: increase cpu and decrease memory", "20/30 35/45", "25/35 30/40"),
            ("requests and limits: decrease cpu and increase memory", "20/30 35/45", "15/25 40/50"),
            ("cpu: increase requests and decrease limits", "20/30 35/45", "23/25 35/45"),
            ("cpu: decrease requests and increase limits", "20/30 35/45", "15/35 35/45"),
            ("memory: increase requests and decrease limits", "20/30 35/45", "20/30 38/40"),
            ("memory: decrease requests and increase limits", "20/30 35/45", "20/30 30/50"),
            ("cpu and memory: increase requests and decrease limits", "20/30 35/45", "23/25 38/40"),
            ("cpu and memory: decrease requests and increase limits", "20/30 35/45", "15/35 30/50"),
        ],
    );
}

#[test]
fn burstable_with_cpu_only() {
    walk_all(
        Burstable,
        &[
            ("requests: increase", "20/30 -", "25/30 -"),
            ("requests: decrease", "20/30 -", "15/30 -"),
            ("limits: increase", "20/30 -", "20/35 -"),
            ("limits: decrease", "20/30 -", "20/25 -"),
            ("requests and limits: increase", "20/30 -", "25/35 -"),
            ("requests and limits: decrease", "20/30 -", "15/25 -"),
        ],
    );
}

#[test]
fn burstable_with_memory_only() {
    walk_all(
        Burstable,
        &[
            ("requests: increase", "- 35/45", "- 40/45"),
            ("requests: decrease", "- 35/45", "- 30/45"),
            ("limits: increase", "- 35/45", "- 35/50"),
            ("limits: decrease", "- 35/45", "- 35/40"),
            ("requests and limits: increase", "- 35/45", "- 40/50"),
            ("requests and limits: decrease", "- 35/45", "- 30/40"),
        ],
    );
}
