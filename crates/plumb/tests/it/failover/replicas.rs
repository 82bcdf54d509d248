//! Two processes of a component, one of which leads.

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use plumb_testkit::eventually;

use super::super::cluster::Cluster;
use super::super::run::Running;

/// Leases expire soon, so that a test has many leaders, but not so soon that a loaded machine takes as long to renew one.
const ELECTION: [&str; 6] = [
    "--install-crds",
    "--leader-elect",
    "--leader-elect-resource-namespace=default",
    "--leader-elect-lease-duration=5s",
    "--leader-elect-renew-deadline=4s",
    "--leader-elect-retry-period=500ms",
];

/// The replicas of a component.
pub(super) struct Replicas {
    component: &'static str,
    lease: &'static str,
    /// Each with its own flags.
    processes: Vec<(Running, Vec<String>)>,
}

impl Replicas {
    /// Starts two, each with flags of its own.
    pub(super) fn start(
        cluster: &Cluster,
        component: &'static str,
        lease: &'static str,
        flags: [&[String]; 2],
    ) -> Self {
        let process = |flags: &[String]| (start(cluster, component, flags), flags.to_vec());
        Self { component, lease, processes: flags.map(process).into() }
    }

    /// Waits until both are ready and one of them leads.
    pub(super) async fn until_led(&self, client: &Client) {
        eventually(async || {
            let ready = self.processes.iter().all(|(process, _)| process.get("/readyz").0 == 200);
            ready && self.leader(client).await.is_some()
        })
        .await;
    }

    /// Kills the one that leads, and starts another in its place.
    pub(super) async fn kill_leader(&mut self, cluster: &Cluster, client: &Client) {
        // On a slow machine a leader may have lost its lease meanwhile, and the other leads soon.
        let mut leader = None;
        eventually(async || {
            leader = self.leader(client).await;
            leader.is_some()
        })
        .await;
        let (process, flags) = self.processes.remove(leader.unwrap());
        process.kill();
        self.processes.push((start(cluster, self.component, &flags), flags));
    }

    /// Which of them holds the lease.
    async fn leader(&self, client: &Client) -> Option<usize> {
        let leases: Api<Lease> = Api::default_namespaced(client.clone());
        let holder = leases.get_opt(self.lease).await.unwrap()?.spec?.holder_identity?;
        self.processes.iter().position(|(process, _)| holder.ends_with(&format!("_{}", process.id())))
    }
}

fn start(cluster: &Cluster, component: &str, flags: &[String]) -> Running {
    let flags: Vec<&str> = ELECTION.into_iter().chain(flags.iter().map(String::as_str)).collect();
    Running::start(cluster, component, &flags)
}
