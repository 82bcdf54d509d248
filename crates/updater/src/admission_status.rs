//! Whether the admission controller is alive: without it a pod that was evicted would come back as it was, and be evicted
//! again.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use parking_lot::Mutex;
use plumb_client::Api;
use plumb_controller_runtime::Clock;
use tokio::time::Instant;

use crate::metrics::UpdaterMetrics;
use crate::options::AdmissionLease;

/// For how long an answer counts.
const FRESH: Duration = Duration::from_secs(5);

/// Reads the lease of the admission controller. Clones share the last result.
#[derive(Clone)]
pub(super) struct AdmissionStatus {
    client: Client,
    lease: Option<AdmissionLease>,
    clock: Clock,
    metrics: UpdaterMetrics,
    known: Arc<Mutex<Option<(Instant, bool)>>>,
}

impl AdmissionStatus {
    pub(super) fn new(
        client: Client,
        lease: Option<AdmissionLease>,
        clock: Clock,
        metrics: UpdaterMetrics,
    ) -> Self {
        Self { client, lease, clock, metrics, known: Arc::default() }
    }

    /// Whether pods may be evicted as far as the admission controller is concerned.
    pub(super) async fn is_alive(&self) -> bool {
        let Some(wanted) = &self.lease else { return true };
        let now = self.clock.monotonic();
        let known = *self.known.lock();
        if let Some((_, is_alive)) = known.filter(|(read, _)| now.saturating_duration_since(*read) < FRESH) {
            return is_alive;
        }
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &wanted.namespace);
        let is_alive = match leases.get(&wanted.name).await {
            Ok(lease) => is_valid(&lease, wanted, self.clock.now()),
            Err(error) => {
                tracing::debug!(%error, "cannot read the lease of the admission controller");
                self.metrics.admission_status_invalid("error");
                *self.known.lock() = Some((now, false));
                return false;
            }
        };
        if !is_alive {
            self.metrics.admission_status_invalid("invalid");
        }
        *self.known.lock() = Some((now, is_alive));
        is_alive
    }
}

/// Whether a lease was created or renewed not long ago.
fn is_valid(lease: &Lease, wanted: &AdmissionLease, now: Timestamp) -> bool {
    let created = lease.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
    [created, renewed].into_iter().flatten().any(|at| now.duration_since(at) < wanted.timeout)
}
