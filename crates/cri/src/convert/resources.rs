//! Conversion of resources.

use plumb_runtime::types::{HugepageLimit, LinuxResources, WindowsResources};

use crate::api;

/// The resources that a container or a sandbox is created with. In the CRI, 0 and an empty string mean "not set", which is how
/// "no limit" is expressed at creation.
pub(crate) fn created_with(resources: &LinuxResources) -> api::LinuxContainerResources {
    let mut created = updated(resources);
    for limit in
        [&mut created.cpu_quota, &mut created.memory_limit_in_bytes, &mut created.memory_swap_limit_in_bytes]
    {
        *limit = (*limit).max(0);
    }
    created
}

/// The resources of an update: `None` becomes 0 or empty, which leaves the setting unchanged; -1 removes a limit.
pub(crate) fn updated(resources: &LinuxResources) -> api::LinuxContainerResources {
    let mut unified = resources.unified.clone();
    if let Some(high) = resources.memory_high {
        let high = if high < 0 { "max".to_owned() } else { high.to_string() };
        unified.insert("memory.high".to_owned(), high);
    }
    api::LinuxContainerResources {
        cpu_period: number(resources.cpu_period),
        cpu_quota: resources.cpu_quota.unwrap_or_default(),
        cpu_shares: number(resources.cpu_shares),
        memory_limit_in_bytes: resources.memory_limit.unwrap_or_default(),
        oom_score_adj: resources.oom_score_adj.unwrap_or_default().into(),
        cpuset_cpus: resources.cpuset_cpus.clone().unwrap_or_default(),
        cpuset_mems: resources.cpuset_mems.clone().unwrap_or_default(),
        hugepage_limits: resources
            .hugepage_limits
            .iter()
            .map(|limit| api::HugepageLimit { page_size: limit.page_size.clone(), limit: limit.limit })
            .collect(),
        unified,
        memory_swap_limit_in_bytes: resources.memory_swap_limit.unwrap_or_default(),
    }
}

/// Converts the resources that a runtime reports. They are the last requested ones, which can differ from those of the cgroup.
pub(crate) fn read(reported: &api::LinuxContainerResources) -> LinuxResources {
    let positive = |number: i64| u64::try_from(number).ok().filter(|number| *number > 0);
    let set = |number: i64| Some(number).filter(|number| *number != 0);
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    LinuxResources {
        cpu_period: positive(reported.cpu_period),
        cpu_quota: set(reported.cpu_quota),
        cpu_shares: positive(reported.cpu_shares),
        memory_limit: set(reported.memory_limit_in_bytes),
        memory_swap_limit: set(reported.memory_swap_limit_in_bytes),
        oom_score_adj: i32::try_from(reported.oom_score_adj).ok().filter(|score| *score != 0),
        cpuset_cpus: text(&reported.cpuset_cpus),
        cpuset_mems: text(&reported.cpuset_mems),
        hugepage_limits: reported
            .hugepage_limits
            .iter()
            .map(|limit| HugepageLimit { page_size: limit.page_size.clone(), limit: limit.limit })
            .collect(),
        unified: reported.unified.clone(),
        ..LinuxResources::default()
    }
}

/// The resources of a Windows container.
pub(crate) fn windows(resources: &WindowsResources) -> api::WindowsContainerResources {
    api::WindowsContainerResources {
        cpu_shares: resources.cpu_shares.unwrap_or_default(),
        cpu_count: resources.cpu_count.unwrap_or_default(),
        cpu_maximum: resources.cpu_maximum.unwrap_or_default(),
        memory_limit_in_bytes: resources.memory_limit.unwrap_or_default(),
        rootfs_size_in_bytes: resources.rootfs_size.unwrap_or_default(),
        affinity_cpus: resources
            .affinity_cpus
            .iter()
            .map(|(mask, group)| api::WindowsCpuGroupAffinity { cpu_mask: *mask, cpu_group: *group })
            .collect(),
    }
}

fn number(value: Option<u64>) -> i64 {
    i64::try_from(value.unwrap_or_default()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_resources_are_left_unchanged() {
        assert_eq!(updated(&LinuxResources::default()), api::LinuxContainerResources::default());
        let only_cpu = LinuxResources { cpu_shares: Some(512), ..LinuxResources::default() };
        let sent = updated(&only_cpu);
        assert_eq!((sent.cpu_shares, sent.cpu_quota, sent.memory_limit_in_bytes), (512, 0, 0));
        assert_eq!(read(&sent), only_cpu);
    }

    #[test]
    fn no_limit_is_minus_one_in_an_update_and_not_set_at_creation() {
        let unlimited =
            LinuxResources { cpu_quota: Some(-1), memory_limit: Some(-1), ..LinuxResources::default() };
        let sent = updated(&unlimited);
        assert_eq!((sent.cpu_quota, sent.memory_limit_in_bytes), (-1, -1));
        let created = created_with(&unlimited);
        assert_eq!((created.cpu_quota, created.memory_limit_in_bytes), (0, 0));
    }

    #[test]
    fn windows_resources_have_their_own_message() {
        let resources = WindowsResources {
            cpu_maximum: Some(5000),
            memory_limit: Some(64 << 20),
            affinity_cpus: vec![(3, 1)],
            ..WindowsResources::default()
        };
        let sent = windows(&resources);
        assert_eq!((sent.cpu_maximum, sent.memory_limit_in_bytes, sent.cpu_shares), (5000, 64 << 20, 0));
        assert_eq!(sent.affinity_cpus, [api::WindowsCpuGroupAffinity { cpu_mask: 3, cpu_group: 1 }]);
    }
}
