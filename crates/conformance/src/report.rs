//! Results of cases, as text.

use std::fmt;
use std::time::Duration;

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passed.
    Passed,
    /// It failed, and why.
    Failed(String),
    /// The runner skipped it, and why.
    Skipped(String),
}

/// A case with its result.
#[derive(Clone, Debug)]
pub struct Report {
    /// The case's name.
    pub name: &'static str,
    /// The result.
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

/// The number of cases by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Passed cases.
    pub passed: usize,
    /// Failed cases.
    pub failed: usize,
    /// Skipped cases.
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
