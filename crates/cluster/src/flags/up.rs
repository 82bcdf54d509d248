//! The arguments of `plumb up`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use plumb_features::FeatureGates;
use plumb_pod_network::machine::NodeNetwork;
use plumb_resize::rules::Dialect;

use super::values::{interval, loopback_address, socket_address};
use super::{
    AuditFlags, AutoscalerFlags, ClusterNetworkFlags, OnNode, RuntimeKind, ServerLimits, StoreFlags,
};
use crate::components::{self, Components, ComponentsParser};
use crate::data_dir::DATA_DIR;
use crate::features;

/// The arguments of `plumb up`.
#[derive(Debug, Args)]
pub struct Up {
    /// The directory of objects, certificates and the kubeconfig. Created if it is missing; refused if another user
    /// can change it. [default: ./plumb-data; for root /var/lib/plumb, unless there is a ./plumb-data of root's]
    #[arg(long, env = DATA_DIR, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// The address that the API is served on. Port 0 takes any free port.
    #[arg(long, default_value = "127.0.0.1:6443", value_name = "ADDRESS", value_parser = socket_address)]
    pub(crate) listen: SocketAddr,
    /// The address at which machines that join reach the API. [default: that of --listen, or if that is 0.0.0.0 the one
    /// that this machine sends from]
    #[arg(long, value_name = "IP")]
    pub(crate) advertise_address: Option<IpAddr>,
    /// The address of the nodes on this machine, in their status and in that of their pods. [default: that of the default
    /// route, or 127.0.0.1 if there is none]
    #[arg(long, value_name = "IP", value_parser = node_address)]
    pub(crate) node_ip: Option<IpAddr>,
    /// Where to write the administrator's kubeconfig; an existing file is kept and added to, and its current context becomes
    /// this cluster.
    /// [default: DIR/kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// A file with static bearer tokens, one per line: token,user,uid,"group,group". They never expire; the certificates
    /// of `plumb kubeconfig` do.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_auth_file: Option<PathBuf>,
    /// The rules of in-place resizes: `kep` (as KEP-1287 describes them) or `v1.36` (as Kubernetes 1.36 has them).
    #[arg(long, default_value = "kep", value_name = "kep|v1.36")]
    pub(crate) resize_dialect: Dialect,
    /// Feature gates to set; `--help` lists them.
    #[arg(
        long,
        default_value = "",
        value_name = "A=true,B=false",
        hide_default_value = true,
        value_parser = features::parse,
        long_help = features::help("Feature gates to set.")
    )]
    pub(crate) feature_gates: FeatureGates,
    /// Admission plugins to run besides the default ones, by the names of kube-apiserver. `ServiceAccount` is
    /// a default one only if the controllers run, which create the accounts.
    #[arg(long, default_value = "", value_name = "A,B", hide_default_value = true)]
    pub(crate) enable_admission_plugins: String,
    /// Admission plugins not to run, such as `LimitRanger,ResourceQuota`.
    #[arg(long, default_value = "", value_name = "A,B", hide_default_value = true)]
    pub(crate) disable_admission_plugins: String,
    /// The configuration of admission plugins: an `AdmissionConfiguration`, as for kube-apiserver, with a
    /// `PodSecurityConfiguration`.
    #[arg(long, value_name = "FILE")]
    pub(crate) admission_control_config_file: Option<PathBuf>,
    /// Which objects are encrypted on the disk, and with which keys: an `EncryptionConfiguration`, as for kube-apiserver, with
    /// the providers `aesgcm`, `aescbc`, `secretbox` and `identity`. Without it, objects are stored unencrypted.
    #[arg(long, value_name = "FILE")]
    pub(crate) encryption_provider_config: Option<PathBuf>,
    /// The components to run, separated by commas.
    #[arg(long, value_parser = ComponentsParser, default_value = "all", value_name = "COMPONENTS")]
    pub(crate) components: Components,
    /// The number of nodes. With real containers each node except the first has an agent in a network namespace of its
    /// own.
    #[arg(long, default_value = "1", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) nodes: u16,
    /// How often the controllers read the metrics of each HorizontalPodAutoscaler.
    #[arg(long, default_value = "15s", value_name = "TIME", value_parser = interval)]
    pub(crate) horizontal_pod_autoscaler_sync_period: Duration,
    /// Whether to serve the dashboard, a web page of the cluster for this user. The URL with its token is printed at the start.
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "true|false")]
    pub(crate) dashboard: bool,
    /// The loopback address of the dashboard. If it is in use, another free port is taken.
    #[arg(long, default_value = "127.0.0.1:6480", value_name = "ADDRESS", value_parser = loopback_address)]
    pub(crate) dashboard_listen: SocketAddr,
    #[cfg(feature = "test-hooks")]
    #[command(flatten)]
    pub(crate) hooks: crate::test_hooks::ClusterHooks,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
    #[command(flatten)]
    pub(crate) audit: AuditFlags,
    #[command(flatten)]
    pub(crate) network: ClusterNetworkFlags,
    #[command(flatten)]
    pub(crate) autoscaler: AutoscalerFlags,
    #[command(flatten)]
    pub(crate) limits: ServerLimits,
    #[command(flatten)]
    pub(crate) node: OnNode,
}

impl Up {
    /// The error for flags that are valid by themselves and not together.
    pub fn conflict(&self) -> Option<&'static str> {
        if let Some(conflict) = self.store.conflict() {
            return Some(conflict);
        }
        if !self.components.contains(components::NODE) {
            return None;
        }
        if self.nodes > 1 {
            match self.node.runtime.chosen() {
                RuntimeKind::Virtual => {}
                RuntimeKind::Cri => {
                    return Some("several nodes on one machine (--nodes) need --runtime builtin or virtual");
                }
                RuntimeKind::Builtin | RuntimeKind::Auto => {
                    if !self.components.contains(components::CONTROLLERS) {
                        return Some(
                            "several nodes with containers (--nodes) need the component controllers",
                        );
                    }
                    if self.nodes > NodeNetwork::MAX_NODES {
                        return Some("more than 253 nodes on one machine (--nodes) need --runtime virtual");
                    }
                }
            }
        }
        self.node.conflict()
    }
}

/// An address that a node can have.
fn node_address(text: &str) -> Result<IpAddr, &'static str> {
    let address: IpAddr = text.parse().map_err(|_| "write an IP address, such as 192.0.2.7")?;
    if address.is_unspecified() || address.is_multicast() {
        return Err("a node has one address, such as 192.0.2.7");
    }
    Ok(address)
}
