//! The parts of kube-controller-manager that a cluster needs.
//!
//! ```text
//!   watch ──▶ stores (one per kind) ────▶ decide: what is missing ───▶ write
//!      ▲                                                                  │
//!      └──────────────────────── the API ◀────────────────────────────────┘
//! ```
//!
//! A controller is a pure decision over the objects in its stores and a [`plumb_controller_runtime::Reconciler`] that performs it. It reaches
//! the cluster only through [`kube::Client`]s ([`Clients`]), and has upstream's permissions: all controllers list and watch as
//! one user, and each writes as its own, which the default roles know. What they do is idempotent: a lost race or a lost
//! watch costs another reconcile.
//!
//! Those that create and delete pods share a frame ([`workload`]: [`replicas`], [`deployment`], [`budgets`],
//! [`protection`], …), and their informers serve others, too ([`nodes`], [`pod_gc`]). Those that are about all kinds share a
//! graph of all objects ([`garbage`], [`namespaces`]). Those of persistent volumes are in [`volumes`].

pub mod accounts;
pub mod aggregation;
pub mod budgets;
pub mod certificates;
pub mod cronjob;
pub mod daemonset;
pub mod deployment;
pub mod dns_service;
pub mod endpoint;
pub mod endpoints;
pub mod endpointslice;
pub mod endpointslicemirroring;
pub mod garbage;
pub mod horizontal_pod_autoscaler;
pub mod job;
pub mod kubernetes_service;
pub mod load_balancer;
pub mod namespaces;
pub mod node_ipam;
pub mod nodes;
pub mod pod_gc;
pub mod protection;
pub mod quota;
pub mod replicas;
pub mod revision;
pub mod root_ca;
mod selector_text;
pub mod signing;
pub mod statefulset;
pub mod taints;
pub mod tokens;
pub mod volumes;
pub mod workload;

use kube::Client;
use plumb_supervise::Supervisor;

use budgets::Budgets;
use cronjob::CronJobs;
use cronjob::zones::{USUAL_PLACE, Zones};
use daemonset::DaemonSets;
use deployment::Deployments;
use job::{Expiry, Jobs, Strays};
use plumb_controller_runtime::events::{EventRecorder, RecorderConfig};
use plumb_controller_runtime::metrics::Metrics;
use plumb_controller_runtime::{Clock, Controller, Reconciler};
use protection::Claims;
use replicas::{ReplicaSets, ReplicationControllers};
use statefulset::StatefulSets;
use volumes::ephemeral::EphemeralVolumes;
use workload::{Manager, Workload as _};

/// The user that all controllers list and watch as.
pub const WATCHER: &str = "system:kube-controller-manager";

/// The user that a controller writes as.
pub fn user_of(controller: &str) -> String {
    format!("system:serviceaccount:kube-system:{controller}")
}

/// All controllers of workloads, each of which writes as its own user.
pub fn workloads(
    clock: Clock,
    supervisor: Supervisor,
    metrics: Metrics,
    writer: impl Fn(&str) -> Client,
) -> Manager {
    let mut workloads = Manager::new(clock.clone(), supervisor, metrics);
    workloads.add(ReplicaSets, writer(ReplicaSets::NAME));
    workloads.add(ReplicationControllers, writer(ReplicationControllers::NAME));
    workloads.add(Deployments, writer(Deployments::NAME));
    workloads.add(StatefulSets, writer(StatefulSets::NAME));
    workloads.add(DaemonSets::new(clock), writer(DaemonSets::NAME));
    workloads.add(Jobs, writer(Jobs::NAME));
    workloads.add(Strays, writer(Strays::NAME));
    workloads.add(Expiry, writer(Expiry::NAME));
    workloads.add(CronJobs::new(Zones::from_directory(USUAL_PLACE)), writer(CronJobs::NAME));
    workloads.add(Budgets, writer(Budgets::NAME));
    workloads.add(Claims, writer(Claims::NAME));
    workloads.add(EphemeralVolumes, writer(EphemeralVolumes::NAME));
    workloads
}

/// The groups of the users that controllers write as.
pub const GROUPS: [&str; 2] = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];

/// How a controller reaches the cluster.
#[derive(Clone)]
pub struct Clients {
    /// To list and watch with.
    pub watch: Client,
    /// To write with.
    pub write: Client,
    /// Restarts tasks that fail, and counts the restarts.
    pub supervisor: Supervisor,
    /// The metrics of controllers, their queues and their reflectors.
    pub metrics: Metrics,
}

impl Clients {
    /// A controller with one worker, with metrics, and with events about objects whose reconcile panicked.
    fn controller<R: Reconciler>(&self, name: &'static str, reconciler: R) -> Controller<R> {
        // As the user that all controllers watch as: not every controller may write events.
        let config = RecorderConfig::new(self.watch.clone(), name, &self.supervisor);
        let config = RecorderConfig { metrics: self.metrics.clone(), ..config };
        Controller::new(name, reconciler, &self.supervisor)
            .with_metrics(&self.metrics)
            .with_panic_events(move || EventRecorder::start(config.clone()))
    }
}
