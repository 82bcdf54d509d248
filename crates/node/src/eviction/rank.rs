//! The order in which pods are evicted, as by the kubelet: those that use more than they request first, then those of lower
//! priority, then those that exceed their requests by more.

use std::cmp::Reverse;

use super::candidate::{Candidate, PodUsage};
use super::signal::{Signal, StarvedResource};

/// Which file systems a pod uses: images and writable layers may be on one of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disks {
    /// Whether images and writable layers are on another file system than volumes and logs.
    pub dedicated_image_fs: bool,
}

/// The pods in the order in which they are evicted for a signal. Pods of which no usage is known are first.
pub(super) fn rank(candidates: &[Candidate], signal: Signal, disks: Disks) -> Vec<&Candidate> {
    let mut ranked: Vec<&Candidate> = candidates.iter().collect();
    match signal.resource() {
        StarvedResource::Memory => ranked.sort_by_cached_key(|candidate| {
            let request = candidate.memory_request();
            let excess = excess(candidate, |usage| usage.memory, request);
            (exceeds(excess), candidate.priority(), Reverse(excess), candidate.uid().to_owned())
        }),
        StarvedResource::Pids => ranked.sort_by_cached_key(|candidate| {
            // Pods do not request process ids, so none exceeds its request.
            let tasks = Reverse(excess(candidate, |usage| usage.tasks, 0));
            (candidate.priority(), tasks, candidate.uid().to_owned())
        }),
        resource @ (StarvedResource::EphemeralStorage | StarvedResource::Inodes) => {
            let used = |usage: &PodUsage| {
                let (layers, others) = match (disks.dedicated_image_fs, signal.is_of_images()) {
                    (false, _) => (true, true),
                    (true, of_images) => (of_images, !of_images),
                };
                let used = usage.disk(layers, others);
                if resource == StarvedResource::Inodes { used.inodes } else { used.bytes }
            };
            ranked.sort_by_cached_key(|candidate| {
                let bytes = candidate.storage_request();
                let request = if resource == StarvedResource::Inodes { 0 } else { bytes };
                let is_exceeded = exceeds(excess(candidate, used, request));
                // Upstream subtracts the requested bytes of inodes, too.
                let excess = excess(candidate, used, bytes);
                (is_exceeded, candidate.priority(), Reverse(excess), candidate.uid().to_owned())
            });
        }
    }
    ranked
}

/// How much more a pod uses than it requests. The excess of a pod without known usage is larger than any.
fn excess(candidate: &Candidate, used: impl Fn(&PodUsage) -> u64, request: i64) -> i128 {
    let usage = candidate.usage.as_ref();
    usage.map_or(i128::MAX, |usage| i128::from(used(usage)) - i128::from(request))
}

/// Sorts pods without known usage first, and then those that use more than they request.
fn exceeds(excess: i128) -> u8 {
    match excess {
        i128::MAX => 0,
        1.. => 1,
        _ => 2,
    }
}
