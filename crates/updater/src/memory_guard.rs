//! The memory decrease guard: memory is not lowered below the recent usage.
//!
//! When a memory limit is lowered in place there is a small risk of an OOM kill: between the node's last look at the usage
//! and the new limit the container may use more (KEP-1287; AEP-8818 names it as the remaining risk of the mode `InPlace`).
//! The guard, off by default as AEP-8818 has it, lowers neither request nor limit below the highest usage of the recent
//! window plus a margin, and does not lower memory at all while the usage is unknown.

use plumb_resize::resource::Requirements;

use crate::state::{PodState, Recommendation};

/// The annotation of a VPA that turns the guard on or off for its pods.
pub const ANNOTATION: &str = "plumb.dev/memory-decrease-guard";

/// By how much memory stays above the highest usage, in percent.
pub const DEFAULT_MARGIN_PERCENT: u32 = 15;

/// Whether the guard is on for a VPA: by its annotation, else by the flag.
pub fn is_on(annotation: Option<&str>, flag: bool) -> bool {
    match annotation {
        Some("true") => true,
        Some("false") => false,
        _ => flag,
    }
}

/// A recommendation whose memory is not below the highest usage of each container plus a margin, as far as it would be
/// lowered. `peak` answers with the highest usage in bytes, if it is known.
#[must_use]
pub fn guard(
    pod: &PodState,
    mut recommendation: Recommendation,
    margin_percent: u32,
    peak: impl Fn(&str) -> Option<i64>,
) -> Recommendation {
    for wanted in &mut recommendation.containers {
        let Some(container) = pod.containers.iter().find(|container| container.name == wanted.name) else {
            continue;
        };
        let least = peak(&container.name).map(|peak| {
            let margin = i128::from(peak) * i128::from(margin_percent) / 100;
            i64::try_from(i128::from(peak) + margin).unwrap_or(i64::MAX)
        });
        let Requirements { requests, limits } = container.desired;
        wanted.target.memory = raised(wanted.target.memory, requests.memory, least);
        wanted.limits.memory = raised(wanted.limits.memory, limits.memory, least);
    }
    recommendation
}

/// The new value for a desired `new`: not lower than the minimum, unless the old one is lower already.
fn raised(new: Option<i64>, current: Option<i64>, least: Option<i64>) -> Option<i64> {
    let (Some(wanted), Some(current)) = (new, current) else { return new };
    if wanted >= current {
        return new;
    }
    Some(wanted.max(least.map_or(current, |least| least.min(current))))
}
