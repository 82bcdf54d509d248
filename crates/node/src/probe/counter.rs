//! Success and failure thresholds of a probe.

use k8s_openapi::api::core::v1::Probe;

/// Counts consecutive results of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    successes: u32,
    failures: u32,
    last: Option<bool>,
    run: u32,
}

impl Counter {
    /// A counter with these thresholds, at least 1 each.
    pub fn new(successes: u32, failures: u32) -> Self {
        Self { successes: successes.max(1), failures: failures.max(1), last: None, run: 0 }
    }

    /// The counter of a probe.
    pub fn of(probe: &Probe) -> Self {
        let threshold = |given: Option<i32>, usual: u32| {
            given.and_then(|given| u32::try_from(given).ok()).filter(|given| *given > 0).unwrap_or(usual)
        };
        Self::new(threshold(probe.success_threshold, 1), threshold(probe.failure_threshold, 3))
    }

    /// Counts a result; returns the verdict once the threshold is reached.
    pub fn count(&mut self, well: bool) -> Option<bool> {
        self.run = if self.last == Some(well) { self.run.saturating_add(1) } else { 1 };
        self.last = Some(well);
        let needed = if well { self.successes } else { self.failures };
        (self.run >= needed).then_some(well)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_change_after_as_many_in_a_row_as_the_threshold() {
        let mut counter = Counter::new(2, 3);
        let said = [false, false, true, false, false, false, false, true, true];
        let verdicts = said.map(|well| counter.count(well));
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(verdicts, [None, None, None, None, None, no, no, None, yes]);
    }

    #[test]
    fn default_thresholds_are_one_success_and_three_failures() {
        let mut counter = Counter::of(&Probe::default());
        assert_eq!(
            [false, false, false, true].map(|well| counter.count(well)),
            [None, None, Some(false), Some(true)]
        );
    }
}
