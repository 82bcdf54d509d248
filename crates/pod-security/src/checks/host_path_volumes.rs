//! Pods must not mount files of the node.

use crate::check::{Check, Forbidden, Revision};
use crate::level::Level;
use crate::message::{plural, quoted};
use crate::pod::Pod;

pub(super) static BASELINE: Check =
    Check { id: "hostPathVolumes", level: Level::Baseline, revisions: &[Revision::new(0, v1_0)] };

fn v1_0(pod: Pod<'_>) -> Option<Forbidden> {
    let volumes = pod.spec.volumes.iter().flatten();
    let of_node = volumes.filter(|volume| volume.host_path.is_some());
    let names: Vec<&str> = of_node.map(|volume| volume.name.as_str()).collect();
    (!names.is_empty()).then(|| Forbidden {
        reason: "hostPath volumes",
        detail: format!("{} {}", plural(names.len(), "volume", "volumes"), quoted(&names)),
    })
}
