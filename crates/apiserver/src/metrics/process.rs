//! The metrics of the process, from the kernel.

use std::fs;

use plumb_metrics::Text;

/// The unit of times in `/proc`: hundredths of a second on every architecture.
const TICKS: u64 = 100;

/// Writes the metrics that the kernel has.
pub(super) fn render(text: &mut Text) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let gauges = [
        ("process_resident_memory_bytes", "memory that is in use", kilobytes(&status, "VmRSS:")),
        ("process_virtual_memory_bytes", "addresses that are in use", kilobytes(&status, "VmSize:")),
        ("process_open_fds", "open files", open_files()),
        ("process_max_fds", "how many files may be open", max_files(&limits)),
        ("process_start_time_seconds", "when the process began, in seconds since 1970", started(&stat)),
        ("process_threads", "threads", number(&status, "Threads:")),
    ];
    for (name, help, value) in gauges {
        if let Some(value) = value {
            text.gauge(name, help);
            text.sample(name, &[], value);
        }
    }
    if let Some(ticks) = field(&stat, 14).zip(field(&stat, 15)).map(|(user, system)| user + system) {
        let name = "process_cpu_seconds_total";
        text.counter(name, "processor time that was used");
        text.sample(name, &[], format_args!("{}.{:02}", ticks / TICKS, ticks % TICKS));
    }
}

/// A field of `stat`, counted from one. The second is a name in parentheses, which may hold anything.
fn field(stat: &str, place: usize) -> Option<u64> {
    let rest = &stat[stat.rfind(')')? + 1..];
    rest.split_ascii_whitespace().nth(place.checked_sub(3)?)?.parse().ok()
}

fn number(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn kilobytes(status: &str, name: &str) -> Option<u64> {
    number(status, name).map(|kilobytes| kilobytes * 1024)
}

fn open_files() -> Option<u64> {
    fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as u64)
}

fn max_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn started(stat: &str) -> Option<u64> {
    let machine = fs::read_to_string("/proc/stat").ok()?;
    Some(number(&machine, "btime ")? + field(stat, 22)? / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_a_name_that_holds_anything() {
        let stat = "7 (a b) c)) S 1 2 3 4 5 6 7 8 9 10 42 43 0 0 20 0 9 0 777 0";
        assert_eq!((field(stat, 14), field(stat, 15), field(stat, 22)), (Some(42), Some(43), Some(777)));
        assert_eq!(field("", 14), None);
        assert_eq!(kilobytes("VmSize:\t 8 kB\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12 << 10));
        assert_eq!(max_files("Max open files            1024                 4096    files\n"), Some(1024));
    }
}
