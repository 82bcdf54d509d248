//! The limits of the namespaces of pods: limit ranges, and the unused part of quotas.

use futures_util::future::{BoxFuture, FutureExt as _, join};
use k8s_openapi::api::core::v1::{LimitRange, ResourceQuota};
use kube::Client;
use plumb_client::Api;
use plumb_controller_runtime::Informer;
use plumb_controller_runtime::metrics::Metrics;
use plumb_resize::Quantity;
use plumb_supervise::Supervisor;
use plumb_vpa::boost::{BoostContext, Headroom};
use plumb_vpa::recommendation::LimitRanges;

/// Limit ranges and quotas, by namespace. Clones share them.
#[derive(Clone, Default)]
pub struct NamespaceLimits {
    /// Limit ranges.
    pub ranges: Informer<LimitRange>,
    /// Quotas.
    pub quotas: Informer<ResourceQuota>,
}

impl NamespaceLimits {
    /// Informers that do not run yet.
    pub fn new(metrics: &Metrics) -> Self {
        Self {
            ranges: Informer::default().with_metrics(metrics),
            quotas: Informer::default().with_metrics(metrics),
        }
    }

    /// Updates both for good.
    pub fn run(&self, client: &Client, supervisor: &Supervisor) -> BoxFuture<'static, ()> {
        let ranges = self.ranges.supervised(Api::all(client.clone()), supervisor);
        let quotas = self.quotas.supervised(Api::all(client.clone()), supervisor);
        join(ranges, quotas).map(drop).boxed()
    }

    /// Waits until both are complete.
    pub async fn wait_for_sync(&self) {
        join(self.ranges.wait_for_sync(), self.quotas.wait_for_sync()).await;
    }

    /// The limits of a namespace, with the maximum of `--max-allowed-cpu-boost`.
    pub fn of(&self, namespace: &str, max_allowed: Option<Quantity>) -> BoostContext {
        let ranges = self.ranges.in_namespace(namespace);
        let quotas = self.quotas.in_namespace(namespace);
        BoostContext {
            ranges: LimitRanges::merge(ranges.iter().map(|range| &**range)),
            max_allowed,
            headroom: headroom(quotas.iter().map(|quota| &**quota)),
        }
    }
}

/// The CPU that quotas leave for one more pod. Quotas with scopes count like the others: at worst a boost is smaller
/// than it could be.
pub fn headroom<'a>(quotas: impl IntoIterator<Item = &'a ResourceQuota>) -> Headroom {
    let mut headroom = Headroom::default();
    for status in quotas.into_iter().filter_map(|quota| quota.status.as_ref()) {
        let left = |name: &str| {
            let read = |list: Option<&plumb_vpa_api::ResourceList>| Quantity::try_from(list?.get(name)?).ok();
            let hard = read(status.hard.as_ref())?;
            let used = read(status.used.as_ref()).unwrap_or(Quantity::ZERO);
            Some(hard.checked_sub(used).unwrap_or(Quantity::ZERO).max(Quantity::ZERO))
        };
        let tighter = |known: Option<Quantity>, left: Option<Quantity>| match (known, left) {
            (Some(known), Some(left)) => Some(known.min(left)),
            (known, left) => known.or(left),
        };
        for name in ["requests.cpu", "cpu"] {
            headroom.requests = tighter(headroom.requests, left(name));
        }
        headroom.limits = tighter(headroom.limits, left("limits.cpu"));
    }
    headroom
}
