//! The usage of containers that are scaled together.

use plumb_resize::resource::Resource;

use super::amount;
use super::config::{AggregationConfig, CPU_SAMPLE_WEIGHT, MEMORY_PEAK_WEIGHT};
use super::histogram::DecayingHistogram;
use super::time::Time;

/// CPU samples and memory peaks of any number of containers, and how many and from when they are.
///
/// Aggregates add up: merging two gives the aggregate of the samples of both. The times and the
/// count are those of CPU samples alone, as upstream counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    cpu: DecayingHistogram,
    memory: DecayingHistogram,
    pub(crate) first_sample: Time,
    pub(crate) last_sample: Time,
    pub(crate) samples: u64,
}

impl Aggregate {
    /// An aggregate of no samples.
    pub fn new(config: &AggregationConfig) -> Self {
        Self::of(DecayingHistogram::new(&config.cpu), DecayingHistogram::new(&config.memory))
    }

    /// An aggregate of such histograms, with no sample counted.
    pub(crate) fn of(cpu: DecayingHistogram, memory: DecayingHistogram) -> Self {
        Self { cpu, memory, first_sample: Time::UNSET, last_sample: Time::UNSET, samples: 0 }
    }

    /// Counts a CPU sample, in millicores.
    pub(crate) fn add_cpu(&mut self, config: &AggregationConfig, at: Time, usage: i64) {
        let cores = amount::in_base_units(Resource::Cpu, usage);
        self.cpu.add(&config.cpu, cores, CPU_SAMPLE_WEIGHT, at);
        self.last_sample = self.last_sample.max(at);
        if !self.first_sample.is_set() || at < self.first_sample {
            self.first_sample = at;
        }
        self.samples += 1;
    }

    /// Counts a memory peak, in bytes, of the window that ends then.
    pub(crate) fn add_memory_peak(&mut self, config: &AggregationConfig, window_end: Time, peak: i64) {
        let bytes = amount::in_base_units(Resource::Memory, peak);
        self.memory.add(&config.memory, bytes, MEMORY_PEAK_WEIGHT, window_end);
    }

    /// Takes back a memory peak.
    pub(crate) fn subtract_memory_peak(&mut self, config: &AggregationConfig, window_end: Time, peak: i64) {
        let bytes = amount::in_base_units(Resource::Memory, peak);
        self.memory.subtract(&config.memory, bytes, MEMORY_PEAK_WEIGHT, window_end);
    }

    /// Makes every sample so many nanoseconds older, so that none is later than `now`.
    pub(crate) fn date_back(&mut self, config: &AggregationConfig, by: i64, now: Time) {
        self.cpu.date_back(&config.cpu, by);
        self.memory.date_back(&config.memory, by);
        self.first_sample = self.first_sample.min(now);
        self.last_sample = self.last_sample.min(now);
    }

    /// Adds everything that `other` counts.
    pub fn merge(&mut self, config: &AggregationConfig, other: &Self) {
        self.cpu.merge(&config.cpu, &other.cpu);
        self.memory.merge(&config.memory, &other.memory);
        if !self.first_sample.is_set()
            || (other.first_sample.is_set() && other.first_sample < self.first_sample)
        {
            self.first_sample = other.first_sample;
        }
        self.last_sample = self.last_sample.max(other.last_sample);
        self.samples = self.samples.saturating_add(other.samples);
    }

    /// The CPU samples, in cores.
    pub fn cpu(&self) -> &DecayingHistogram {
        &self.cpu
    }

    /// The memory peaks, in bytes.
    pub fn memory(&self) -> &DecayingHistogram {
        &self.memory
    }

    /// The histogram of a resource.
    pub fn usage(&self, resource: Resource) -> &DecayingHistogram {
        match resource {
            Resource::Cpu => &self.cpu,
            Resource::Memory => &self.memory,
        }
    }

    /// The time of the first CPU sample.
    pub fn first_sample(&self) -> Time {
        self.first_sample
    }

    /// The time of the last CPU sample.
    pub fn last_sample(&self) -> Time {
        self.last_sample
    }

    /// How many CPU samples there were.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.cpu.heap_bytes() + self.memory.heap_bytes()
    }
}
