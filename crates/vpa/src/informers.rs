//! The objects that several components of the autoscaler watch: one informer each in a process.
//!
//! VPAs are watched from the start. Pods are watched once the first VPA exists, so that a cluster without VPAs pays for
//! one watch that is silent.

use futures_util::future::{BoxFuture, FutureExt as _, join};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, Resource};
use plumb_client::Api;
use plumb_controller_runtime::metrics::Metrics;
use plumb_controller_runtime::{Informer, Watchable};
use plumb_supervise::Supervisor;
use plumb_vpa_api::VerticalPodAutoscaler;
use tokio::sync::watch;

use crate::namespaces::Namespaces;
use crate::node_groups::drop_affinity;

/// The informers. Clones share them.
///
/// Handlers are added before [`run`](Self::run). Each store has synced once its first list was applied; that of pods has
/// not while no VPA exists.
#[derive(Clone)]
pub struct Informers {
    /// All VPAs, whichever recommender they name.
    pub vpas: Informer<VerticalPodAutoscaler>,
    /// All pods, without what no component reads.
    pub pods: Informer<Pod>,
    namespaces: Namespaces,
}

impl Informers {
    /// Informers of some namespaces, which do not run yet.
    pub fn new(namespaces: Namespaces, metrics: &Metrics) -> Self {
        Self {
            vpas: Informer::default().with_transform(without_last_applied).with_metrics(metrics),
            pods: Informer::default().with_transform(without_volumes).with_metrics(metrics),
            namespaces,
        }
    }

    /// Which namespaces they watch.
    pub fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// Updates the stores for good.
    pub fn run(&self, client: &Client, supervisor: &Supervisor) -> BoxFuture<'static, ()> {
        let vpas = keep(supervisor, "vpa-informer/verticalpodautoscalers", &self.vpas, self.api(client));
        let (exists, mut first) = watch::channel(false);
        self.vpas.add_handler(move |change| {
            exists.send_if_modified(|exists| {
                let is_first = change.after.is_some() && !*exists;
                *exists |= is_first;
                is_first
            });
        });
        let (all, api, supervisor) = (self.clone(), self.api(client), supervisor.clone());
        let pods = async move {
            // The handler, and with it the sender, lives as long as the informer.
            if all.vpas.is_empty() && first.wait_for(|exists| *exists).await.is_err() {
                return;
            }
            keep(&supervisor, "vpa-informer/pods", &all.pods, api).await;
        };
        join(vpas, pods).map(drop).boxed()
    }

    fn api<K>(&self, client: &Client) -> Api<K>
    where
        K: Watchable + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match self.namespaces.only() {
            Some(only) => Api::namespaced(client.clone(), only),
            None => Api::all(client.clone()),
        }
    }
}

/// Runs an informer for good, as a task with a name.
pub fn keep<K: Watchable>(
    supervisor: &Supervisor,
    task: &str,
    informer: &Informer<K>,
    api: Api<K>,
) -> BoxFuture<'static, ()> {
    let informer = informer.clone();
    let running = supervisor.keep(task, move || {
        let (informer, api) = (informer.clone(), api.clone());
        async move { informer.run(api).await }
    });
    running.boxed()
}

/// The annotation in which `kubectl apply` stores a copy of the object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An object without the copy of it that `kubectl apply` stores.
fn without_last_applied<K: Resource>(mut object: K) -> K {
    if let Some(annotations) = &mut object.meta_mut().annotations {
        annotations.remove(LAST_APPLIED);
    }
    object
}

/// A pod without its volumes, environments, probes, and what else no component reads, which is most of it.
fn without_volumes(pod: Pod) -> Pod {
    let mut pod = without_last_applied(pod);
    drop_affinity(&mut pod);
    pod.metadata.generate_name = None;
    if let Some(spec) = &mut pod.spec {
        (spec.volumes, spec.tolerations, spec.topology_spread_constraints) = (None, None, None);
        (spec.image_pull_secrets, spec.host_aliases, spec.security_context) = (None, None, None);
        (spec.dns_config, spec.dns_policy, spec.scheduler_name) = (None, None, None);
        (spec.service_account, spec.service_account_name, spec.preemption_policy) = (None, None, None);
        for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
            (container.volume_mounts, container.env, container.env_from) = (None, None, None);
            (container.command, container.args, container.ports) = (None, None, None);
            (container.liveness_probe, container.readiness_probe, container.startup_probe) =
                (None, None, None);
            (container.lifecycle, container.security_context) = (None, None);
            (container.image, container.image_pull_policy, container.working_dir) = (None, None, None);
            (container.termination_message_path, container.termination_message_policy) = (None, None);
        }
    }
    if let Some(status) = &mut pod.status {
        (status.host_ip, status.host_ips, status.pod_ip, status.pod_ips) = (None, None, None, None);
        let statuses = [&mut status.container_statuses, &mut status.init_container_statuses];
        for status in statuses.into_iter().flat_map(|statuses| statuses.iter_mut().flatten()) {
            (status.image, status.image_id, status.container_id) = (String::new(), String::new(), None);
            (status.volume_mounts, status.user, status.allocated_resources_status) = (None, None, None);
        }
    }
    pod
}
