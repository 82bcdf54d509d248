//! The Lease of a node: its heartbeat.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::Client;
use kube::api::PostParams;
use plumb_client::Api;
use plumb_controller_runtime::Backoff;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::spread;
use crate::Clock;

const NAMESPACE: &str = "kube-node-lease";
/// For how long it is good.
const SECONDS: i32 = 40;
/// How often it is renewed.
const RENEW: Duration = Duration::from_secs(10);

/// Renews a node's lease, until the future is dropped. `uid` is the Node's, which owns the lease.
///
/// A renewal is one update of the object that the last one returned. Only after a conflict the Lease is read again.
pub(super) async fn keep(client: Client, node: &str, uid: watch::Receiver<String>, clock: &Clock) {
    let leases = Api::<Lease>::namespaced(client, NAMESPACE);
    let mut held: Option<Lease> = None;
    let mut backoff = Backoff::default();
    // The first one at once, the others with jitter.
    let mut next = Instant::now() + spread(node, RENEW);
    loop {
        let owner = uid.borrow().clone();
        // Boxed: a thousand nodes wait here, and few speak.
        match Box::pin(renew(&leases, held.take(), node, &owner, clock)).await {
            Ok(lease) => {
                held = Some(lease);
                backoff.reset();
                sleep_until(next).await;
                next = (next + RENEW).max(Instant::now());
            }
            Err(error) => {
                tracing::warn!(%error, node, "the node's lease could not be renewed yet");
                backoff.wait().await;
            }
        }
    }
}

async fn renew(
    leases: &Api<Lease>,
    held: Option<Lease>,
    node: &str,
    uid: &str,
    clock: &Clock,
) -> Result<Lease, kube::Error> {
    let params = PostParams::default();
    if let Some(held) = held {
        let renewed = leases.replace(node, &params, &renewed(held, node, uid, clock)).await;
        match renewed {
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {}
            renewed => return renewed,
        }
    }
    if let Some(found) = leases.get_opt(node).await? {
        return leases.replace(node, &params, &renewed(found, node, uid, clock)).await;
    }
    let metadata = ObjectMeta {
        name: Some(node.to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        ..ObjectMeta::default()
    };
    let new = Lease { metadata, spec: None };
    leases.create(&params, &renewed(new, node, uid, clock)).await
}

fn renewed(mut lease: Lease, node: &str, uid: &str, clock: &Clock) -> Lease {
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    };
    lease.metadata.owner_references = Some(vec![owner]);
    lease.metadata.managed_fields = None;
    let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
    spec.holder_identity = Some(node.to_owned());
    spec.lease_duration_seconds = Some(SECONDS);
    spec.renew_time = Some(MicroTime(clock()));
    lease
}
