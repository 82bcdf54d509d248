//! What the API server calls: the policy, and the backends that its events go to.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use plumb_metrics::Text;

use crate::event::Event;
use crate::level::Level;
use crate::metrics::Metrics;
use crate::policy::{Attributes, Decision, Policy};

/// Where events go.
pub trait Backend: Send + Sync {
    /// Accepts an event as a line with its newline. It does not block: what it cannot accept, it counts and drops.
    fn process(&self, line: &[u8]);

    /// Returns once all accepted events are written, and accepts no more.
    fn close(&self);
}

/// Records requests.
pub struct Auditor {
    policy: Policy,
    backends: Vec<Arc<dyn Backend>>,
    metrics: Arc<Metrics>,
}

impl fmt::Debug for Auditor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auditor").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl Auditor {
    /// Records what a policy asks for, in all of the backends, which count in the same metrics.
    pub fn new(policy: Policy, backends: Vec<Arc<dyn Backend>>, metrics: Arc<Metrics>) -> Self {
        Self { policy, backends, metrics }
    }

    /// What is recorded of a request. Called once for each request, which is counted.
    pub fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let decision = self.policy.decide(attributes);
        self.metrics.count_level(decision.level);
        decision
    }

    /// Records an event, unless its stage is omitted.
    pub fn emit(&self, decision: &Decision, event: &Event<'_>) {
        if decision.level == Level::None || decision.omit_stages.contains(event.stage) {
            return;
        }
        self.metrics.events.fetch_add(1, Relaxed);
        match event.to_line() {
            Ok(line) => self.backends.iter().for_each(|backend| backend.process(&line)),
            Err(error) => {
                self.metrics.unwritten.fetch_add(1, Relaxed);
                tracing::error!(%error, audit_id = event.audit_id, "cannot encode an audit event");
            }
        }
    }

    /// Returns once all events are written. Later ones are dropped.
    pub fn close(&self) {
        self.backends.iter().for_each(|backend| backend.close());
    }

    /// Writes the metrics.
    pub fn render(&self, text: &mut Text) {
        self.metrics.render(text);
    }
}
