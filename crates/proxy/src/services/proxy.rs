//! The loop that brings the kernel to what the API says.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, StreamExt as _, select_all};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use plumb_client::Api;
use plumb_controller_runtime::{Clock, Reflector, WatchConfig};
use plumb_metrics::Text;
use plumb_nftables::on_change;
use plumb_supervise::Backoff;

use super::health::HealthServers;
use super::kernel::{Applied, Kernel, delete_stale_connections};
use super::kernel_table::KernelTable;
use super::metrics::Metrics;
use super::programmer::RulesConfig;
use super::service::{HEADLESS_LABEL, PROXY_NAME_LABEL};
use super::state::{Event, ServiceChanges, State};

/// The most events that one transaction comes from.
const MAX_EVENTS: usize = 1024;

/// The configuration of a proxy.
#[derive(Clone)]
pub struct Config {
    /// How it reaches the cluster.
    pub client: Client,
    /// Its rules.
    pub rules: RulesConfig,
    /// Clocks for metrics.
    pub clock: Clock,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// The service proxy of a node.
#[derive(Debug)]
pub struct Services {
    config: Config,
    kernel: Arc<Kernel>,
    metrics: Metrics,
}

impl Services {
    /// A proxy, which leaves the kernel as it is until [`Services::run`]. Must be called in the network namespace of the node.
    pub fn new(config: Config) -> Arc<Self> {
        let kernel = Arc::new(Kernel::new(&config.rules));
        Arc::new(Self { kernel, config, metrics: Metrics::default() })
    }

    /// Follows Services and endpoints until the future is dropped. The rules stay.
    pub fn run(self: &Arc<Self>) -> BoxFuture<'static, ()> {
        let proxy = self.clone();
        Box::pin(async move {
            let kernel = proxy.kernel.clone();
            tokio::join!(proxy.follow(), on_change(move || kernel.repair()));
        })
    }

    /// Writes the metrics.
    pub fn render_metrics(&self, text: &mut Text) {
        self.metrics.render(text);
    }

    /// Serves a pod with this address, on a network where pods are known by their addresses.
    pub fn add_pod(&self, address: Ipv4Addr) -> io::Result<()> {
        self.kernel.change_pod(address, true)
    }

    /// Forgets the address of a pod that has ended.
    pub fn remove_pod(&self, address: Ipv4Addr) -> io::Result<()> {
        self.kernel.change_pod(address, false)
    }

    /// Removes the rules.
    pub fn clear(&self) -> io::Result<()> {
        self.kernel.clear()
    }

    async fn follow(&self) {
        let mut state = State::new(&self.config.rules);
        let mut events = self.events().ready_chunks(MAX_EVENTS);
        let mut servers = HealthServers::default();
        let mut backoff = Backoff::default();
        let mut whole = true;
        let mut failed = false;
        loop {
            // A failure is tried again, with what has changed until then.
            let observed = tokio::select! {
                observed = events.next() => observed,
                () = backoff.wait(), if failed => Some(Vec::new()),
            };
            let Some(observed) = observed else { return };
            for event in observed {
                state.observe(event);
            }
            if !state.is_synced() {
                continue;
            }
            let (changes, triggers) = state.take_changes();
            failed = !self.apply(changes, std::mem::take(&mut whole), &triggers).await;
            servers.set_healthy(!failed);
            servers.update(state.health_checks());
            if !failed {
                backoff.reset();
            }
        }
    }

    fn events(&self) -> impl futures_util::Stream<Item = Event> + use<> {
        // Those of another proxy, and those without an address, are not even listed (kube-proxy's selector).
        let selector = format!("!{PROXY_NAME_LABEL},!{HEADLESS_LABEL}");
        let client = || self.config.client.clone();
        let own = WatchConfig::default().labels(selector);
        let node = WatchConfig::default().fields(format!("metadata.name={}", self.config.rules.node));
        let services = Reflector::new(Api::<Service>::all(client()), own.clone()).into_stream();
        let slices = Reflector::new(Api::<EndpointSlice>::all(client()), own).into_stream();
        let nodes = Reflector::new(Api::<Node>::all(client()), node).into_stream();
        let all: [BoxStream<'static, Event>; 3] = [
            services.map(Event::Service).boxed(),
            slices.map(Event::Slice).boxed(),
            nodes.map(Event::Node).boxed(),
        ];
        select_all(all)
    }

    /// Applies changes, which are of all Services or of some; whether the kernel has them.
    async fn apply(&self, changes: ServiceChanges, all: bool, triggers: &[Timestamp]) -> bool {
        let kernel = self.kernel.clone();
        let started = self.config.clock.monotonic();
        let applied = tokio::task::spawn_blocking(move || kernel.apply(changes, all)).await;
        let applied = applied.unwrap_or_else(|panic| Err(io::Error::other(panic)));
        let Applied { whole, stale } = match applied {
            Ok(applied) => applied,
            Err(error) => {
                self.metrics.failed();
                tracing::warn!(%error, "the kernel does not have the rules of Services");
                return false;
            }
        };
        let now = self.config.clock.now();
        let took = self.config.clock.monotonic().saturating_duration_since(started);
        self.metrics.applied(whole, took, now, self.kernel.size());
        if whole {
            tracing::info!(table = self.config.rules.table, ?took, "Services have rules");
        }
        for trigger in triggers {
            self.metrics.programmed(Duration::try_from(now.duration_since(*trigger)).unwrap_or_default());
        }
        let deleted = tokio::task::spawn_blocking(move || delete_stale_connections(&stale)).await;
        match deleted.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
            Ok(count) => self.metrics.deleted_connections(count),
            Err(error) => {
                tracing::warn!(%error, "UDP connections may still go to endpoints that are gone");
            }
        }
        true
    }
}

/// Removes the rules of a table, if there are any.
pub fn remove(table: &str) -> io::Result<()> {
    // A kernel without `nf_tables` has no table to remove.
    if !plumb_nftables::has_table(table).unwrap_or(false) {
        return Ok(());
    }
    KernelTable::removal(table).commit()
}
