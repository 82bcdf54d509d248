//! Conversion between cgroup settings and a pod's requests and limits.
//!
//! A cgroup has shares and quotas, a pod requests and limits; different requests may have the same shares. So the
//! agent compares the values of a cgroup with those that were written last: if they agree, the written requests and
//! limits are the actual ones, and if not, the actual ones are computed from the shares and quotas.

use plumb_resize::cgroup::{
    DEFAULT_PERIOD, WeightScale, actual_cpu_limit, actual_cpu_request, actual_memory_limit, memory_limit,
    milli_of_shares, quota, shares,
};
use plumb_resize::pod::PodCgroup;
use plumb_resize::resource::{Declared, Requirements};
use plumb_runtime::cgroup::page_size;
use plumb_runtime::types::LinuxResources;

/// Memory limits from here on are cgroup v1's way of having none: the largest number of whole pages, whatever their size.
const UNLIMITED: i64 = 1 << 62;

/// The cgroup settings of a container with these requests and limits. It may not swap, as without a swap behavior of the
/// kubelet: memory and swap together are limited to what memory is. Else a lowered limit would only swap memory out.
pub fn container_cgroup(resources: &Requirements) -> LinuxResources {
    let limits = limits(resources.limits.cpu, resources.limits.memory);
    LinuxResources {
        cpu_shares: Some(shares(shares_request(resources))),
        memory_swap_limit: limits.memory_limit.filter(|limit| *limit >= 0),
        ..limits
    }
}

/// The cgroup settings of a pod.
pub fn pod_cgroup(cgroup: &PodCgroup) -> LinuxResources {
    LinuxResources {
        cpu_shares: Some(shares(cgroup.cpu_request)),
        ..limits(cgroup.limits.cpu, cgroup.limits.memory)
    }
}

/// The request that a container's shares are computed from: its limit, if it has only that.
fn shares_request(resources: &Requirements) -> i64 {
    resources.requests.cpu.or(resources.limits.cpu).unwrap_or(0)
}

fn limits(cpu: Option<i64>, memory: Option<i64>) -> LinuxResources {
    LinuxResources {
        cpu_period: Some(DEFAULT_PERIOD),
        cpu_quota: Some(quota(cpu, DEFAULT_PERIOD).unwrap_or(-1)),
        memory_limit: Some(memory_limit(memory).unwrap_or(-1)),
        ..LinuxResources::default()
    }
}

/// The actual requests and limits of a container whose cgroup was last set for `written`.
///
/// Settings that the runtime does not return are assumed to be as written; a memory request is in no cgroup.
pub fn actual_container(read: &LinuxResources, written: &Requirements) -> Requirements {
    let mut requests = written.requests;
    if let Some(read) = read.cpu_shares
        && !is_of(read, shares(shares_request(written)), WeightScale::Quadratic)
    {
        requests.cpu = actual_cpu_request(read, requests.cpu);
    }
    Requirements { requests, limits: actual_limits(read, written.limits) }
}

/// The actual resources of a pod whose cgroup was last set to `written`.
pub fn actual_pod(read: &LinuxResources, written: &PodCgroup) -> PodCgroup {
    let other = |read: &u64| !is_of(*read, shares(written.cpu_request), WeightScale::Linear);
    let request = read.cpu_shares.filter(other).map(milli_of_shares);
    PodCgroup {
        cpu_request: request.unwrap_or(written.cpu_request),
        limits: actual_limits(read, written.limits),
    }
}

/// Whether shares that were read back are those that were written. On cgroup v2 a runtime that cannot note them at the
/// cgroup knows its weight only, and returns the fewest shares of that weight.
fn is_of(read: u64, written: u64, scale: WeightScale) -> bool {
    read == written || read == scale.shares(scale.weight(written))
}

fn actual_limits(read: &LinuxResources, written: Declared) -> Declared {
    let period = read.cpu_period.unwrap_or(DEFAULT_PERIOD);
    let cpu = match read.cpu_quota {
        Some(read) => actual_cpu_limit(Some(read).filter(|quota| *quota > 0), period, written.cpu),
        None => written.cpu,
    };
    let memory = match read.memory_limit {
        Some(read) => {
            let read = Some(read).filter(|bytes| (0..UNLIMITED).contains(bytes));
            actual_memory_limit(read, page_size(), written.memory)
        }
        None => written.memory,
    };
    Declared::new(cpu, memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirements(request: Option<i64>, limit: Option<i64>, memory: Option<i64>) -> Requirements {
        Requirements { requests: Declared::new(request, memory), limits: Declared::new(limit, memory) }
    }

    #[test]
    fn written_values_are_read_back() {
        let table = [
            requirements(Some(500), Some(1000), Some(64 << 20)),
            requirements(Some(1), None, None),
            requirements(None, Some(5), Some(4097)),
            requirements(None, None, None),
            requirements(Some(0), Some(0), Some(0)),
        ];
        for written in table {
            assert_eq!(actual_container(&container_cgroup(&written), &written), written, "{written:?}");
        }
    }

    #[test]
    fn a_container_may_not_swap() {
        for (limit, swap) in [(Some(64 << 20), Some(64 << 20)), (None, None)] {
            assert_eq!(container_cgroup(&requirements(None, None, limit)).memory_swap_limit, swap);
        }
    }

    #[test]
    fn a_weight_without_its_shares_is_read_back_as_written() {
        for milli in [1, 2, 3, 100, 101, 333, 650, 1000, 12_345, 256_000] {
            let written = requirements(Some(milli), None, None);
            let known = |scale: WeightScale| Some(scale.shares(scale.weight(shares(milli))));
            let read =
                LinuxResources { cpu_shares: known(WeightScale::Quadratic), ..container_cgroup(&written) };
            assert_eq!(actual_container(&read, &written), written, "{milli}m");
            let written = PodCgroup { cpu_request: milli, limits: Declared::NONE };
            let read = LinuxResources { cpu_shares: known(WeightScale::Linear), ..pod_cgroup(&written) };
            assert_eq!(actual_pod(&read, &written), written, "{milli}m");
        }
    }

    #[test]
    fn values_that_another_program_wrote_are_read() {
        let written = requirements(Some(500), Some(1000), Some(64 << 20));
        let mut read = container_cgroup(&written);
        (read.cpu_shares, read.cpu_quota, read.memory_limit) = (Some(1024), Some(-1), Some(32 << 20));
        let observed = actual_container(&read, &written);
        assert_eq!(observed.requests, Declared::new(Some(1000), Some(64 << 20)));
        assert_eq!(observed.limits, Declared::new(None, Some(32 << 20)));
    }

    #[test]
    fn no_limit_is_none_on_either_version_of_cgroups() {
        let written = PodCgroup { cpu_request: 100, limits: Declared::NONE };
        for unlimited in [-1, i64::MAX - i64::MAX % 4096, i64::MAX - i64::MAX % 65536, i64::MAX] {
            let read = LinuxResources { memory_limit: Some(unlimited), ..pod_cgroup(&written) };
            assert_eq!(actual_pod(&read, &written), written, "{unlimited}");
        }
    }
}
