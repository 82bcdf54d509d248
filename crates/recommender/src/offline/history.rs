//! The history of one workload from a file.

use std::collections::BTreeMap;
use std::io::Read;

use plumb_resize::resource::Resource;

use super::csv::{CsvError, Measurement, Row, SampleReader};
use crate::{AggregationConfig, Discarded, Sample, VpaSettings, Workload};

/// After how many rows progress is reported.
const ROWS_PER_REPORT: u64 = 1 << 16;

/// The history of a workload, and what of it did not count.
#[derive(Clone, Debug)]
pub struct History<'a> {
    /// The engine with all samples.
    pub workload: Workload<'a>,
    /// How many rows there were.
    pub rows: u64,
    /// How many of them the engine did not count, by reason.
    pub discarded: BTreeMap<Discarded, u64>,
}

impl<'a> History<'a> {
    /// An empty history.
    pub fn new(config: &'a AggregationConfig) -> Self {
        Self { workload: Workload::new(config, VpaSettings::default()), rows: 0, discarded: BTreeMap::new() }
    }

    /// Adds all rows of a file. `progress` is called now and then with the bytes and rows so far.
    pub fn read(&mut self, input: impl Read, mut progress: impl FnMut(u64, u64)) -> Result<(), CsvError> {
        let mut reader = SampleReader::new(input);
        while let Some(row) = reader.next_row()? {
            self.add(&row);
            if self.rows.is_multiple_of(ROWS_PER_REPORT) {
                progress(reader.consumed(), self.rows);
            }
        }
        progress(reader.consumed(), self.rows);
        Ok(())
    }

    /// Adds one row.
    pub fn add(&mut self, row: &Row<'_>) {
        self.rows += 1;
        let Row { at, pod, container, .. } = *row;
        let mut sample = |resource, value| {
            let sample = Sample::from_base_units(at, resource, value)?;
            self.workload.add_pod_sample(pod, container, sample)
        };
        let added = match row.measurement {
            Measurement::Cpu(cores) => sample(Resource::Cpu, cores),
            Measurement::Memory(bytes) => sample(Resource::Memory, bytes),
            Measurement::Oom(requested) => Sample::from_base_units(at, Resource::Memory, requested)
                .and_then(|kill| self.workload.record_pod_oom(pod, container, at, kill.usage)),
        };
        if let Err(reason) = added {
            *self.discarded.entry(reason).or_default() += 1;
        }
    }
}
