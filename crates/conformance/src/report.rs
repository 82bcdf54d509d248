//! What came of cases, for people.

use std::fmt;
use std::time::Duration;

/// What came of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Passed,
    /// It does not, and why.
    Failed(String),
    /// The target can't run it, and why.
    Skipped(String),
}

/// A case's verdict.
#[derive(Clone, Debug)]
pub struct Report {
    /// The case's name.
    pub name: &'static str,
    /// What came of it.
    pub verdict: Verdict,
    /// How long it took.
    pub took: Duration,
}

/// Wide enough for the name of every case.
const NAME_WIDTH: usize = 63;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, seconds) = (self.name, self.took.as_secs_f64());
        match &self.verdict {
            Verdict::Passed => write!(f, "pass  {name:NAME_WIDTH$} {seconds:6.1} s"),
            Verdict::Failed(why) => write!(f, "FAIL  {name:NAME_WIDTH$} {seconds:6.1} s  {why}"),
            Verdict::Skipped(why) => write!(f, "skip  {name:NAME_WIDTH$}           {why}"),
        }
    }
}

/// How many cases came to which verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Those that hold.
    pub passed: usize,
    /// Those that don't.
    pub failed: usize,
    /// Those that could not run.
    pub skipped: usize,
}

impl Summary {
    pub(crate) fn count(&mut self, verdict: &Verdict) {
        *match verdict {
            Verdict::Passed => &mut self.passed,
            Verdict::Failed(_) => &mut self.failed,
            Verdict::Skipped(_) => &mut self.skipped,
        } += 1;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}
