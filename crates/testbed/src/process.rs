//! A process, identified by its id and its start time, because the kernel reuses ids.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// How long a killed process may take to end.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A process id with the time at which that process started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    id: i32,
    /// In the kernel's ticks since boot.
    began: u64,
}

impl Process {
    /// The process that has this id now.
    pub(crate) fn of(id: u32) -> Option<Self> {
        let id = i32::try_from(id).ok()?;
        Some(Self { id, began: stat(id)?.began })
    }

    /// Kills it and those of its process group whose arguments mention `dir`, and waits until all have ended. Process 1
    /// of a namespace ends only after all others in the namespace have.
    ///
    /// Membership of the group alone is not enough: after the cluster's end another process group may have its id.
    pub(crate) fn kill(self, dir: &Path) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let ours: Vec<i32> =
                all().filter(|(id, stat)| self.includes(*id, stat, dir)).map(|(id, _)| id).collect();
            if ours.is_empty() || Instant::now() >= deadline {
                return;
            }
            for id in ours {
                let _ = kill(Pid::from_raw(id), Signal::SIGKILL);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn includes(self, id: i32, stat: &Stat, dir: &Path) -> bool {
        let is_it = id == self.id && stat.began == self.began;
        !stat.is_over && (is_it || stat.group == self.id && mentions(id, dir))
    }
}

fn mentions(id: i32, dir: &Path) -> bool {
    let arguments = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&arguments).contains(&*dir.to_string_lossy())
}

fn all() -> impl Iterator<Item = (i32, Stat)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        Some((id, stat(id)?))
    })
}

/// The fields of `/proc/PID/stat` that are read here.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// Whether it is a zombie or dead.
    is_over: bool,
    group: i32,
    began: u64,
}

fn stat(id: i32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

/// The third, fifth and twenty-second field; the second is a name in parentheses that may contain anything.
fn parse(stat: &str) -> Option<Stat> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let is_over = matches!(fields.next()?, "Z" | "X");
    let group = fields.nth(1)?.parse().ok()?;
    Some(Stat { is_over, group, began: fields.nth(16)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_mislead() {
        let stat = "7 (a) Z (b) S 1 9 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 100 200";
        assert_eq!(parse(stat), Some(Stat { is_over: false, group: 9, began: 4242 }));
    }

    #[test]
    fn a_process_includes_itself_and_those_of_its_group_whose_arguments_mention_the_folder() {
        let id = i32::try_from(std::process::id()).expect("it is a process id");
        let own = Process::of(std::process::id()).expect("this process is there");
        let program = std::env::current_exe().expect("this program has a path");
        let folder = program.parent().expect("it is in a folder");
        let elsewhere = Path::new("/nonexistent/folder");
        let stat = |group, began| Stat { is_over: false, group, began };
        for (number, stat, folder, includes, what) in [
            (id, stat(0, own.began), elsewhere, true, "itself"),
            (id, stat(0, own.began + 1), folder, false, "a later one of the same number"),
            (id, stat(id, own.began + 1), folder, true, "one of the group, in the folder"),
            (id, stat(id, own.began + 1), elsewhere, false, "one of the group, elsewhere"),
            (id, Stat { is_over: true, group: id, began: own.began }, folder, false, "one that is over"),
        ] {
            assert_eq!(own.includes(number, &stat, folder), includes, "{what}");
        }
    }
}
