//! The resource usage of a cgroup.

use jiff::Timestamp;

use crate::types::{CpuUsage, MemoryUsage, Pressure, PressureFigures, Throttling};

/// The resource usage of a cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time since the cgroup was created, in nanoseconds.
    pub cpu_nanos: u64,
    /// Throttling by its quota.
    pub throttling: Option<Throttling>,
    /// Memory, page cache included, in bytes.
    pub memory: u64,
    /// Inactive file pages.
    pub inactive_file: u64,
    /// Anonymous memory.
    pub rss: u64,
    /// The limit, if there is one.
    pub memory_limit: Option<u64>,
    /// Swap.
    pub swap: Option<u64>,
    /// Page faults.
    pub page_faults: u64,
    /// Major page faults.
    pub major_page_faults: u64,
    /// OOM kills.
    pub oom_kills: u64,
    /// Tasks.
    pub tasks: Option<u64>,
    /// CPU pressure.
    pub cpu_pressure: Option<Pressure>,
    /// Memory pressure.
    pub memory_pressure: Option<Pressure>,
}

impl Usage {
    /// Usage without inactive file pages: what the kubelet bases evictions on.
    pub fn working_set(&self) -> u64 {
        self.memory.saturating_sub(self.inactive_file)
    }

    /// CPU, as measured at this time.
    pub fn of_cpu(&self, at: Timestamp) -> CpuUsage {
        CpuUsage { at, usage_nanos: self.cpu_nanos, throttling: self.throttling, pressure: self.cpu_pressure }
    }

    /// Memory, as measured at this time.
    pub fn of_memory(&self, at: Timestamp) -> MemoryUsage {
        MemoryUsage {
            at,
            usage: self.memory,
            working_set: self.working_set(),
            rss: self.rss,
            available: self.memory_limit.map(|limit| limit.saturating_sub(self.working_set())),
            swap: self.swap,
            page_faults: self.page_faults,
            major_page_faults: self.major_page_faults,
            oom_kills: self.oom_kills,
            pressure: self.memory_pressure,
        }
    }
}

/// Reads a pressure file: `some avg10=0.12 avg60=0.00 avg300=0.00 total=34` and the same for `full`.
pub(super) fn pressure(text: &str) -> Option<Pressure> {
    let mut pressure = Pressure::default();
    for line in text.lines() {
        let (kind, figures) = line.split_once(' ')?;
        let figures = figures_of(figures)?;
        match kind {
            "some" => pressure.some = figures,
            "full" => pressure.full = figures,
            _ => {}
        }
    }
    Some(pressure)
}

fn figures_of(text: &str) -> Option<PressureFigures> {
    let mut figures = PressureFigures::default();
    for pair in text.split_whitespace() {
        let (name, value) = pair.split_once('=')?;
        match name {
            "avg10" => figures.avg10 = hundredths(value)?,
            "avg60" => figures.avg60 = hundredths(value)?,
            "avg300" => figures.avg300 = hundredths(value)?,
            "total" => figures.total = value.parse().ok()?,
            _ => {}
        }
    }
    Some(figures)
}

/// `1.25` is 125.
fn hundredths(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.')?;
    let (whole, part): (u32, u32) = (whole.parse().ok()?, part.get(..2)?.parse().ok()?);
    whole.checked_mul(100)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_read_exactly() {
        let text = "some avg10=1.25 avg60=0.00 avg300=12.03 total=34\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5";
        let pressure = pressure(text).unwrap();
        assert_eq!(pressure.some, PressureFigures { avg10: 125, avg60: 0, avg300: 1203, total: 34 });
        assert_eq!(pressure.full.total, 5);
    }
}
