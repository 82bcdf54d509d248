//! Network policies for the pods of a node.

use std::net::Ipv4Addr;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Client;
use plumb_client::Api;
use plumb_controller_runtime::{Reflector, WatchConfig, WatchEvent};
use plumb_proxy::policies::{Config, LocalPods, PodKey, Policies, ServedPeer, StartedPod};
use plumb_runtime::builtin::{Builtin, PodAddress, PodGate};
use plumb_runtime::types::PodMeta;

/// Labels that the node agent adds to those of a pod.
const OWN_LABELS: &str = "io.kubernetes.pod.";

/// Has the pods of a runtime wait for their policies. They are applied while the future runs. The agent serves DNS at an
/// address, if it does.
pub(crate) fn prepare(
    runtime: &Builtin,
    node: &str,
    dns: Option<Ipv4Addr>,
    client: Client,
) -> impl Fn() -> BoxFuture<'static, ()> + use<> {
    let policies = Policies::new(Config {
        table: runtime.policies_table(),
        node: node.to_owned(),
        network: runtime.pod_network(),
        served: dns.map(cluster_dns).into_iter().collect(),
        client,
    });
    runtime.set_gate(Arc::new(Gate(policies.local_pods().clone())));
    move || policies.run()
}

/// The DNS server of the agent: manifests allow connections to it as to the pods of CoreDNS, which there are none of.
fn cluster_dns(address: Ipv4Addr) -> ServedPeer {
    ServedPeer {
        namespace: "kube-system".to_owned(),
        name: "kube-dns".to_owned(),
        labels: [("k8s-app".to_owned(), "kube-dns".to_owned())].into(),
        address,
        ports: vec![("dns".to_owned(), 17, 53), ("dns-tcp".to_owned(), 6, 53)],
    }
}

/// The pods of the built-in runtime, as policies have them.
#[derive(Debug)]
struct Gate(LocalPods);

fn key(pod: &PodMeta) -> PodKey {
    PodKey { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() }
}

impl PodGate for Gate {
    fn start(&self, pod: PodAddress, has_begun: bool) {
        let labels = pod.labels.into_iter().filter(|(key, _)| !key.starts_with(OWN_LABELS)).collect();
        let started = StartedPod { key: key(&pod.meta), address: pod.address, labels };
        if has_begun {
            self.0.adopt(started);
        } else {
            self.0.start(started);
        }
    }

    fn stop(&self, pod: &PodMeta, address: Ipv4Addr) {
        self.0.stop(&key(pod), address);
    }

    fn wait<'a>(&'a self, pod: &'a PodMeta) -> BoxFuture<'a, Result<(), String>> {
        let waiting = async {
            let key = key(pod);
            self.0.wait_for_policies(&key).await.map_err(|error| error.to_string())
        };
        waiting.boxed()
    }
}

/// Warns, once, if there is a policy that this node does not apply.
pub(crate) async fn warn_of_policies(client: Client) {
    let api = Api::<NetworkPolicy>::all(client);
    let mut events = std::pin::pin!(Reflector::metadata_only(api, WatchConfig::default()).into_stream());
    while let Some(event) = events.next().await {
        let exists = match event {
            WatchEvent::Restarted(policies) => !policies.is_empty(),
            WatchEvent::Applied(_) => true,
            WatchEvent::Deleted(_) => false,
        };
        if exists {
            tracing::warn!(
                "there are NetworkPolicies; with --runtime cri they have the effect that the CNI plugins of the container runtime give \
                 them"
            );
            return std::future::pending().await;
        }
    }
}
