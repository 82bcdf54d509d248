//! Resource usage of the machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use plumb_runtime::types::{CpuUsage, MemoryUsage};

use crate::kernel_files::memory_figure;

/// The kernel reports CPU time to programs in hundredths of a second.
const TICK_NANOS: u64 = 10_000_000;

/// The CPUs of a machine that is one node.
#[derive(Clone, Debug)]
pub(crate) struct MachineCpu {
    /// The root of the kernel's files.
    pub(crate) root: PathBuf,
    /// How many it has.
    pub(crate) cpus: u32,
}

impl MachineCpu {
    /// The CPU time that was used since the machine was started, in nanoseconds.
    pub(crate) fn used_nanos(&self) -> io::Result<u64> {
        used_nanos(&self.root)
    }

    /// The CPU that nothing used between two such readings, in thousandths of a core.
    pub(crate) fn idle(&self, before: u64, now: u64, elapsed: Duration) -> i64 {
        let used = u128::from(now.saturating_sub(before)) * 1000 / elapsed.as_nanos().max(1);
        let all = i64::from(self.cpus) * 1000;
        all.saturating_sub(i64::try_from(used).unwrap_or(i64::MAX)).max(0)
    }
}

fn used_nanos(root: &Path) -> io::Result<u64> {
    let stat = fs::read_to_string(root.join("proc/stat"))?;
    let first = stat.lines().next().unwrap_or_default();
    // user, nice, system, idle, iowait, irq, softirq, steal: all but idle time is usage.
    let figures: Vec<u64> = first.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
    let used = figures.iter().take(8).enumerate().filter(|(place, _)| !matches!(place, 3 | 4));
    let ticks: u64 = used.map(|(_, ticks)| ticks).sum();
    Ok(ticks.saturating_mul(TICK_NANOS))
}

/// Reads it from the kernel's files below a root.
pub(crate) fn usage(root: &Path, at: Timestamp) -> io::Result<(CpuUsage, MemoryUsage)> {
    let usage_nanos = used_nanos(root)?;
    let text = fs::read_to_string(root.join("proc/meminfo"))?;
    let figure = |name: &str| memory_figure(&text, name).unwrap_or_default();
    let (total, available) = (figure("MemTotal"), figure("MemAvailable"));
    let memory = MemoryUsage {
        at,
        usage: total.saturating_sub(figure("MemFree")),
        working_set: total.saturating_sub(available),
        rss: figure("AnonPages"),
        available: Some(available),
        swap: Some(figure("SwapTotal").saturating_sub(figure("SwapFree"))),
        ..MemoryUsage::default()
    };
    let cpu = CpuUsage { at, usage_nanos, ..CpuUsage::default() };
    Ok((cpu, memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_cpu_is_what_was_not_used_of_all_cpus() {
        let cpu = MachineCpu { root: PathBuf::new(), cpus: 4 };
        let second = 1_000_000_000;
        let idle = |used| cpu.idle(second, second + used, Duration::from_secs(2));
        assert_eq!([0, second, 8 * second, 9 * second].map(idle), [4000, 3500, 0, 0]);
        assert_eq!(cpu.idle(second, 0, Duration::from_secs(2)), 4000, "the counter started again");
    }
}
