//! Flags of nodes, of `plumb up` and of `plumb node`.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::{ArgAction, Args, ValueEnum};
use k8s_openapi::api::core::v1::Taint;
use plumb_apiserver::pki::KUBERNETES_SERVICE;
use plumb_node::image_gc::ImageGcConfig;
use plumb_node::image_pulls::{Allowlist, ImagePullsConfig, InvalidPattern, VerificationPolicy};
use plumb_node::lifecycle::MAX_RESTART_PERIOD;
use plumb_node::shutdown::GracePeriods;
use plumb_node::sysctls::UnsafeSysctls;
use plumb_pod_network::Mode;
use plumb_resize::Quantity;
use plumb_runtime::cgroup::Layout;
use plumb_runtime::fault::Call;
use plumb_runtime::types::{CpuSet, LogLimits};
use serde::{Deserialize, Serialize};

use super::values::{interval, length_of_time};
use super::{EvictionFlags, RegistryFlags};

/// The flags of a node.
#[derive(Debug, Args)]
#[command(next_help_heading = "Nodes")]
pub struct OnNode {
    /// The container runtime. `auto` is `builtin` for root, else `virtual`.
    #[arg(long, value_enum, default_value = "auto", value_name = "RUNTIME")]
    pub(crate) runtime: RuntimeKind,
    /// The node's name; several are named NAME-0, NAME-1 and so on. [default: plumb, or the name of the machine
    /// for one that joins]
    #[arg(long, visible_alias = "name", value_name = "NAME", value_parser = node_name)]
    pub(crate) node_name: Option<String>,
    /// The CPU capacity of each node, such as 4 or 1500m. [default: that of this machine]
    #[arg(long, value_name = "CPU", value_parser = capacity)]
    pub(crate) node_cpu: Option<Quantity>,
    /// The memory capacity of each node, such as 8Gi. [default: that of this machine]
    #[arg(long, value_name = "MEMORY", value_parser = capacity)]
    pub(crate) node_memory: Option<Quantity>,
    /// Resources that are reserved for the system and not allocatable to pods, such as `cpu=200m,memory=512Mi`: cpu,
    /// memory, ephemeral-storage, pid.
    #[arg(long, default_value = "", value_name = "RESOURCES", hide_default_value = true)]
    pub(crate) system_reserved: Reserved,
    /// Resources that are reserved for Kubernetes, in addition to --system-reserved.
    #[arg(long, default_value = "", value_name = "RESOURCES", hide_default_value = true)]
    pub(crate) kube_reserved: Reserved,
    /// The CPU manager policy: `none`, or `static` for exclusive CPUs of containers of Guaranteed pods with integer CPU
    /// requests. Reserved CPUs are never exclusive; `static` needs some to be reserved.
    #[arg(long, value_enum, default_value = "none", value_name = "POLICY")]
    pub(crate) cpu_manager_policy: CpuPolicy,
    /// The CPUs of a node that are reserved, such as 0-1, instead of the cpu of --system-reserved and --kube-reserved.
    /// [default: as many of the first CPUs as these flags reserve]
    #[arg(long, value_name = "CPUS")]
    pub(crate) reserved_cpus: Option<CpuSet>,
    /// The unsafe sysctls that pods may set: names, or prefixes that end with `*`, of namespaced sysctls
    /// (kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.*, net.*), separated by commas.
    #[arg(long, default_value = "", value_name = "SYSCTLS", hide_default_value = true)]
    pub(crate) allowed_unsafe_sysctls: UnsafeSysctls,
    /// Labels of the node, such as `zone=a,disk=ssd`, in addition to those that every node has.
    #[arg(long, default_value = "", value_name = "LABELS", hide_default_value = true)]
    pub(crate) node_labels: NodeLabels,
    /// Taints that the node is created with, such as `gpu=true:NoSchedule`. The taints of an existing node are unchanged.
    #[arg(long, default_value = "", value_name = "TAINTS", hide_default_value = true)]
    pub(crate) register_with_taints: Taints,
    /// The maximum number of pods of a node.
    #[arg(long, default_value = "110", value_name = "N")]
    pub(crate) max_pods: u32,
    /// The maximum number of processes and threads of a pod; -1 is unlimited.
    #[arg(long, default_value = "4096", value_name = "N", allow_hyphen_values = true, value_parser = max_pids)]
    pub(crate) pod_max_pids: MaxPids,
    /// Whether all pods together are limited to the capacity without the reserved resources: CPU weight, memory and number of
    /// processes of their common cgroup.
    #[arg(long, value_enum, default_value = "pods", value_name = "pods|none")]
    pub(crate) enforce_node_allocatable: EnforceNodeAllocatable,
    /// Whether the kernel kills only one process of a container that runs out of memory, instead of all of them. Cgroup v1
    /// always kills one.
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "true|false")]
    pub(crate) single_process_oom_kill: bool,
    /// The maximum of the `CrashLoopBackOff`, 1s to 300s: how long a container that keeps exiting waits for its restart.
    #[arg(long, default_value = "300s", value_name = "TIME", value_parser = restart_period)]
    pub(crate) max_container_restart_period: Duration,
    /// The size at which the log of a container is rotated.
    #[arg(long, default_value = "10Mi", value_name = "SIZE", value_parser = capacity)]
    pub(crate) container_log_max_size: Quantity,
    /// The maximum number of log files of a container, the current one included.
    #[arg(long, default_value = "5", value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) container_log_max_files: u32,
    /// Whether pods reach addresses beyond this machine: the node adds masquerade rules to nftables and sets
    /// `net.ipv4.ip_forward`.
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "true|false")]
    pub(crate) masquerade: bool,
    /// How pods of different nodes reach each other: `routes` by routes, where the nodes share a link; `vxlan` through VXLAN
    /// tunnels; `auto` by a route where the nodes share a link, else through a tunnel; `none` not at all. [default: auto; for
    /// a machine that joins, the cluster's setting]
    #[arg(long, value_name = "auto|routes|vxlan|none", value_parser = super::network::mode)]
    pub(crate) pod_network: Option<Mode>,
    /// What forwards connections to Services to their endpoints: nftables rules of the node, or another component, such as
    /// kube-proxy (`none`).
    #[arg(long, value_enum, default_value = "nftables", value_name = "nftables|none")]
    pub(crate) service_proxy: ServiceProxy,
    /// The resolver configuration of pods; empty gives them none. [default: /etc/resolv.conf, or the one behind the stub
    /// of systemd-resolved]
    #[arg(long, value_name = "FILE")]
    pub(crate) resolv_conf: Option<PathBuf>,
    /// The address at which pods reach the cluster's DNS server, which each node runs; empty switches it off, and pods get the
    /// resolvers of the machine. [default: 10.96.0.10, or that of the cluster for a node that joins]
    #[arg(long, value_name = "ADDRESS", value_parser = cluster_dns)]
    pub(crate) cluster_dns: Option<ClusterDnsAddress>,
    /// The domain of Services. [default: cluster.local, or that of the cluster for a node that joins]
    #[arg(long, value_name = "DOMAIN", value_parser = cluster_domain)]
    pub(crate) cluster_domain: Option<String>,
    /// A directory of manifests, or one manifest, of static pods. With several nodes the first one runs them.
    #[arg(long, value_name = "PATH")]
    pub(crate) pod_manifest_path: Option<PathBuf>,
    /// Terminate pods on SIGTERM before this process ends, within this time: graceful node shutdown. Without it
    /// containers keep running.
    #[arg(long, default_value = "0s", value_name = "TIME", value_parser = grace_period)]
    pub(crate) shutdown_grace_period: Duration,
    /// The part of --shutdown-grace-period for critical pods, which are terminated last.
    #[arg(long, default_value = "0s", value_name = "TIME", value_parser = grace_period)]
    pub(crate) shutdown_grace_period_critical_pods: Duration,
    /// How often the usage of nodes and pods is measured, for `kubectl top`.
    #[arg(long, default_value = "15s", value_name = "TIME", value_parser = interval)]
    pub(crate) metric_resolution: Duration,
    #[command(flatten)]
    pub(crate) registry: RegistryFlags,
    /// The percentage of disk usage from which the node removes images that no container uses. 100 removes none.
    #[arg(long, default_value = "85", value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) image_gc_high_threshold: u8,
    /// The percentage of disk usage at which the node stops removing images.
    #[arg(long, default_value = "80", value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) image_gc_low_threshold: u8,
    /// Of which images on the node a pod may use only those that it could pull with its secrets.
    #[arg(long, value_enum, default_value = "NeverVerifyPreloadedImages", value_name = "POLICY")]
    pub(crate) image_pull_credentials_verification_policy: CredentialsVerification,
    /// The images that any pod may use under the policy `NeverVerifyAllowlistedImages`: whole names without tags, or
    /// names that end with `/*`.
    #[arg(long, value_name = "IMAGE,...", value_delimiter = ',', value_parser = allowlisted)]
    pub(crate) preloaded_images_verification_allowlist: Vec<String>,
    #[command(flatten)]
    pub(crate) eviction: EvictionFlags,
    #[cfg(feature = "test-hooks")]
    #[command(flatten)]
    pub(crate) hooks: crate::test_hooks::NodeHooks,
    /// Delay each call of this name to the container runtime, such as `UpdateContainerResources=3s`. For demonstrations
    /// and tests.
    #[arg(long, value_name = "CALL=TIME")]
    pub(crate) runtime_delay: Option<RuntimeDelay>,
    // Last, since its heading holds for what follows it.
    #[command(flatten)]
    pub(crate) cri: CriFlags,
}

/// The value of `--cluster-dns`; `None` is no DNS server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClusterDnsAddress(pub(crate) Option<Ipv4Addr>);

/// It is the cluster IP of a Service, so it has to be in their network, and the first one is that of `kubernetes`.
fn cluster_dns(text: &str) -> anyhow::Result<ClusterDnsAddress> {
    if text.is_empty() {
        return Ok(ClusterDnsAddress(None));
    }
    let address: Ipv4Addr = text.parse().map_err(|_| anyhow!("{text:?} is no IPv4 address"))?;
    let [first, second, ..] = address.octets();
    ensure!(
        first == 10 && (96..112).contains(&second) && address > KUBERNETES_SERVICE,
        "{address} is no address for a Service: it must be in 10.96.0.0/12, and not {KUBERNETES_SERVICE}"
    );
    Ok(ClusterDnsAddress(Some(address)))
}

/// A domain, by the rules of DNS subdomains.
fn cluster_domain(text: &str) -> anyhow::Result<String> {
    let domain = text.strip_suffix('.').unwrap_or(text);
    match plumb_validation::names::dns_subdomain(domain).into_iter().next() {
        Some(rule) => bail!("{domain:?}: {rule}"),
        None => Ok(domain.to_owned()),
    }
}

/// What serves the addresses of Services.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServiceProxy {
    /// The node, by rules of nftables.
    #[default]
    Nftables,
    /// Not the node.
    None,
}

/// What node allocatable is enforced on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum EnforceNodeAllocatable {
    /// On the cgroup of all pods.
    #[default]
    Pods,
    /// On no cgroup.
    None,
}

/// The value of `--pod-max-pids`; `None` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaxPids(pub(crate) Option<u32>);

fn max_pids(text: &str) -> anyhow::Result<MaxPids> {
    if text == "-1" {
        return Ok(MaxPids(None));
    }
    let number = text.parse::<u32>().ok().filter(|number| *number > 0);
    Ok(MaxPids(Some(number.ok_or_else(|| anyhow!("{text:?} is neither a number from 1 on nor -1"))?)))
}

fn restart_period(text: &str) -> anyhow::Result<Duration> {
    let time = Duration::try_from(length_of_time(text)?).unwrap_or_default();
    ensure!((Duration::from_secs(1)..=MAX_RESTART_PERIOD).contains(&time), "it must be from 1s to 300s");
    Ok(time)
}

/// How a runtime is reached over its CRI socket.
#[derive(Debug, Args)]
#[command(next_help_heading = "Container runtime")]
pub(crate) struct CriFlags {
    /// The socket of the container runtime of --runtime cri.
    #[arg(
        long,
        visible_alias = "cri-socket",
        default_value = "unix:///run/containerd/containerd.sock",
        value_name = "unix:///PATH",
        value_parser = endpoint
    )]
    pub(crate) container_runtime_endpoint: String,
    /// The socket of its image service. [default: the same]
    #[arg(long, value_name = "unix:///PATH", value_parser = endpoint)]
    pub(crate) image_service_endpoint: Option<String>,
    /// The cgroup driver of a container runtime that does not report its own.
    #[arg(long, value_enum, default_value = "cgroupfs", value_name = "DRIVER")]
    pub(crate) cgroup_driver: DriverKind,
    /// The timeout of a call to the container runtime, in addition to grace periods of containers. Pulls have none.
    #[arg(long, default_value = "2m", value_name = "TIME", value_parser = interval)]
    pub(crate) runtime_request_timeout: Duration,
}

/// The address of a socket.
fn endpoint(text: &str) -> Result<String, plumb_cri::InvalidEndpoint> {
    plumb_cri::socket_path(text).map(|_| text.to_owned())
}

/// How the cgroups of pods and containers are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DriverKind {
    /// By writing to the cgroup file system.
    #[default]
    Cgroupfs,
    /// By systemd: slices and scopes.
    Systemd,
}

/// Of which images the credentials of pods are verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CredentialsVerification {
    /// Of none.
    #[value(name = "NeverVerify")]
    Never,
    /// Of those that the node has pulled.
    #[value(name = "NeverVerifyPreloadedImages")]
    NotPreloaded,
    /// Of all that are not in --preloaded-images-verification-allowlist.
    #[value(name = "NeverVerifyAllowlistedImages")]
    NotAllowlisted,
    /// Of all.
    #[value(name = "AlwaysVerify")]
    Always,
}

/// A pattern of --preloaded-images-verification-allowlist.
fn allowlisted(pattern: &str) -> Result<String, InvalidPattern> {
    Allowlist::new([pattern]).map(|_| pattern.to_owned())
}

impl OnNode {
    /// Which pods may use which images, with records in this directory.
    pub(crate) fn image_pulls(&self, directory: PathBuf) -> Result<ImagePullsConfig, InvalidPattern> {
        let allowlist = self.preloaded_images_verification_allowlist.iter().map(String::as_str);
        let policy = match self.image_pull_credentials_verification_policy {
            CredentialsVerification::Never => VerificationPolicy::NeverVerify,
            CredentialsVerification::NotPreloaded => VerificationPolicy::NeverVerifyPreloadedImages,
            CredentialsVerification::NotAllowlisted => {
                VerificationPolicy::NeverVerifyAllowlistedImages(Allowlist::new(allowlist)?)
            }
            CredentialsVerification::Always => VerificationPolicy::AlwaysVerify,
        };
        Ok(ImagePullsConfig { policy, directory })
    }

    /// When images are removed from the disk that this directory is on; `None` is the disk that the container runtime
    /// reports.
    pub fn image_gc(&self, path: Option<PathBuf>) -> ImageGcConfig {
        ImageGcConfig {
            high_threshold_percent: self.image_gc_high_threshold,
            low_threshold_percent: self.image_gc_low_threshold,
            ..ImageGcConfig::new(path)
        }
    }

    /// The error for flags that are valid by themselves and not together.
    pub(crate) fn conflict(&self) -> Option<&'static str> {
        let reserved = match &self.reserved_cpus {
            Some(cpus) => !cpus.is_empty(),
            None => self.reserved_cpu().saturating_milli() > 0,
        };
        if self.cpu_manager_policy == CpuPolicy::Static && !reserved {
            return Some(
                "--cpu-manager-policy static needs cpus that are not given away: --reserved-cpus or a cpu in --system-reserved",
            );
        }
        if self.image_gc_low_threshold >= self.image_gc_high_threshold {
            return Some("--image-gc-low-threshold must be less than --image-gc-high-threshold");
        }
        if !self.preloaded_images_verification_allowlist.is_empty()
            && self.image_pull_credentials_verification_policy != CredentialsVerification::NotAllowlisted
        {
            return Some(
                "--preloaded-images-verification-allowlist needs --image-pull-credentials-verification-policy \
                 NeverVerifyAllowlistedImages",
            );
        }
        if self.shutdown_grace_period_critical_pods > self.shutdown_grace_period {
            return Some("--shutdown-grace-period must be at least --shutdown-grace-period-critical-pods");
        }
        None
    }

    /// When the logs of containers are rotated.
    pub fn log_limits(&self) -> LogLimits {
        let size = self.container_log_max_size.saturating_units();
        LogLimits {
            max_size: u64::try_from(size).unwrap_or(u64::MAX),
            max_files: self.container_log_max_files,
        }
    }

    /// How long pods have when the node shuts down, if they are to be terminated then.
    pub fn shutdown_periods(&self) -> Option<GracePeriods> {
        let total = self.shutdown_grace_period;
        let critical_pods = self.shutdown_grace_period_critical_pods;
        (!total.is_zero()).then_some(GracePeriods { total, critical_pods })
    }

    /// What is reserved of each resource.
    pub fn reserved(&self) -> BTreeMap<String, Quantity> {
        let mut sum = self.system_reserved.0.clone();
        for (resource, amount) in &self.kube_reserved.0 {
            let all =
                sum.entry(resource.clone()).or_insert_with(|| Quantity::ZERO.with_format(amount.format()));
            *all = all.saturating_add(*amount);
        }
        sum
    }

    /// What is reserved of cpu.
    pub fn reserved_cpu(&self) -> Quantity {
        self.reserved().get("cpu").copied().unwrap_or_default()
    }
}

/// The name of a node, by the API's rules.
fn node_name(text: &str) -> anyhow::Result<String> {
    match plumb_validation::names::dns_subdomain(text).into_iter().next() {
        Some(rule) => bail!(rule),
        None => Ok(text.to_owned()),
    }
}

/// How long a shutdown may take, by the kubelet's rule.
fn grace_period(text: &str) -> anyhow::Result<Duration> {
    let time = length_of_time(text)?;
    match Duration::try_from(time) {
        Ok(time) if time.is_zero() || time >= Duration::from_secs(1) => Ok(time),
        _ => bail!("it must be 0 or 1s or more"),
    }
}

/// What a node has of a resource.
fn capacity(text: &str) -> anyhow::Result<Quantity> {
    let amount: Quantity =
        text.parse().map_err(|_| anyhow!("write 4 or 1500m of cpu, 8Gi or 8G of memory"))?;
    ensure!(amount > Quantity::default(), "must be more than 0");
    Ok(amount)
}

/// The CPU manager policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CpuPolicy {
    /// No exclusive CPUs.
    None,
    /// Exclusive CPUs for containers of Guaranteed pods with integer CPU requests.
    Static,
}

/// The calls to the container runtime that are delayed, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuntimeDelay {
    /// The calls.
    pub(crate) call: Call,
    /// How long each waits before it is made.
    pub(crate) time: Duration,
}

impl FromStr for RuntimeDelay {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, time) = text.split_once('=').with_context(|| format!("{text:?} is not CALL=TIME"))?;
        Ok(Self { call: change(name)?, time: interval(time)? })
    }
}

/// A call to the container runtime that changes something, by its name.
pub(crate) fn change(name: &str) -> anyhow::Result<Call> {
    let call = Call::MUTATING.into_iter().find(|call| format!("{call:?}") == name);
    call.with_context(|| format!("{name:?} is no call that changes anything"))
}

/// The resources that the kubelet lets be reserved.
const RESERVABLE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];

/// Amounts by resource, as a flag spells them: `cpu=200m,memory=512Mi`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reserved(pub(crate) BTreeMap<String, Quantity>);

impl FromStr for Reserved {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split(',').filter(|part| !part.trim().is_empty());
        let amounts = parts.map(|part| {
            let (name, amount) =
                part.split_once('=').with_context(|| format!("{part:?} is not NAME=AMOUNT"))?;
            let name = name.trim();
            ensure!(RESERVABLE.contains(&name), "cannot reserve {name:?} resource");
            let quantity: Quantity = amount.trim().parse().map_err(|error| anyhow!("{part:?}: {error}"))?;
            let amount = amount.trim();
            ensure!(!quantity.is_negative(), "resource quantity for {name:?} cannot be negative: {amount}");
            Ok((name.to_owned(), quantity))
        });
        amounts.collect::<anyhow::Result<_>>().map(Self)
    }
}

/// The words of a flag, which commas separate.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty())
}

/// A key and a value by the rules of labels.
fn label(key: &str, value: &str) -> anyhow::Result<(String, String)> {
    use plumb_validation::names::{label_value, qualified_name};
    match qualified_name(key).into_iter().chain(label_value(value)).next() {
        Some(rule) => bail!("{key}={value}: {rule}"),
        None => Ok((key.to_owned(), value.to_owned())),
    }
}

/// The labels that every node gives itself.
const OWN_LABELS: [&str; 5] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
/// The other labels below `kubernetes.io` that a kubelet may set on its node.
const KUBELET_LABELS: [&str; 6] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
];
/// The namespaces below `kubernetes.io` whose labels a kubelet may set on its node.
const KUBELET_NAMESPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Refuses labels that `NodeRestriction` does not let a node set, as the kubelet does, and those that the node sets itself: it
/// would otherwise try for ever to register.
fn check_node_label(key: &str) -> anyhow::Result<()> {
    ensure!(!OWN_LABELS.contains(&key), "{key}: the node sets this label itself");
    let Some((namespace, _)) = key.split_once('/') else { return Ok(()) };
    let is_below = |parent: &str| {
        namespace.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    let is_reserved = is_below("kubernetes.io") || is_below("k8s.io");
    let is_allowed = KUBELET_LABELS.contains(&key) || KUBELET_NAMESPACES.into_iter().any(is_below);
    ensure!(
        !is_reserved || is_allowed,
        "unknown 'kubernetes.io' or 'k8s.io' label {key}: --node-labels in the 'kubernetes.io' namespace must begin with an \
         allowed prefix ({}) or be in the specifically allowed set ({}); an administrator sets others, such as roles, with \
         kubectl label node",
        KUBELET_NAMESPACES.join(", "),
        KUBELET_LABELS.join(", ")
    );
    Ok(())
}

/// Labels, as a flag spells them: `zone=a,disk=ssd`.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeLabels(pub(crate) BTreeMap<String, String>);

impl FromStr for NodeLabels {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let labels = words(text).map(|word| {
            let (key, value) = word.split_once('=').with_context(|| format!("{word:?} is not KEY=VALUE"))?;
            check_node_label(key)?;
            label(key, value)
        });
        labels.collect::<anyhow::Result<_>>().map(Self)
    }
}

/// Taints, as a flag spells them: `gpu=true:NoSchedule,old:NoExecute`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taints(pub(crate) Vec<Taint>);

impl FromStr for Taints {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let taints = words(text).map(|word| {
            let (pair, effect) =
                word.rsplit_once(':').with_context(|| format!("{word:?} is not KEY=VALUE:EFFECT"))?;
            ensure!(
                ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect),
                "{effect:?} is not NoSchedule, PreferNoSchedule or NoExecute"
            );
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (key, value) = label(key, value)?;
            let value = (!value.is_empty()).then_some(value);
            Ok(Taint { key, value, effect: effect.to_owned(), time_added: None })
        });
        taints.collect::<anyhow::Result<_>>().map(Self)
    }
}

/// Whether this user may create cgroups, and what else containers need.
pub(crate) fn may_run_containers() -> bool {
    nix::unistd::geteuid().is_root() && Layout::detect().is_ok()
}

/// The container runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RuntimeKind {
    /// `builtin` where this user may create cgroups, else `virtual`.
    Auto,
    /// Containers in cgroups and namespaces of this machine, without a daemon.
    Builtin,
    /// Containers of a container runtime with a CRI socket, such as containerd.
    Cri,
    /// No processes: the usage of pods follows a model in their annotations.
    Virtual,
}

impl RuntimeKind {
    /// The same, with what `auto` stands for on this machine.
    pub(crate) fn chosen(self) -> Self {
        match self {
            Self::Auto if may_run_containers() => Self::Builtin,
            Self::Auto => Self::Virtual,
            chosen => chosen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_taints_are_read_as_the_kubelets() {
        let NodeLabels(labels) = "zone=a, example.com/disk=ssd,empty=".parse().unwrap();
        let labels: Vec<_> = labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(labels, [("empty", ""), ("example.com/disk", "ssd"), ("zone", "a")]);
        let Taints(taints) = "gpu=true:NoSchedule,old:NoExecute".parse().unwrap();
        let taints: Vec<_> =
            taints.iter().map(|taint| (&*taint.key, taint.value.as_deref(), &*taint.effect)).collect();
        assert_eq!(taints, [("gpu", Some("true"), "NoSchedule"), ("old", None, "NoExecute")]);
        for invalid in ["zone", "a b=c", "zone=a b"] {
            assert!(invalid.parse::<NodeLabels>().is_err(), "{invalid}");
        }
        // Those that the API server does not let a node set, and those that it sets itself.
        for allowed in [
            "topology.kubernetes.io/zone=a",
            "node.kubernetes.io/pool=a",
            "x.node.kubernetes.io/pool=a",
            "examplek8s.io/a=b",
        ] {
            assert!(allowed.parse::<NodeLabels>().is_ok(), "{allowed}");
        }
        for (refused, why) in [
            (
                "node-role.kubernetes.io/worker=",
                "unknown 'kubernetes.io' or 'k8s.io' label node-role.kubernetes.io/worker: ",
            ),
            ("node-restriction.kubernetes.io/a=b", "unknown 'kubernetes.io' or 'k8s.io' label "),
            ("k8s.io/a=b", "unknown 'kubernetes.io' or 'k8s.io' label k8s.io/a: "),
            ("kubernetes.io/hostname=other", "kubernetes.io/hostname: the node sets this label itself"),
        ] {
            let error = refused.parse::<NodeLabels>().unwrap_err().to_string();
            assert!(error.starts_with(why), "{error}");
        }
        for invalid in ["gpu", "gpu=true", "gpu:Never", "g pu:NoSchedule"] {
            assert!(invalid.parse::<Taints>().is_err(), "{invalid}");
        }
    }

    #[test]
    fn the_address_of_the_dns_server_is_one_of_services() {
        assert_eq!(cluster_dns("").unwrap(), ClusterDnsAddress(None));
        let address = Ipv4Addr::new(10, 111, 255, 10);
        assert_eq!(cluster_dns("10.111.255.10").unwrap(), ClusterDnsAddress(Some(address)));
        for invalid in ["10.96.0.1", "10.112.0.1", "10.95.0.1", "8.8.8.8", "fd00::1", "none"] {
            assert!(cluster_dns(invalid).is_err(), "{invalid}");
        }
        assert_eq!(cluster_domain("example.org.").unwrap(), "example.org");
        assert!(cluster_domain("a..b").is_err());
    }

    #[test]
    fn the_longest_wait_for_a_restart_is_that_of_the_kubelet_or_less() {
        for (text, expected) in
            [("1s", Some(1)), ("300s", Some(300)), ("5m", Some(300)), ("999ms", None), ("301s", None)]
        {
            assert_eq!(restart_period(text).ok(), expected.map(Duration::from_secs), "{text}");
        }
    }
}
