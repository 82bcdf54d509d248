//! Between the runtime's numbers and a pod's requests and limits.
//!
//! A cgroup holds shares and quotas, a pod requests and limits; several of the latter make the same of the
//! former. So what is in force is read beside what was written last: if the numbers agree with it, it is that,
//! and if not, it is what the numbers stand for.

use plumb_resize::cgroup::{
    DEFAULT_PERIOD, cpu_limit_in_force, cpu_request_in_force, memory_limit, memory_limit_in_force, quota,
    shares,
};
use plumb_resize::pod::PodCgroup;
use plumb_resize::resource::{Declared, Requirements};
use plumb_runtime::types::LinuxResources;

/// The grain of a memory limit.
const PAGE: i64 = 4096;
/// Without a limit, cgroup v1 answers the largest number of whole pages.
const UNLIMITED: i64 = i64::MAX - (i64::MAX % PAGE);

/// What a container's cgroup is set to for these requests and limits.
pub fn of_container(resources: &Requirements) -> LinuxResources {
    LinuxResources {
        cpu_shares: Some(shares(shares_request(resources))),
        ..limits(resources.limits.cpu, resources.limits.memory)
    }
}

/// What a pod's cgroup is set to.
pub fn of_pod(cgroup: &PodCgroup) -> LinuxResources {
    LinuxResources {
        cpu_shares: Some(shares(cgroup.cpu_request)),
        ..limits(cgroup.limits.cpu, cgroup.limits.memory)
    }
}

/// The request that the weight of a container stands for: its limit, where it has that alone.
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

/// The requests and limits in force for a container whose cgroup was last set for `written`.
///
/// What the runtime does not answer is taken to be as it was written; a request for memory is in no cgroup.
pub fn container_in_force(read: &LinuxResources, written: &Requirements) -> Requirements {
    let mut requests = written.requests;
    if let Some(read) = read.cpu_shares
        && shares(shares_request(written)) != read
    {
        requests.cpu = cpu_request_in_force(read, requests.cpu);
    }
    Requirements { requests, limits: limits_in_force(read, written.limits) }
}

/// What is in force for a pod whose cgroup was last set to `written`.
pub fn pod_in_force(read: &LinuxResources, written: &PodCgroup) -> PodCgroup {
    let request = read.cpu_shares.and_then(|read| cpu_request_in_force(read, Some(written.cpu_request)));
    PodCgroup {
        cpu_request: request.unwrap_or(written.cpu_request),
        limits: limits_in_force(read, written.limits),
    }
}

fn limits_in_force(read: &LinuxResources, written: Declared) -> Declared {
    let period = read.cpu_period.unwrap_or(DEFAULT_PERIOD);
    let cpu = match read.cpu_quota {
        Some(read) => cpu_limit_in_force(Some(read).filter(|quota| *quota > 0), period, written.cpu),
        None => written.cpu,
    };
    let memory = match read.memory_limit {
        Some(read) => {
            let read = Some(read).filter(|bytes| (0..UNLIMITED).contains(bytes));
            memory_limit_in_force(read, PAGE, written.memory)
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
    fn what_was_written_is_what_is_read() {
        let table = [
            requirements(Some(500), Some(1000), Some(64 << 20)),
            requirements(Some(1), None, None),
            requirements(None, Some(5), Some(4097)),
            requirements(None, None, None),
            requirements(Some(0), Some(0), Some(0)),
        ];
        for written in table {
            assert_eq!(container_in_force(&of_container(&written), &written), written, "{written:?}");
        }
    }

    #[test]
    fn another_hand_shows() {
        let written = requirements(Some(500), Some(1000), Some(64 << 20));
        let mut read = of_container(&written);
        (read.cpu_shares, read.cpu_quota, read.memory_limit) = (Some(1024), Some(-1), Some(32 << 20));
        let seen = container_in_force(&read, &written);
        assert_eq!(seen.requests, Declared::new(Some(1000), Some(64 << 20)));
        assert_eq!(seen.limits, Declared::new(None, Some(32 << 20)));
    }

    #[test]
    fn no_limit_is_none_on_either_version_of_cgroups() {
        let written = PodCgroup { cpu_request: 100, limits: Declared::NONE };
        for unlimited in [-1, UNLIMITED, i64::MAX] {
            let read = LinuxResources { memory_limit: Some(unlimited), ..of_pod(&written) };
            assert_eq!(pod_in_force(&read, &written), written, "{unlimited}");
        }
    }
}
