//! Failures of a pod worker, one after the other: how many, and which of them are logged.

/// Failures since the last success.
#[derive(Debug, Default)]
pub(super) struct Failures {
    count: u32,
    /// How often the last error has occurred in a row, and what it said.
    repeated: u32,
    error: String,
}

impl Failures {
    /// Counts a failure. Returns whether it is to be logged as a warning: a new error is, and one that repeats after twice as
    /// many failures each time. A pod with a claim that no controller binds fails every ten seconds for as long as it exists.
    pub(super) fn add(&mut self, error: &str) -> bool {
        self.count = self.count.saturating_add(1);
        if self.error == error {
            self.repeated = self.repeated.saturating_add(1);
        } else {
            self.repeated = 1;
            error.clone_into(&mut self.error);
        }
        self.repeated.is_power_of_two()
    }

    /// How many there were since the last success.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The worker has succeeded.
    pub(super) fn reset(&mut self) {
        self.count = 0;
        self.repeated = 0;
        self.error.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_repeats_is_logged_ever_more_rarely() {
        let mut failures = Failures::default();
        let logged: Vec<u32> = (1..=1_000).filter(|_| failures.add("no claim")).collect();
        assert_eq!(logged, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
        assert!(failures.add("another"), "a new error is logged at once");
        assert_eq!(failures.count(), 1_001);
        failures.reset();
        assert!(failures.add("another"), "after a success, too");
        assert_eq!(failures.count(), 1);
    }
}
