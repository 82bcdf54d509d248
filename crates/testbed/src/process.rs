//! A process that is known by more than its number, which the kernel gives to somebody else later.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// How long a killed process may take to go.
const PATIENCE: Duration = Duration::from_secs(10);

/// A process, and when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    id: i32,
    /// In the kernel's ticks since boot.
    began: u64,
}

impl Process {
    /// The process that has this number now.
    pub(crate) fn of(id: u32) -> Option<Self> {
        let id = i32::try_from(id).ok()?;
        let (_, began) = state_and_beginning(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?;
        Some(Self { id, began })
    }

    /// Kills it and waits until it has ended. Process 1 of a namespace ends only after all others in it have.
    pub(crate) fn end(self) {
        let deadline = Instant::now() + PATIENCE;
        while self.lives() && Instant::now() < deadline {
            let _ = kill(Pid::from_raw(self.id), Signal::SIGKILL);
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn lives(self) -> bool {
        let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", self.id)) else { return false };
        state_and_beginning(&stat).is_some_and(|(state, began)| began == self.began && state != 'Z')
    }
}

/// The third and the twenty-second field; the second is a name in parentheses that may contain anything.
fn state_and_beginning(stat: &str) -> Option<(char, u64)> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_mislead() {
        let stat = "7 (a) Z (b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 100 200";
        assert_eq!(state_and_beginning(stat), Some(('S', 4242)));
    }

    #[test]
    fn this_process_lives_and_one_that_began_earlier_does_not() {
        let own = Process::of(std::process::id()).expect("this process is there");
        assert!(own.lives());
        assert!(!Process { began: own.began + 1, ..own }.lives());
    }
}
