//! Version 1: each controller in a hierarchy of its own.

use std::path::Path;
use std::{fs, io};

use nix::errno::Errno;

use super::error::{CgroupError, Result};
use super::file::{self, Keyed};
use super::group::Group;
use super::guard::AppliedLimit;
use super::layout::{Controller, Layout};
use super::usage::Usage;
use crate::types::{HugepageLimit, LinuxResources, Throttling};

/// Memory limits from here on are the kernel's way of saying none: the largest number of whole pages.
const UNLIMITED: u64 = 1 << 62;
/// Whether a process that reaches the limit is OOM killed, or sleeps.
const OOM_CONTROL: &str = "memory.oom_control";

pub(super) fn create(layout: &Layout, path: &Path) -> Result<()> {
    for point in layout.hierarchies() {
        let is_cpuset = layout.mount_of(Controller::Cpuset) == Some(point);
        let is_memory = layout.mount_of(Controller::Memory) == Some(point);
        let mut folder = point.to_owned();
        for part in path {
            let above = folder.clone();
            folder.push(part);
            let made = match fs::create_dir(&folder) {
                Ok(()) => true,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
                Err(error) => return Err(CgroupError::refused("making", folder, error)),
            };
            if is_memory && made {
                // Of a group whose limit is on its way down this is inherited; see `guard`.
                file::write_if_there(&folder.join(OOM_CONTROL), "0")?;
            }
            if is_cpuset {
                // No process can join a cgroup that has no CPUs or memory nodes, and a new one has none.
                inherit(&above, &folder, "cpuset.cpus")?;
                inherit(&above, &folder, "cpuset.mems")?;
            }
        }
    }
    Ok(())
}

fn inherit(above: &Path, folder: &Path, name: &str) -> Result<()> {
    if file::read(&folder.join(name))?.trim().is_empty() {
        file::write(&folder.join(name), file::read(&above.join(name))?.trim())?;
    }
    Ok(())
}

pub(super) fn set(group: &Group, to: &LinuxResources) -> Result<()> {
    if let Some(folder) = group.folder(Controller::Cpu) {
        if let Some(shares) = to.cpu_shares {
            file::write(&folder.join("cpu.shares"), shares.to_string())?;
        }
        set_quota(&folder, to)?;
    }
    if let Some(folder) = group.folder(Controller::Memory) {
        set_memory(&folder, to)?;
    }
    if let Some(folder) = group.folder(Controller::Cpuset) {
        for (name, value) in [("cpuset.cpus", &to.cpuset_cpus), ("cpuset.mems", &to.cpuset_mems)] {
            match value.as_deref() {
                None => {}
                Some("") => {
                    let above = folder.parent().unwrap_or(&folder);
                    file::write(&folder.join(name), file::read(&above.join(name))?.trim())?;
                }
                Some(list) => file::write(&folder.join(name), list)?,
            }
        }
    }
    match (to.pids_limit, group.folder(Controller::Pids)) {
        (None, _) => {}
        (Some(limit), Some(folder)) => {
            let text = if limit < 0 { "max".to_owned() } else { limit.to_string() };
            file::write(&folder.join("pids.max"), text)?;
        }
        (Some(limit), None) => group.note_missing_pids(limit),
    }
    if let Some(folder) = group.folder(Controller::Hugetlb) {
        for HugepageLimit { page_size, limit } in &to.hugepage_limits {
            file::write(&folder.join(format!("hugetlb.{page_size}.limit_in_bytes")), limit.to_string())?;
        }
    }
    Ok(())
}

/// Prepares a cgroup for its removal, so that it does not affect others. The kernel takes a moment to free a removed cgroup,
/// and until then lets the group around it have no less cpu than this one might have had. Also, its processes exit sooner.
pub(super) fn lift_quota(group: &Group) -> Result<()> {
    let Some(folder) = group.folder(Controller::Cpu) else { return Ok(()) };
    file::write_if_there(&folder.join("cpu.cfs_quota_us"), "-1").map(drop)
}

/// Both of quota and period must at every moment be legal together and within the parent's.
fn set_quota(folder: &Path, to: &LinuxResources) -> Result<()> {
    let quota = |quota: i64| file::write(&folder.join("cpu.cfs_quota_us"), quota.to_string());
    let period = |period: u64| file::write(&folder.join("cpu.cfs_period_us"), period.to_string());
    match (to.cpu_quota, to.cpu_period) {
        (None, None) => Ok(()),
        (Some(to), None) => quota(to),
        (None, Some(to)) => period(to),
        (Some(new), Some(new_period)) => {
            if file::number::<u64>(&folder.join("cpu.cfs_period_us"))? == new_period {
                return quota(new);
            }
            match period(new_period) {
                Ok(()) => quota(new),
                // The old quota is too much, or too little, for the new period.
                Err(error) if error.errno() == Some(Errno::EINVAL) => {
                    quota(new)?;
                    period(new_period)
                }
                Err(error) => Err(error),
            }
        }
    }
}

/// Memory with swap must never be limited to less than memory alone, so which is written first depends on the
/// way they go.
fn set_memory(folder: &Path, to: &LinuxResources) -> Result<()> {
    let plain = folder.join("memory.limit_in_bytes");
    let with_swap = folder.join("memory.memsw.limit_in_bytes");
    let write = |file: &Path, limit: Option<i64>| match limit {
        None => Ok(()),
        Some(limit) => file::write(file, limit.max(-1).to_string()),
    };
    // Without swap accounting in the kernel there is no such file, and nothing to keep in step with.
    let swap = if to.memory_swap_limit.is_some() || to.memory_limit.is_some() {
        file::number_if_there::<u64>(&with_swap)?
    } else {
        None
    };
    let Some(swap_now) = swap else { return write(&plain, to.memory_limit) };
    let wanted = |limit: i64| u64::try_from(limit).unwrap_or(u64::MAX);
    let raises_over_swap = to.memory_limit.is_some_and(|limit| wanted(limit) > swap_now);
    if raises_over_swap {
        write(&with_swap, to.memory_swap_limit.or(to.memory_limit))?;
        write(&plain, to.memory_limit)
    } else {
        let before = file::number::<u64>(&plain)?;
        write(&plain, to.memory_limit)?;
        write(&with_swap, to.memory_swap_limit).inspect_err(|_| {
            // Swapping alone made the lower limit possible, and memory with swap does not fit: neither is applied.
            if to.memory_limit.is_some() {
                let _ = file::write(&plain, before.to_string());
            }
        })
    }
}

pub(super) fn read(group: &Group) -> Result<LinuxResources> {
    let mut found = LinuxResources::default();
    if let Some(folder) = group.folder(Controller::Cpu) {
        found.cpu_shares = Some(file::number(&folder.join("cpu.shares"))?);
        found.cpu_quota = file::number_if_there(&folder.join("cpu.cfs_quota_us"))?;
        found.cpu_period = file::number_if_there(&folder.join("cpu.cfs_period_us"))?;
    }
    if let Some(folder) = group.folder(Controller::Memory) {
        found.memory_limit = Some(signed(file::number(&folder.join("memory.limit_in_bytes"))?));
        found.memory_swap_limit =
            file::number_if_there(&folder.join("memory.memsw.limit_in_bytes"))?.map(signed);
    }
    if let Some(folder) = group.folder(Controller::Cpuset) {
        found.cpuset_cpus = Some(file::read(&folder.join("cpuset.cpus"))?.trim().to_owned());
        found.cpuset_mems = Some(file::read(&folder.join("cpuset.mems"))?.trim().to_owned());
    }
    if let Some(folder) = group.folder(Controller::Pids) {
        found.pids_limit = pids(&folder.join("pids.max"))?;
    }
    Ok(found)
}

pub(super) fn pids(path: &Path) -> Result<Option<i64>> {
    let Some(text) = file::read_if_there(path)? else { return Ok(None) };
    match text.trim() {
        "max" => Ok(Some(-1)),
        number => number.parse().map(Some).map_err(|_| CgroupError::malformed(path, number)),
    }
}

fn signed(limit: u64) -> i64 {
    if limit >= UNLIMITED { -1 } else { i64::try_from(limit).unwrap_or(-1) }
}

pub(super) fn memory(group: &Group) -> Result<(u64, u64)> {
    let Some(folder) = group.folder(Controller::Memory) else { return Ok((0, 0)) };
    let usage = file::number(&folder.join("memory.usage_in_bytes"))?;
    Ok((usage, Keyed::read(&folder.join("memory.stat"))?.get("total_inactive_file")))
}

pub(super) fn unreclaimable(group: &Group) -> Result<u64> {
    let Some(folder) = group.folder(Controller::Memory) else { return Ok(0) };
    let usage: u64 = file::number(&folder.join("memory.usage_in_bytes"))?;
    let stat = Keyed::read(&folder.join("memory.stat"))?;
    let cache = stat.get("total_inactive_file").saturating_add(stat.get("total_active_file"));
    Ok(usage.saturating_sub(cache))
}

pub(super) fn peak(group: &Group) -> Result<Option<u64>> {
    let Some(folder) = group.folder(Controller::Memory) else { return Ok(None) };
    file::number_if_there(&folder.join("memory.max_usage_in_bytes"))
}

pub(super) fn oom_kills(group: &Group) -> Result<u64> {
    let Some(folder) = group.folder(Controller::Memory) else { return Ok(0) };
    Ok(Keyed::read(&folder.join(OOM_CONTROL))?.get("oom_kill"))
}

pub(super) fn applied_limit(group: &Group) -> Result<AppliedLimit> {
    let limit = match group.folder(Controller::Memory) {
        Some(folder) => signed(file::number(&folder.join("memory.limit_in_bytes"))?),
        None => -1,
    };
    Ok(AppliedLimit { limit, high: None })
}

/// Disables or enables the OOM killer of the cgroup: while it is disabled, a process that reaches the limit sleeps.
pub(super) fn disable_oom_killer(group: &Group, off: bool) -> Result<()> {
    let Some(folder) = group.folder(Controller::Memory) else { return Ok(()) };
    file::write_if_there(&folder.join(OOM_CONTROL), if off { "1" } else { "0" }).map(drop)
}

/// Whether a process waits for memory.
pub(super) fn is_stuck(group: &Group) -> Result<bool> {
    let Some(folder) = group.folder(Controller::Memory) else { return Ok(false) };
    Ok(Keyed::read(&folder.join(OOM_CONTROL))?.get("under_oom") > 0)
}

/// Whether a process waits for memory while the OOM killer is disabled.
pub(super) fn is_held(group: &Group) -> Result<bool> {
    let Some(folder) = group.folder(Controller::Memory) else { return Ok(false) };
    let control = Keyed::read(&folder.join(OOM_CONTROL))?;
    Ok(control.get("oom_kill_disable") > 0 && control.get("under_oom") > 0)
}

pub(super) fn usage(group: &Group) -> Result<Usage> {
    let mut usage = Usage::default();
    if let Some(folder) = group.folder(Controller::Cpuacct) {
        usage.cpu_nanos = file::number(&folder.join("cpuacct.usage"))?;
    }
    if let Some(folder) = group.folder(Controller::Cpu) {
        usage.throttling = Keyed::read_if_there(&folder.join("cpu.stat"))?.map(|stat| Throttling {
            periods: stat.get("nr_periods"),
            throttled_periods: stat.get("nr_throttled"),
            throttled_nanos: stat.get("throttled_time"),
        });
    }
    if let Some(folder) = group.folder(Controller::Memory) {
        let stat = Keyed::read(&folder.join("memory.stat"))?;
        usage.memory = file::number(&folder.join("memory.usage_in_bytes"))?;
        usage.inactive_file = stat.get("total_inactive_file");
        usage.rss = stat.get("total_rss");
        usage.page_faults = stat.get("total_pgfault");
        usage.major_page_faults = stat.get("total_pgmajfault");
        usage.swap = Some(stat.get("total_swap"));
        usage.memory_limit =
            Some(file::number(&folder.join("memory.limit_in_bytes"))?).filter(|limit| *limit < UNLIMITED);
        usage.oom_kills = oom_kills(group)?;
    }
    if let Some(folder) = group.folder(Controller::Pids) {
        usage.tasks = file::number_if_there(&folder.join("pids.current"))?;
    }
    Ok(usage)
}

/// All that can go goes: v1 has no way to ask for less that does not also touch the limit, and a limit that is
/// low for a moment kills.
pub(super) fn reclaim(group: &Group) -> Result<()> {
    let Some(folder) = group.folder(Controller::Memory) else { return Ok(()) };
    match file::write(&folder.join("memory.force_empty"), "0") {
        // As far as it went.
        Err(error) if matches!(error.errno(), Some(Errno::EBUSY | Errno::EINTR)) => Ok(()),
        done => done,
    }
}

pub(super) fn allow_devices(group: &Group, allowed: &[String]) -> Result<()> {
    let Some(folder) = group.folder(Controller::Devices) else { return Ok(()) };
    file::write(&folder.join("devices.deny"), "a")?;
    for rule in allowed {
        file::write(&folder.join("devices.allow"), rule)?;
    }
    Ok(())
}

/// Freezes or thaws a cgroup; returns whether that is possible.
pub(super) fn freeze(group: &Group, still: bool) -> Result<bool> {
    let Some(folder) = group.folder(Controller::Freezer) else { return Ok(false) };
    file::write_if_there(&folder.join("freezer.state"), if still { "FROZEN" } else { "THAWED" })
}
