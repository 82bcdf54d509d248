//! Metrics of the events that a component emits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use plumb_metrics::Text;

/// The result of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOutcome {
    /// It was written as a new object.
    Created,
    /// It was counted on the object of an earlier one.
    Patched,
    /// The object that it is about causes too many.
    Filtered,
    /// The queue was full.
    Dropped,
    /// The API server refused it, or could not be reached for too long.
    Failed,
}

impl EventOutcome {
    const ALL: [Self; 5] = [Self::Created, Self::Patched, Self::Filtered, Self::Dropped, Self::Failed];

    const fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Patched => "patched",
            Self::Filtered => "filtered",
            Self::Dropped => "dropped",
            Self::Failed => "failed",
        }
    }
}

/// The metrics of one event recorder.
#[derive(Debug, Default)]
pub struct EventMetrics {
    outcomes: [AtomicU64; EventOutcome::ALL.len()],
}

impl EventMetrics {
    /// Counts what became of an event.
    pub fn observe(&self, outcome: EventOutcome) {
        self.outcomes[outcome as usize].fetch_add(1, Relaxed);
    }

    /// How many events that became of.
    pub fn count(&self, outcome: EventOutcome) -> u64 {
        self.outcomes[outcome as usize].load(Relaxed)
    }
}

pub(super) fn render(recorders: &[(String, Arc<EventMetrics>)], text: &mut Text) {
    if recorders.is_empty() {
        return;
    }
    let name = "plumb_event_recorder_events_total";
    text.counter(name, "events that a component emitted, by what became of them");
    for (component, metrics) in recorders {
        for outcome in EventOutcome::ALL {
            let labels = [("component", component.as_str()), ("result", outcome.name())];
            text.sample(name, &labels, metrics.count(outcome));
        }
    }
}
