//! Metrics of an election, as in client-go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use plumb_metrics::Text;

/// The metrics of one election.
#[derive(Debug, Default)]
pub struct LeaderMetrics {
    leads: AtomicBool,
}

impl LeaderMetrics {
    /// Sets whether this process is the leader.
    pub fn set_leader(&self, leads: bool) {
        self.leads.store(leads, Relaxed);
    }

    /// Whether this process is the leader.
    pub fn is_leader(&self) -> bool {
        self.leads.load(Relaxed)
    }
}

pub(super) fn render(leaders: &[(String, Arc<LeaderMetrics>)], text: &mut Text) {
    if leaders.is_empty() {
        return;
    }
    let name = "leader_election_master_status";
    text.gauge(name, "whether this process is the leader (1) or a standby (0), by the name of the lease");
    for (lease, metrics) in leaders {
        text.sample(name, &[("name", lease)], u8::from(metrics.is_leader()));
    }
}
