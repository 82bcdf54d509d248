//! Resource usage of the machine.

use std::fs;
use std::io;
use std::path::Path;

use jiff::Timestamp;
use plumb_runtime::types::{CpuUsage, MemoryUsage};

use crate::kernel_files::memory_figure;

/// The kernel reports CPU time to programs in hundredths of a second.
const TICK_NANOS: u64 = 10_000_000;

/// Reads it from the kernel's files below a root.
pub(crate) fn usage(root: &Path, at: Timestamp) -> io::Result<(CpuUsage, MemoryUsage)> {
    let stat = fs::read_to_string(root.join("proc/stat"))?;
    let first = stat.lines().next().unwrap_or_default();
    // user, nice, system, idle, iowait, irq, softirq, steal: all but idle time is usage.
    let figures: Vec<u64> = first.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
    let used = figures.iter().take(8).enumerate().filter(|(place, _)| !matches!(place, 3 | 4));
    let ticks: u64 = used.map(|(_, ticks)| ticks).sum();
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
    let cpu = CpuUsage { at, usage_nanos: ticks.saturating_mul(TICK_NANOS), ..CpuUsage::default() };
    Ok((cpu, memory))
}
