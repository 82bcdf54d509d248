//! A real Kubernetes as a test target: built from pinned sources, run as processes, removed without a trace.
//!
//! ```text
//!  owner (a test, or `testbed up`)          holds a pipe; the cluster ends when it closes
//!    └─ monitor                             owns what has a name: slot, folder, cgroups, bridge
//!         └─ init                           process 1 of a PID and a mount namespace; dies with the monitor
//!              └─ launcher                  starts the components and reports when all are ready
//!                   ├─ etcd, kube-apiserver, kube-controller-manager, kube-scheduler, metrics-server
//!                   └─ containerd, kubelet  and below them the pods
//! ```
//!
//! Whichever process is killed, the others end too: the kernel ends a PID namespace with its process 1, and with the
//! last process it removes the mounts and network namespaces. The monitor removes what is left; if the monitor itself
//! was killed, [`clean`] does, or the next start.
//!
//! ```no_run
//! # async fn example() -> Result<(), plumb_testbed::Error> {
//! use plumb_testbed::{Cluster, Config};
//!
//! let cluster = Cluster::start(Config::default()).await?;
//! let client = cluster.client().await?;
//! println!("{}", cluster.kubeconfig_path().display());
//! # drop(client);
//! cluster.stop().await
//! # }
//! ```

mod assets;
mod cache;
mod cgroup;
pub mod cli;
mod client;
mod cluster;
mod containerd;
mod e2e;
mod error;
mod event;
mod image;
mod init;
mod instance;
mod launcher;
mod leftovers;
mod lifeline;
mod link;
mod monitor;
mod obtain;
mod pki;
mod process;
mod release;
mod slot;

pub use assets::{Assets, NodeAssets, RuntimeAssets};
pub use cache::Cache;
pub use cluster::{Cluster, Config, Parts};
pub use containerd::Containerd;
pub use error::Error;
pub use event::{Endpoints, RuntimeEndpoints};
pub use image::{BUSYBOX, PAUSE, ProgramImage};
pub use leftovers::clean;
pub use obtain::{obtain, obtain_autoscaler, obtain_e2e, obtain_helm, obtain_packages};
pub use release::{AUTOSCALER_VERSION, HELM_VERSION, METRICS_SERVER_VERSION, Release, VERSION};

/// Chooses the one crypto provider for this process; a second call changes nothing.
pub fn install_crypto() {
    // An error means that one was chosen before, which is what is wanted.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
