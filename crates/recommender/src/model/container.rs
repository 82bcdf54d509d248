//! One container of one pod: which of its samples count, and its memory peak of the current window.
//!
//! A container contributes every CPU sample and, of memory, one peak per window (24 hours unless set
//! otherwise). The peak is in the aggregate from its first sample on: a larger sample takes the old peak back
//! and adds itself. A peak is dated to the end of its window, which lies ahead.
//!
//! What upstream does that looks odd, and that this does too because it changes recommendations:
//!
//! - The first sample opens a window that starts at that sample, not at midnight.
//! - If a window starts with a sample of 0 bytes, that window's peak stays 0.
//! - An OOM kill counts at whatever time it is from, and the next sample may be as old as it.
//! - A kill that is older than the window counts as one of this window.
//! - After a kill the raised peak does not serve as the base of the next raise, so that a container that is
//!   killed over and over does not grow without bound within one window.

use plumb_resize::resource::Resource;

use super::aggregate::Aggregate;
use super::amount;
use super::config::AggregationConfig;
use super::policy::MemorySettings;
use super::sample::{Discarded, Sample};
use super::time::{Time, nanos};

/// The state of a container in the model apart from its aggregate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContainerState {
    last_cpu_sample: Time,
    last_memory_sample: Time,
    /// When the current memory window ends; unset before the first memory sample.
    window_end: Time,
    /// The largest memory sample of the window, in bytes.
    memory_peak: i64,
    /// The largest amount in the window that an OOM kill gave, in bytes.
    oom_peak: i64,
    /// The latest OOM kill that was counted.
    last_kill: Time,
    /// When the window ends that it was counted in.
    kill_window_end: Time,
}

impl ContainerState {
    /// Counts a sample in the container's aggregate, or returns why not.
    ///
    /// CPU samples have to come in order. A memory sample may have the time of the last one.
    pub fn add_sample(
        &mut self,
        config: &AggregationConfig,
        settings: &MemorySettings,
        aggregate: &mut Aggregate,
        sample: Sample,
    ) -> Result<(), Discarded> {
        if sample.usage < 0 {
            return Err(Discarded::Negative);
        }
        if !sample.at.is_set() {
            return Err(Discarded::NoTime);
        }
        match sample.resource {
            Resource::Cpu => self.add_cpu(config, aggregate, sample),
            Resource::Memory if sample.at < self.last_memory_sample => Err(Discarded::OutOfOrder),
            Resource::Memory => {
                self.add_memory(config, settings, aggregate, sample.at, Peak::Usage(sample.usage));
                Ok(())
            }
        }
    }

    /// Counts an OOM kill as a memory sample above the container's request.
    ///
    /// `requested` is the container's memory request when it was killed, in bytes.
    pub fn record_oom(
        &mut self,
        config: &AggregationConfig,
        settings: &MemorySettings,
        aggregate: &mut Aggregate,
        at: Time,
        requested: i64,
    ) -> Result<(), Discarded> {
        if !at.is_set() {
            return Err(Discarded::NoTime);
        }
        // From the last sample rather than the window's end, which may be a whole interval ahead of it
        // (kubernetes/autoscaler#8548).
        if at < self.last_memory_sample.plus_nanos(-nanos(settings.interval)) {
            return Err(Discarded::TooOld);
        }
        let needed = self.needed_after_oom(settings, requested);
        self.add_memory(config, settings, aggregate, at, Peak::Oom(needed));
        self.last_kill = self.last_kill.max(at);
        self.kill_window_end = self.window_end;
        Ok(())
    }

    /// The latest OOM kill that was counted.
    pub(crate) fn last_kill(&self) -> Time {
        self.last_kill
    }

    /// The latest OOM kill, if the window is over that it was counted in.
    pub(crate) fn settled_kill(&self, now: Time) -> Option<Time> {
        (self.last_kill.is_set() && self.kill_window_end <= now).then_some(self.last_kill)
    }

    /// The memory that a container needs after an OOM kill, in bytes.
    pub(crate) fn needed_after_oom(&self, settings: &MemorySettings, requested: i64) -> i64 {
        let used = requested.max(self.memory_peak).max(0);
        used.saturating_add(amount::from_float(settings.oom_min_bump_up_bytes))
            .max(amount::scaled(used, settings.oom_bump_up_ratio))
    }

    /// The peak of the current window, from samples and OOM kills.
    pub fn current_peak(&self) -> i64 {
        self.memory_peak.max(self.oom_peak)
    }

    /// When the current memory window ends; unset before the first memory sample.
    pub fn window_end(&self) -> Time {
        self.window_end
    }

    /// The peak of a window that is not over, with the window's end.
    pub fn open_window(&self, now: Time) -> Option<(Time, i64)> {
        (now < self.window_end).then(|| (self.window_end, self.current_peak()))
    }

    /// Takes back times that have not come yet, once the clock was set back to `now`: samples from now on are in
    /// order, and a window that ends too late ends now.
    pub(crate) fn date_back(&mut self, now: Time, latest: Time) {
        if self.last_memory_sample > latest {
            self.last_memory_sample = now;
            self.window_end = now;
            self.kill_window_end = self.kill_window_end.min(now);
        }
        if self.last_cpu_sample > latest {
            self.last_cpu_sample = now;
        }
    }

    fn add_cpu(
        &mut self,
        config: &AggregationConfig,
        aggregate: &mut Aggregate,
        sample: Sample,
    ) -> Result<(), Discarded> {
        if sample.at == self.last_cpu_sample {
            return Err(Discarded::Duplicate);
        }
        if sample.at < self.last_cpu_sample {
            return Err(Discarded::OutOfOrder);
        }
        aggregate.add_cpu(config, sample.at, sample.usage);
        self.last_cpu_sample = sample.at;
        Ok(())
    }

    fn add_memory(
        &mut self,
        config: &AggregationConfig,
        settings: &MemorySettings,
        aggregate: &mut Aggregate,
        at: Time,
        peak: Peak,
    ) {
        self.last_memory_sample = at;
        if !self.window_end.is_set() {
            self.window_end = at;
        }
        if at < self.window_end {
            let current = self.current_peak();
            if current == 0 || peak.amount() <= current {
                return;
            }
            aggregate.subtract_memory_peak(config, self.window_end, current);
        } else {
            let interval = nanos(settings.interval).max(1);
            let late = at.nanos_since(self.window_end);
            self.window_end = self.window_end.plus_nanos((late - late % interval).saturating_add(interval));
            self.memory_peak = 0;
            self.oom_peak = 0;
        }
        aggregate.add_memory_peak(config, self.window_end, peak.amount());
        match peak {
            Peak::Usage(bytes) => self.memory_peak = bytes,
            Peak::Oom(bytes) => self.oom_peak = bytes,
        }
    }
}

/// A possible memory peak.
#[derive(Clone, Copy)]
enum Peak {
    Usage(i64),
    Oom(i64),
}

impl Peak {
    fn amount(self) -> i64 {
        match self {
            Self::Usage(bytes) | Self::Oom(bytes) => bytes,
        }
    }
}
