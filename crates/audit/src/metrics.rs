//! The metrics of auditing, under upstream's names.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use plumb_metrics::Text;

use crate::level::Level;

/// What was recorded, and what was lost.
#[derive(Debug, Default)]
pub struct Metrics {
    pub(crate) events: AtomicU64,
    levels: [AtomicU64; Level::ALL.len()],
    /// Events that did not fit into the buffer.
    pub(crate) dropped: AtomicU64,
    /// Events that could not be written to the log.
    pub(crate) unwritten: AtomicU64,
}

impl Metrics {
    pub(crate) fn count_level(&self, level: Level) {
        self.levels[level as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn render(&self, text: &mut Text) {
        let name = "apiserver_audit_event_total";
        text.counter(name, "audit events that were sent to the audit backends");
        text.sample(name, &[], self.events.load(Relaxed));
        let name = "apiserver_audit_error_total";
        text.counter(name, "audit events that were lost, by the plugin that lost them");
        for (plugin, count) in [("buffered", &self.dropped), ("log", &self.unwritten)] {
            text.sample(name, &[("plugin", plugin)], count.load(Relaxed));
        }
        let name = "apiserver_audit_level_total";
        text.counter(name, "requests by the level of the audit policy");
        for (level, count) in Level::ALL.into_iter().zip(&self.levels) {
            text.sample(name, &[("level", level.name())], count.load(Relaxed));
        }
        let name = "apiserver_audit_requests_rejected_total";
        text.counter(name, "requests that were rejected because they could not be audited: none ever is");
        text.sample(name, &[], 0);
    }
}
