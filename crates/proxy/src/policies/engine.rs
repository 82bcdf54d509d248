//! Keeps the rules of the kernel as the policies say.
//!
//! ```text
//!   wait ──▶ take what has changed ──▶ all listed? ──▶ one transaction ──▶ pods that wait begin
//!    ▲                                    │ no                │ it fails: the whole table at once, then with backoff
//!    └────────────────────────────────────┴───────────────────┘
//! ```
//!
//! Until everything is listed the kernel has the rules of a former agent. Pods and namespaces are not watched before there is a
//! policy: a cluster without policies costs its nodes nothing.

mod kernel;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{BoxStream, SelectAll, StreamExt as _};
use k8s_openapi::api::core::v1::{Container, Namespace, Pod, PodSpec, PodStatus};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use plumb_client::Api;
use plumb_controller_runtime::reflector::Watchable;
use plumb_controller_runtime::{Backoff, Exponential, Reflector, WatchConfig, WatchEvent, compact};
use tokio::time::Instant;

use super::local::{LocalPods, Waiting};
use super::state::{ServedPeer, State};
use kernel::Kernel;

/// How many observations one transaction has at most: others wait for the next.
const MAX_OBSERVATIONS: usize = 4096;
/// How long after a failure the rules are tried again.
const RETRIES: Exponential = Exponential::new(Duration::from_millis(100), Duration::from_secs(30));

/// The configuration of a node's policies.
#[derive(Clone)]
pub struct Config {
    /// The name of the kernel's table.
    pub table: String,
    /// The name of the node.
    pub node: String,
    /// The network of its pods.
    pub network: (Ipv4Addr, u8),
    /// What the agent serves in place of pods.
    pub served: Vec<ServedPeer>,
    /// Lists and watches policies, namespaces and pods.
    pub client: Client,
}

/// The policies of a node.
#[derive(Clone)]
pub struct Policies {
    config: Arc<Config>,
    local: LocalPods,
}

enum Observation {
    Policies(WatchEvent<NetworkPolicy>),
    Namespaces(WatchEvent<Namespace>),
    Pods(WatchEvent<Pod>),
}

/// What was listed.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Listed {
    policies: bool,
    namespaces: bool,
    pods: bool,
    /// Whether there is or was a policy: namespaces and pods are watched.
    needed: bool,
}

impl Listed {
    fn is_complete(&self) -> bool {
        self.policies && (!self.needed || (self.namespaces && self.pods))
    }
}

impl Policies {
    /// The policies of a node, which are applied while [`run`](Self::run) runs.
    pub fn new(config: Config) -> Self {
        Self { config: Arc::new(config), local: LocalPods::default() }
    }

    /// The pods of the node, which the runtime adds and removes.
    pub fn local_pods(&self) -> &LocalPods {
        &self.local
    }

    /// Applies the policies until the future is dropped. The kernel keeps the rules.
    pub fn run(&self) -> BoxFuture<'static, ()> {
        let this = self.clone();
        async move {
            let kernel = Arc::new(Kernel::new(this.config.table.clone()));
            let watched = kernel.clone();
            let repairing = plumb_nftables::on_change(move || watched.check());
            tokio::select! {
                () = this.follow(&kernel) => {}
                () = repairing => {}
            }
        }
        .boxed()
    }

    async fn follow(&self, kernel: &Arc<Kernel>) {
        let config = &self.config;
        let mut state = State::new(&config.node, config.network, config.served.iter().cloned());
        let mut watched: SelectAll<BoxStream<'static, Observation>> = SelectAll::new();
        watched.push(watch::<NetworkPolicy>(&config.client, compact).map(Observation::Policies).boxed());
        let mut listed = Listed::default();
        let mut waiting: Vec<Waiting> = Vec::new();
        let mut backoff = Backoff::new(RETRIES);
        let mut retry: Option<Instant> = None;
        // A follower before this one may have taken them.
        self.local.touch();
        loop {
            tokio::select! {
                Some(observation) = watched.next() => {
                    observe(&mut state, &mut listed, observation);
                    for _ in 0..MAX_OBSERVATIONS {
                        let Some(Some(observation)) = watched.next().now_or_never() else { break };
                        observe(&mut state, &mut listed, observation);
                    }
                }
                () = self.local.changed() => {}
                () = kernel.lost() => {}
                () = tokio::time::sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => {}
            }
            let changes = self.local.take();
            for (key, started) in changes.pods {
                state.set_started(&key, started);
            }
            waiting.extend(changes.waiting);
            if listed.needed && watched.len() == 1 {
                let namespaces = watch::<Namespace>(&config.client, only_labels);
                watched.push(namespaces.map(Observation::Namespaces).boxed());
                watched.push(watch::<Pod>(&config.client, essence).map(Observation::Pods).boxed());
            }
            if !listed.is_complete() {
                continue;
            }
            match kernel.apply(&mut state).await {
                Ok(()) => {
                    if retry.take().is_some() {
                        backoff.reset();
                        tracing::info!("network policies are applied again");
                    }
                    waiting.drain(..).for_each(Waiting::begin);
                }
                Err(error) => {
                    if retry.is_none() {
                        tracing::warn!(%error, "network policies are not applied; pods that they select do not begin");
                    }
                    retry = Some(Instant::now() + backoff.failed());
                    let (selected, others): (Vec<_>, Vec<_>) =
                        waiting.drain(..).partition(|pod| state.is_selected(&pod.key));
                    others.into_iter().for_each(Waiting::begin);
                    waiting = selected;
                }
            }
        }
    }
}

fn observe(state: &mut State, listed: &mut Listed, observation: Observation) {
    match observation {
        Observation::Policies(WatchEvent::Restarted(policies)) => {
            listed.policies = true;
            listed.needed |= !policies.is_empty();
            state.replace_policies(&policies);
        }
        Observation::Policies(WatchEvent::Applied(policy)) => {
            listed.needed = true;
            state.apply_policy(&policy);
        }
        Observation::Policies(WatchEvent::Deleted(policy)) => state.delete_policy(&policy),
        Observation::Namespaces(WatchEvent::Restarted(namespaces)) => {
            listed.namespaces = true;
            state.replace_namespaces(namespaces);
        }
        Observation::Namespaces(WatchEvent::Applied(namespace)) => state.apply_namespace(&namespace),
        Observation::Namespaces(WatchEvent::Deleted(namespace)) => state.delete_namespace(&namespace.name),
        Observation::Pods(WatchEvent::Restarted(pods)) => {
            listed.pods = true;
            state.replace_pods(pods);
        }
        Observation::Pods(WatchEvent::Applied(pod)) => state.apply_pod(&pod),
        Observation::Pods(WatchEvent::Deleted(pod)) => state.delete_pod(&pod),
    }
}

fn watch<K: Watchable + kube::Resource<DynamicType = ()> + Clone + Send + 'static>(
    client: &Client,
    transform: fn(K) -> K,
) -> BoxStream<'static, WatchEvent<K>> {
    let reflector = Reflector::new(Api::<K>::all(client.clone()), WatchConfig::default());
    reflector.with_transform(transform).into_stream().boxed()
}

fn only_labels(namespace: Namespace) -> Namespace {
    let ObjectMeta { name, labels, resource_version, .. } = namespace.metadata;
    Namespace {
        metadata: ObjectMeta { name, labels, resource_version, ..ObjectMeta::default() },
        ..Namespace::default()
    }
}

/// What policies read of a pod: a list has all pods of the cluster.
fn essence(pod: Pod) -> Pod {
    let ObjectMeta { name, namespace, uid, labels, resource_version, .. } = pod.metadata;
    let metadata = ObjectMeta { name, namespace, uid, labels, resource_version, ..ObjectMeta::default() };
    let container = |container: Container| Container {
        ports: container.ports,
        restart_policy: container.restart_policy,
        ..Container::default()
    };
    let spec = pod.spec.map(|spec| PodSpec {
        node_name: spec.node_name,
        host_network: spec.host_network,
        containers: spec.containers.into_iter().map(container).collect(),
        init_containers: spec.init_containers.map(|all| all.into_iter().map(container).collect()),
        ..PodSpec::default()
    });
    let status = pod.status.map(|status| PodStatus {
        phase: status.phase,
        pod_ip: status.pod_ip,
        pod_ips: status.pod_ips,
        ..PodStatus::default()
    });
    Pod { metadata, spec, status }
}
