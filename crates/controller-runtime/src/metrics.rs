//! Metrics under the names that client-go and controller-runtime give them.
//!
//! One [`Metrics`] is the registry of a process, or of a test: clones share it. Each component gets its handle by
//! name once, counts with that handle without a lookup, and [`Metrics::render`] writes all of them for Prometheus.
//!
//! ```
//! use std::time::Duration;
//! use plumb_controller_runtime::metrics::{Metrics, ReconcileResult};
//!
//! let metrics = Metrics::default();
//! let queue = metrics.work_queue("deployment");
//! queue.added(1);
//! let processing = queue.started(Duration::from_millis(3), 0);
//! let reconciling = metrics.controller("deployment").reconciling();
//! reconciling.finish(ReconcileResult::Success);
//! drop(processing);
//!
//! let mut text = plumb_metrics::Text::default();
//! metrics.render(&mut text);
//! let text = text.finish();
//! assert!(text.contains("workqueue_adds_total{name=\"deployment\"} 1"));
//! assert!(text.contains("controller_runtime_reconcile_total{controller=\"deployment\",result=\"success\"} 1"));
//! ```

mod controller;
mod events;
mod leader;
mod reflector;
mod registered;
mod rest_client;
mod work_queue;

use std::sync::Arc;

use plumb_metrics::Text;

pub use controller::{ControllerMetrics, ReconcileResult, Reconciling};
pub use events::{EventMetrics, EventOutcome};
pub use leader::LeaderMetrics;
pub use reflector::ReflectorMetrics;
pub use rest_client::{CountedService, RestClientMetrics};
pub use work_queue::{Processing, WorkQueueMetrics};

use registered::Registered;

/// The registry of all metrics of controllers. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Families>);

#[derive(Debug, Default)]
struct Families {
    work_queues: Registered<WorkQueueMetrics>,
    controllers: Registered<ControllerMetrics>,
    reflectors: Registered<ReflectorMetrics>,
    leaders: Registered<LeaderMetrics>,
    events: Registered<EventMetrics>,
    rest_clients: Registered<RestClientMetrics>,
}

impl Metrics {
    /// The metrics of the work queue with that name, which is the name of its controller.
    pub fn work_queue(&self, name: &str) -> Arc<WorkQueueMetrics> {
        self.0.work_queues.get(name)
    }

    /// The metrics of the controller with that name.
    pub fn controller(&self, name: &str) -> Arc<ControllerMetrics> {
        self.0.controllers.get(name)
    }

    /// The metrics of the reflector with that name: the resource that it lists and watches, like `pods`.
    pub fn reflector(&self, name: &str) -> Arc<ReflectorMetrics> {
        self.0.reflectors.get(name)
    }

    /// The metrics of the election of a leader with that name, which is the name of its lease.
    pub fn leader(&self, name: &str) -> Arc<LeaderMetrics> {
        self.0.leaders.get(name)
    }

    /// The metrics of the event recorder of that component.
    pub fn events(&self, component: &str) -> Arc<EventMetrics> {
        self.0.events.get(component)
    }

    /// The metrics of the clients of the API server with that host.
    pub fn rest_client(&self, host: &str) -> Arc<RestClientMetrics> {
        self.0.rest_clients.get(host)
    }

    /// Writes all of them. A family without any series is left out.
    pub fn render(&self, text: &mut Text) {
        let Families { work_queues, controllers, reflectors, leaders, events, rest_clients } = &*self.0;
        work_queue::render(&work_queues.all(), text);
        controller::render(&controllers.all(), text);
        reflector::render(&reflectors.all(), text);
        leader::render(&leaders.all(), text);
        events::render(&events.all(), text);
        rest_client::render(&rest_clients.all(), text);
    }
}
