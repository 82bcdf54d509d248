//! Version 2: all controllers in one hierarchy.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use nix::errno::Errno;
use plumb_resize::cgroup::swap_limit;
use rustix::fs::{XattrFlags, getxattr, setxattr};

use super::device;
use super::error::{CgroupError, Result};
use super::file::{self, Keyed};
use super::group::Group;
use super::guard::AppliedLimit;
use super::layout::{Controller, Layout};
use super::usage::{Usage, pressure};
use super::v1;
use crate::sys;
use crate::types::{HugepageLimit, LinuxResources, Pressure, Throttling};

/// Under which the shares behind a weight are kept at the group: several shares have the same weight, and
/// callers expect to read back what they wrote.
const SHARES: &str = "user.plumb.cpu_shares";

pub(super) fn create(layout: &Layout, path: &Path) -> Result<()> {
    let Some(point) = layout.mount_of(Controller::Cpu) else { return Err(CgroupError::NoControllers) };
    let mut folder = point.to_owned();
    for part in path {
        // A controller works in a group only if all groups above hand it down.
        hand_down(layout, &folder)?;
        folder.push(part);
        match fs::create_dir(&folder) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(CgroupError::refused("making", folder, error)),
        }
    }
    Ok(())
}

fn hand_down(layout: &Layout, folder: &Path) -> Result<()> {
    let control = folder.join("cgroup.subtree_control");
    let handed = file::read(&control)?;
    for name in layout.names().filter(|name| !handed.split_whitespace().any(|handed| handed == *name)) {
        match file::write(&control, format!("+{name}")) {
            // Not every controller can be handed down everywhere; the two that matter must.
            Err(error) if !matches!(name, "cpu" | "memory") => {
                tracing::debug!(%error, "cannot enable a cgroup controller for child groups");
            }
            done => done?,
        }
    }
    Ok(())
}

fn folder(group: &Group) -> Result<PathBuf> {
    group.folder(Controller::Cpu).ok_or(CgroupError::NoControllers)
}

/// A limit as the kernel spells it.
fn or_max(limit: i64) -> String {
    if limit < 0 { "max".to_owned() } else { limit.to_string() }
}

fn limit(path: &Path) -> Result<Option<i64>> {
    v1::pids(path)
}

pub(super) fn set(group: &Group, to: &LinuxResources) -> Result<()> {
    let folder = folder(group)?;
    if let Some(shares) = to.cpu_shares {
        file::write(&folder.join("cpu.weight"), group.scale().weight(shares).to_string())?;
        // Only for reading back exactly; where it cannot be kept, the fewest shares of that weight are shown.
        let _ = setxattr(&folder, SHARES, shares.to_string().as_bytes(), XattrFlags::empty());
    }
    if to.cpu_quota.is_some() || to.cpu_period.is_some() {
        let (quota, period) = cpu_max(&folder)?;
        let (quota, period) = (to.cpu_quota.unwrap_or(quota), to.cpu_period.unwrap_or(period));
        file::write(&folder.join("cpu.max"), format!("{} {period}", or_max(quota)))?;
    }
    set_memory(group, &folder, to)?;
    for (name, value) in [("cpuset.cpus", &to.cpuset_cpus), ("cpuset.mems", &to.cpuset_mems)] {
        if let Some(list) = value {
            // An empty write has to have something in it, or the kernel does not see it.
            file::write(&folder.join(name), if list.is_empty() { "\n" } else { list })?;
        }
    }
    if let Some(limit) = to.pids_limit {
        // A parent that does not hand the controller down leaves the group without the file.
        if !file::write_if_there(&folder.join("pids.max"), or_max(limit))? {
            group.note_missing_pids(limit);
        }
    }
    for HugepageLimit { page_size, limit } in &to.hugepage_limits {
        file::write(&folder.join(format!("hugetlb.{page_size}.max")), limit.to_string())?;
    }
    for (name, value) in &to.unified {
        if Path::new(name).file_name() != Some(OsStr::new(name)) {
            return Err(CgroupError::malformed(folder.join("unified"), name));
        }
        file::write(&folder.join(name), value)?;
    }
    Ok(())
}

/// V2 has swap on its own, not memory and swap together. And it kills when a limit goes below usage, where v1
/// refuses; here it is refused as well, after an attempt to make it fit.
fn set_memory(group: &Group, folder: &Path, to: &LinuxResources) -> Result<()> {
    if let Some(high) = to.memory_high {
        file::write(&folder.join("memory.high"), or_max(high))?;
    }
    if let Some(max) = to.memory_limit {
        if let Ok(wanted) = u64::try_from(max) {
            make_fit(group, folder, wanted)?;
        }
        file::write(&folder.join("memory.max"), or_max(max))?;
    }
    if let Some(both) = to.memory_swap_limit {
        let memory = match to.memory_limit {
            Some(memory) => memory,
            None => limit(&folder.join("memory.max"))?.unwrap_or(-1),
        };
        let swap = swap_limit(memory, both);
        // Without swap in the kernel there is no such file, and no swap to limit.
        file::write_if_there(&folder.join("memory.swap.max"), or_max(swap))?;
    }
    Ok(())
}

/// Prevents the memory of a cgroup from being swapped, whatever its limit.
pub(super) fn forbid_swap(group: &Group) -> Result<()> {
    // Without swap in the kernel there is no such file.
    file::write_if_there(&folder(group)?.join("memory.swap.max"), "0").map(drop)
}

fn make_fit(group: &Group, folder: &Path, wanted: u64) -> Result<()> {
    let current = folder.join("memory.current");
    let usage: u64 = file::number(&current)?;
    if usage <= wanted {
        return Ok(());
    }
    reclaim(group, usage - wanted)?;
    if file::number::<u64>(&current)? <= wanted {
        return Ok(());
    }
    Err(CgroupError::refused("writing", folder.join("memory.max"), Errno::EBUSY.into()))
}

pub(super) fn applied_limit(group: &Group) -> Result<AppliedLimit> {
    let folder = folder(group)?;
    let max = limit(&folder.join("memory.max"))?.unwrap_or(-1);
    Ok(AppliedLimit { limit: max, high: limit(&folder.join("memory.high"))? })
}

/// Sets `memory.high`: the kernel reclaims what is above it, and throttles processes that grow beyond it.
pub(super) fn throttle_above(group: &Group, threshold: u64) -> Result<()> {
    file::write_if_there(&folder(group)?.join("memory.high"), threshold.to_string()).map(drop)
}

/// Switches off the memory throttling of a cgroup.
pub(super) fn throttle_never(group: &Group) -> Result<()> {
    file::write_if_there(&folder(group)?.join("memory.high"), "max").map(drop)
}

/// Prepares a cgroup for its removal: its processes exit sooner without a quota.
pub(super) fn lift_quota(group: &Group) -> Result<()> {
    file::write_if_there(&folder(group)?.join("cpu.max"), "max").map(drop)
}

/// `max 100000`: the quota, -1 for unlimited, and the period.
fn cpu_max(folder: &Path) -> Result<(i64, u64)> {
    let path = folder.join("cpu.max");
    let text = file::read(&path)?;
    let malformed = || CgroupError::malformed(&path, text.as_str());
    let (quota, period) = text.trim().split_once(' ').ok_or_else(malformed)?;
    let quota = if quota == "max" { -1 } else { quota.parse().map_err(|_| malformed())? };
    Ok((quota, period.parse().map_err(|_| malformed())?))
}

fn shares(group: &Group, folder: &Path) -> Result<u64> {
    let weight = file::number(&folder.join("cpu.weight"))?;
    let mut kept = [0; 20];
    let kept =
        getxattr(folder, SHARES, &mut kept).ok().and_then(|length| kept.get(..length).map(<[u8]>::to_vec));
    let kept: Option<u64> = kept.and_then(|kept| str::from_utf8(&kept).ok()?.parse().ok());
    // Another writer of the weight did not write the shares.
    Ok(kept
        .filter(|shares| group.scale().weight(*shares) == weight)
        .unwrap_or_else(|| group.scale().shares(weight)))
}

pub(super) fn read(group: &Group) -> Result<LinuxResources> {
    let folder = folder(group)?;
    let (quota, period) = cpu_max(&folder)?;
    let memory = limit(&folder.join("memory.max"))?;
    let swap = limit(&folder.join("memory.swap.max"))?;
    let text = |name: &str| -> Result<Option<String>> {
        Ok(file::read_if_there(&folder.join(name))?.map(|text| text.trim().to_owned()))
    };
    Ok(LinuxResources {
        cpu_period: Some(period),
        cpu_quota: Some(quota),
        cpu_shares: Some(shares(group, &folder)?),
        memory_limit: memory,
        memory_swap_limit: match (memory, swap) {
            (Some(memory), Some(swap)) if memory >= 0 && swap >= 0 => Some(memory.saturating_add(swap)),
            (_, Some(_)) => Some(-1),
            (_, None) => None,
        },
        memory_high: limit(&folder.join("memory.high"))?,
        oom_score_adj: None,
        cpuset_cpus: text("cpuset.cpus")?,
        cpuset_mems: text("cpuset.mems")?,
        pids_limit: limit(&folder.join("pids.max"))?,
        hugepage_limits: Vec::new(),
        unified: std::collections::BTreeMap::new(),
    })
}

pub(super) fn memory(group: &Group) -> Result<(u64, u64)> {
    let folder = folder(group)?;
    let usage = file::number(&folder.join("memory.current"))?;
    Ok((usage, Keyed::read(&folder.join("memory.stat"))?.get("inactive_file")))
}

pub(super) fn unreclaimable(group: &Group) -> Result<u64> {
    let folder = folder(group)?;
    let usage: u64 = file::number(&folder.join("memory.current"))?;
    let stat = Keyed::read(&folder.join("memory.stat"))?;
    Ok(usage.saturating_sub(stat.get("inactive_file").saturating_add(stat.get("active_file"))))
}

pub(super) fn peak(group: &Group) -> Result<Option<u64>> {
    file::number_if_there(&folder(group)?.join("memory.peak"))
}

pub(super) fn oom_kills(group: &Group) -> Result<u64> {
    Ok(Keyed::read(&folder(group)?.join("memory.events"))?.get("oom_kill"))
}

pub(super) fn usage(group: &Group) -> Result<Usage> {
    let folder = folder(group)?;
    let cpu = Keyed::read(&folder.join("cpu.stat"))?;
    let memory = Keyed::read(&folder.join("memory.stat"))?;
    let waited = |name: &str| -> Result<Option<Pressure>> {
        // The file exists but cannot be read if the kernel was started without pressure information.
        match file::read_if_there(&folder.join(name)) {
            Ok(text) => Ok(text.as_deref().and_then(pressure)),
            Err(error) if error.errno() == Some(Errno::EOPNOTSUPP) => Ok(None),
            Err(error) => Err(error),
        }
    };
    Ok(Usage {
        cpu_nanos: cpu.get("usage_usec").saturating_mul(1000),
        throttling: Some(Throttling {
            periods: cpu.get("nr_periods"),
            throttled_periods: cpu.get("nr_throttled"),
            throttled_nanos: cpu.get("throttled_usec").saturating_mul(1000),
        }),
        memory: file::number(&folder.join("memory.current"))?,
        inactive_file: memory.get("inactive_file"),
        rss: memory.get("anon"),
        memory_limit: limit(&folder.join("memory.max"))?.and_then(|limit| u64::try_from(limit).ok()),
        swap: file::number_if_there(&folder.join("memory.swap.current"))?,
        page_faults: memory.get("pgfault"),
        major_page_faults: memory.get("pgmajfault"),
        oom_kills: oom_kills(group)?,
        tasks: file::number_if_there(&folder.join("pids.current"))?,
        cpu_pressure: waited("cpu.pressure")?,
        memory_pressure: waited("memory.pressure")?,
    })
}

pub(super) fn reclaim(group: &Group, bytes: u64) -> Result<()> {
    match file::write(&folder(group)?.join("memory.reclaim"), bytes.to_string()) {
        // Less was reclaimed, or the kernel is older than the file.
        Err(error) if error.errno() == Some(Errno::EAGAIN) || error.is_missing() => Ok(()),
        done => done,
    }
}

pub(super) fn allow_devices(group: &Group, allowed: &[String]) -> Result<()> {
    let folder = folder(group)?;
    let rule = |text: &String| {
        text.parse().map_err(|device::NotARule| CgroupError::malformed(&folder, text.as_str()))
    };
    let rules = allowed.iter().map(rule).collect::<Result<Vec<device::Rule>>>()?;
    let attach = || {
        let program = sys::load_device_program(&device::program(&rules))?;
        sys::attach_device_program(fs::File::open(&folder)?, &program)
    };
    attach().map_err(|error| CgroupError::refused("attaching the device filter to", &folder, error))
}
