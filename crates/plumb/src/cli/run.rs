//! The flags of `plumb run`: which components, where, and with upstream's names and defaults.

mod ignored;

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use plumb_autoscaler::recommender::prometheus::PrometheusSettings;
use plumb_features::FeatureGates;

pub(crate) use ignored::Ignored;

use super::recommender::{PrometheusFlags, Tuning, positive_time};
use crate::features;

/// Which components to run.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(subcommand)]
    pub(crate) command: RunCommand,
}

/// Which components to run.
#[derive(Debug, Subcommand)]
pub(crate) enum RunCommand {
    /// Run every component that this version has: at present the recommender.
    #[command(after_help = "Examples:\n  \
        plumb run all --kubeconfig ~/.kube/config\n  \
        plumb run all --leader-elect=true --leader-elect-resource-name=plumb")]
    All(Box<RecommenderFlags>),
    /// Run the recommender of the Vertical Pod Autoscaler.
    ///
    /// It reads what containers use, recommends cpu and memory for them in the status of VerticalPodAutoscaler objects, and
    /// stores their history in checkpoints, which are objects, too. Flags, objects, checkpoints and metrics are those of
    /// upstream's recommender, so that each can take over from the other: stop the one, start the other.
    ///
    /// Without --kubeconfig it uses the service account of its pod, and outside of a pod what KUBECONFIG names.
    #[command(after_help = "Examples:\n  \
        plumb run recommender --kubeconfig ~/.kube/config --address=127.0.0.1:8942\n  \
        curl http://127.0.0.1:8942/debug/vpa/default/web\n  \
        plumb run recommender --storage=prometheus --prometheus-address=http://prometheus:9090 \
        --prometheus-cadvisor-job-name=kubelet")]
    Recommender(Box<RecommenderFlags>),
}

/// What the recommender does, and where.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Recommender loop")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct RecommenderFlags {
    /// The name that VPAs choose the recommender by in `spec.recommenders`. The one called `default` is also that of VPAs that
    /// choose none.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) recommender_name: String,
    /// How often usage is read and recommendations are made.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = positive_time)]
    pub(crate) recommender_interval: Duration,
    /// Where history is stored: in checkpoints, which are read at start and written, or in Prometheus, which is read at start.
    #[arg(long, value_name = "STORAGE", default_value = "checkpoint", value_enum)]
    pub(crate) storage: StorageFlag,
    /// For how long checkpoints are written in each run.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = positive_time)]
    pub(crate) checkpoints_timeout: Duration,
    /// How many VPAs get their checkpoints written in each run, however long it takes. Deprecated by upstream.
    #[arg(long, value_name = "N", default_value = "10")]
    pub(crate) min_checkpoints: usize,
    /// How often the checkpoints of VPAs that are gone are deleted.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = positive_time)]
    pub(crate) checkpoints_gc_interval: Duration,
    /// Count nothing for pods that no VPA selects.
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) memory_saver: bool,
    /// Recommend no more than the largest node that pods can be scheduled to has allocatable.
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) cap_by_largest_node: bool,
    /// Recommend no more than the quotas of the namespace leave for each pod of the VPA.
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) cap_by_quota: bool,
    /// Recommend no resource that a HorizontalPodAutoscaler scales the same target on, and report it on the VPA.
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) yield_to_hpa: bool,
    /// How many requests that update VPAs and checkpoints are under way at once.
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) update_worker_count: u16,
    /// The address of metrics (/metrics), health (/health-check) and explanations (/debug/vpa/NAMESPACE/NAME).
    #[arg(long, value_name = "ADDRESS", default_value = ":8942")]
    pub(crate) address: String,
    /// The name of the lease that the leader holds.
    #[arg(long, value_name = "NAME", default_value = "vpa-recommender-lease")]
    pub(crate) leader_elect_resource_name: String,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
    #[command(flatten)]
    pub(crate) tuning: Tuning,
    #[command(flatten)]
    pub(crate) history: HistoryFlags,
    #[command(flatten)]
    pub(crate) ignored: Ignored,
}

/// Where history is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StorageFlag {
    /// In checkpoints.
    #[value(alias = "")]
    Checkpoint,
    /// In Prometheus.
    Prometheus,
}

/// The cluster, and who of several processes works.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct CommonFlags {
    /// The kubeconfig. [default: the service account of the pod, else what KUBECONFIG names, then ~/.kube/config]
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    pub(crate) kubeconfig: String,
    /// How many requests are sent in a second; 0 and less for any number.
    #[arg(long, value_name = "N", default_value = "50", allow_negative_numbers = true)]
    pub(crate) kube_api_qps: f64,
    /// How many requests are sent at once after a pause.
    #[arg(long, value_name = "N", default_value = "100", allow_negative_numbers = true)]
    pub(crate) kube_api_burst: f64,
    /// The only namespace whose VPAs count. [default: all]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(crate) vpa_object_namespace: String,
    /// Namespaces whose VPAs do not count, separated by commas.
    #[arg(long, value_name = "A,B", default_value = "", hide_default_value = true)]
    pub(crate) ignored_vpa_object_namespaces: String,
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
    /// Install the CustomResourceDefinitions of VPAs where the cluster has none.
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) install_crds: bool,
    /// Work only while this process holds the lease, so that several can run and one works.
    #[arg(long, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) leader_elect: bool,
    /// How long after its last renewal others leave the lease to its holder.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = positive_time)]
    pub(crate) leader_elect_lease_duration: Duration,
    /// How long a leader works without a renewal.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_time)]
    pub(crate) leader_elect_renew_deadline: Duration,
    /// How often the lease is renewed, or tried for.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = positive_time)]
    pub(crate) leader_elect_retry_period: Duration,
    /// The kind of the lease: there are only leases.
    #[arg(long, value_name = "KIND", default_value = "leases", value_parser = ["leases"])]
    pub(crate) leader_elect_resource_lock: String,
    /// The namespace of the lease.
    #[arg(long, value_name = "NAME", default_value = "kube-system")]
    pub(crate) leader_elect_resource_namespace: String,
}

/// Where usage comes from besides metrics.k8s.io.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Prometheus")]
pub(crate) struct HistoryFlags {
    /// The server that history is read from.
    #[arg(long, value_name = "URL", default_value = "http://prometheus.monitoring.svc")]
    pub(crate) prometheus_address: String,
    /// A query whose series have the labels of pods, for pods that are gone.
    #[arg(long, value_name = "QUERY", default_value = "up{job=\"kubernetes-pods\"}")]
    pub(crate) metric_for_pod_labels: String,
    /// What the labels of such a series that are labels of the pod start with.
    #[arg(long, value_name = "PREFIX", default_value = "pod_label_")]
    pub(crate) pod_label_prefix: String,
    /// The label of such a series with the namespace of the pod.
    #[arg(long, value_name = "LABEL", default_value = "kubernetes_namespace")]
    pub(crate) pod_namespace_label: String,
    /// The label of such a series with the name of the pod.
    #[arg(long, value_name = "LABEL", default_value = "kubernetes_pod_name")]
    pub(crate) pod_name_label: String,
    #[command(flatten)]
    pub(crate) prometheus: PrometheusFlags,
}

impl RecommenderFlags {
    /// Where history is read from.
    pub(crate) fn prometheus_settings(&self) -> PrometheusSettings {
        let namespace = Some(self.common.vpa_object_namespace.as_str()).filter(|name| !name.is_empty());
        let history = &self.history;
        PrometheusSettings {
            pod_label_prefix: history.pod_label_prefix.clone(),
            metric_for_pod_labels: history.metric_for_pod_labels.clone(),
            pod_namespace_label: history.pod_namespace_label.clone(),
            pod_name_label: history.pod_name_label.clone(),
            ..history.prometheus.settings(&history.prometheus_address, namespace)
        }
    }
}

impl RunCommand {
    /// What is wrong with flags that are right each by itself.
    pub(crate) fn conflict(&self) -> Option<&'static str> {
        let (Self::All(flags) | Self::Recommender(flags)) = self;
        let common = &flags.common;
        let both =
            !common.vpa_object_namespace.is_empty() && !common.ignored_vpa_object_namespaces.is_empty();
        both.then_some("--vpa-object-namespace and --ignored-vpa-object-namespaces cannot be used together")
    }
}
