//! The memory peak of aggregation windows that are not over.
//!
//! A checkpoint holds the memory peaks of windows that are over, as upstream's does. A window lasts a day, so that the peak
//! of today is in no object of the API. An annotation of the checkpoint has it, for the memory decrease guard of the
//! updater. Upstream's recommender leaves it as it is, which is why it says until when it counts.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::aggregate::Aggregate;
use super::config::AggregationConfig;
use super::time::{Time, nanos};

/// The annotation of a checkpoint that has the peak: a JSON object.
pub const WINDOW_PEAK_ANNOTATION: &str = "plumb.dev/vpa-memory-window-peak";

/// For how long a peak counts after its window: until then the checkpoint is written again, with the peak in its histogram.
const GRACE: Duration = Duration::from_mins(30);

/// The highest memory peak of a container's windows that are not over, of all its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowPeak {
    /// In bytes, rounded up to the end of its bucket: another peak of the same bucket needs no write.
    pub bytes: i64,
    /// When the last of the windows ends.
    pub until: Time,
}

#[derive(Serialize, Deserialize)]
struct Written {
    bytes: i64,
    until: Timestamp,
}

impl WindowPeak {
    /// The peak of a window.
    pub(crate) fn new(config: &AggregationConfig, bytes: i64, until: Time) -> Self {
        let buckets = &config.memory.buckets;
        #[expect(clippy::cast_precision_loss, reason = "a bucket is wider than what is lost")]
        let end = buckets.end(buckets.find(bytes as f64)).ceil();
        #[expect(
            clippy::cast_possible_truncation,
            reason = "at most a terabyte, unless a peak is in the last bucket"
        )]
        let end = end as i64;
        Self { bytes: end.max(bytes), until }
    }

    /// Reads the annotation. One that cannot be read has no peak.
    pub fn from_annotation(text: &str) -> Option<Self> {
        let Written { bytes, until } = serde_json::from_str(text).ok()?;
        Some(Self { bytes, until: Time::try_from(until).ok()? })
    }

    /// The value of the annotation.
    pub fn to_annotation(self) -> Option<String> {
        let written = Written { bytes: self.bytes, until: self.until.truncated_to_seconds().timestamp()? };
        serde_json::to_string(&written).ok()
    }

    /// Whether it counts at a time.
    pub fn counts_at(self, now: Time) -> bool {
        now < self.until.plus_nanos(nanos(GRACE))
    }

    /// Counts the peak in an aggregate that does not have it, such as that of the checkpoint whose annotation it is.
    pub fn count_in(self, config: &AggregationConfig, aggregate: &mut Aggregate) {
        // The end of a bucket is the start of the next one.
        aggregate.add_memory_peak(config, self.until, self.bytes.saturating_sub(1).max(0));
    }

    /// The higher of two peaks, until the windows of both are over.
    #[must_use]
    pub(crate) fn max(self, other: Self) -> Self {
        Self { bytes: self.bytes.max(other.bytes), until: self.until.max(other.until) }
    }
}
