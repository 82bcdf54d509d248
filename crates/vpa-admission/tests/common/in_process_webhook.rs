//! The admission webhook without its server: tests and benchmarks call it in this process.

use kube::Client;
use plumb_client::Api;
use plumb_controller_runtime::Informer;
use plumb_controller_runtime::metrics::Metrics;
use plumb_supervise::Supervisor;
use plumb_vpa::target::{TargetConfig, Targets};
use plumb_vpa::vpas::Vpas;
use plumb_vpa_admission::limits::NamespaceLimits;
use plumb_vpa_admission::metrics::AdmissionMetrics;
use plumb_vpa_admission::vpa::Gates;
use plumb_vpa_admission::{RecentMessages, Webhook};
use plumb_vpa_api::VerticalPodAutoscaler;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// All gates on.
pub(crate) const GATES: Gates = Gates { startup_boost: true, in_place: true, per_vpa_config: true };

/// A webhook that knows only what the API has. Its informers end when this is dropped.
pub(crate) struct InProcessWebhook {
    pub(crate) webhook: Webhook,
    _tasks: JoinSet<()>,
}

impl InProcessWebhook {
    /// Starts the informers, and waits until they have listed. The webhook has the clock of the targets.
    pub(crate) async fn start(client: &Client, targets: TargetConfig) -> Self {
        let (supervisor, clock) = (Supervisor::default(), targets.clock.clone());
        let vpas: Informer<VerticalPodAutoscaler> = Informer::default();
        let index = Vpas::new(vpas.store(), Targets::new(client.clone(), targets), true, None);
        let limits = NamespaceLimits::new(&Metrics::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(vpas.supervised(Api::all(client.clone()), &supervisor));
        tasks.spawn(limits.run(client, &supervisor));
        vpas.wait_for_sync().await;
        limits.wait_for_sync().await;
        let webhook = Webhook {
            vpas: index,
            limits,
            max_allowed_cpu_boost: None,
            gates: GATES,
            serves_resize: watch::channel(Some(true)).1,
            recorder: None,
            metrics: AdmissionMetrics::default(),
            supervisor,
            clock,
            recent_messages: RecentMessages::default(),
        };
        Self { webhook, _tasks: tasks }
    }
}
