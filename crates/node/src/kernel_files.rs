//! Figures in files of the kernel.

use std::fs;
use std::path::Path;

/// A figure of `/proc/meminfo`, in bytes.
pub(crate) fn memory_figure(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The smaller of the kernel's two limits of tasks, in the files below a root.
pub(crate) fn task_limit(root: &Path) -> Option<u64> {
    let limits = ["proc/sys/kernel/pid_max", "proc/sys/kernel/threads-max"];
    let limits =
        limits.into_iter().filter_map(|path| fs::read_to_string(root.join(path)).ok()?.trim().parse().ok());
    limits.min()
}
