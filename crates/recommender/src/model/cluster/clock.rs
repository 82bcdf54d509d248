//! The time, and clocks that jump.

use std::time::Duration;

use super::super::time::{Time, nanos};
use super::Cluster;

/// How the clock moved between two calls of [`Cluster::set_time`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockStep {
    /// As clocks do.
    Regular,
    /// Ahead by more than a memory interval: the machine slept, or the clock was set. The gap does not make
    /// histories older.
    Forward(Duration),
    /// Back, behind samples that were counted: they count as of now.
    Backward(Duration),
}

/// The gaps in time. They make no history older.
#[derive(Clone, Debug, Default)]
pub(super) struct ClockSteps(Vec<Gap>);

#[derive(Clone, Copy, Debug)]
struct Gap {
    end: Time,
    nanos: i64,
}

impl ClockSteps {
    fn add(&mut self, gap: Gap) {
        if self.0.len() == MAX_GAPS {
            self.0.remove(0);
        }
        self.0.push(gap);
    }

    /// Nanoseconds from a time to now, without the gaps in between.
    pub(super) fn age(&self, since: Time, now: Time) -> i64 {
        let gaps =
            self.0.iter().filter(|gap| gap.end > since).map(|gap| gap.nanos).fold(0, i64::saturating_add);
        now.nanos_since(since).saturating_sub(gaps)
    }
}

impl Cluster {
    /// The current time.
    pub fn time(&self) -> Time {
        self.now
    }

    /// Sets the current time. To be called at the start of every tick.
    pub fn set_time(&mut self, now: Time) -> ClockStep {
        let before = std::mem::replace(&mut self.now, now);
        if !before.is_set() || !now.is_set() {
            return ClockStep::Regular;
        }
        let interval = nanos(self.config.settings.memory_interval);
        let step = now.nanos_since(before);
        if step > interval {
            self.clock_steps.add(Gap { end: now, nanos: step });
            return ClockStep::Forward(duration(step));
        }
        let tolerance = nanos(self.settings.future_tolerance);
        if self.newest_sample > now.plus_nanos(tolerance) {
            let by = self.newest_sample.nanos_since(now);
            self.count_future_samples_as_of_now(tolerance);
            return ClockStep::Backward(duration(by));
        }
        ClockStep::Regular
    }

    /// Dates back samples with a time in the future. Else their weight would outweigh every sample until then, and no
    /// sample before it would be accepted as in order.
    fn count_future_samples_as_of_now(&mut self, tolerance: i64) {
        let (now, latest) = (self.now, self.now.plus_nanos(tolerance));
        for entry in self.aggregates.iter_mut() {
            let ahead = entry.aggregate.last_sample();
            if ahead > latest {
                entry.aggregate.date_back(&self.config, ahead.nanos_since(now), now);
            }
        }
        for pod in self.pods.iter_mut() {
            for (_, container) in &mut pod.containers {
                container.date_back(now, latest);
            }
        }
        self.newest_sample = now;
        let vpas: Vec<_> = self.vpas.iter().map(|(id, _)| id).collect();
        for vpa in vpas {
            self.mark_changed(vpa);
        }
    }
}

/// How many gaps are remembered. Each is longer than a memory interval.
const MAX_GAPS: usize = 64;

fn duration(nanos: i64) -> Duration {
    Duration::from_nanos(nanos.unsigned_abs())
}
