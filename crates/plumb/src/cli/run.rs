//! The flags of `plumb run`: which components, where, and with upstream's names and defaults.

mod admission;
mod endpoint;
mod ignored;
mod rollout;
mod updater;

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use plumb_cluster::features;
use plumb_controller_runtime::leader::{Durations, LeaderConfig, LeaderConfigError};
use plumb_features::FeatureGates;
use plumb_recommender::input::external_metrics::ExternalMetricsSettings;
use plumb_recommender::input::prometheus::PrometheusSettings;
use plumb_resize::resource::Resource;
use plumb_vpa::namespaces::Namespaces;

pub(crate) use admission::AdmissionFlags;
pub(crate) use ignored::Ignored;
pub(crate) use rollout::RolloutFlags;
pub(crate) use updater::UpdaterFlags;

use crate::recommender_flags::{PrometheusFlags, Tuning, positive_time};

/// The lease of the recommender: upstream's.
const RECOMMENDER_LEASE: &str = "vpa-recommender-lease";
/// The lease of the updater: upstream's.
const UPDATER_LEASE: &str = "vpa-updater";
/// The lease of the rollout.
const ROLLOUT_LEASE: &str = "plumb-rollout-lease";

/// Which components to run.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(subcommand)]
    pub(crate) command: RunCommand,
}

/// Which components to run.
#[derive(Debug, Subcommand)]
pub(crate) enum RunCommand {
    /// Run the whole autoscaler in one process: recommender, updater and admission webhook.
    ///
    /// It takes the flags of all of them. With --leader-elect each of recommender and updater works in the process that
    /// holds its lease, vpa-recommender-lease and vpa-updater, as if it ran alone; the webhook is served by every
    /// process.
    #[command(after_help = "Examples:\n  \
        plumb run all --kubeconfig ~/.kube/config --register-by-url --webhook-address=192.0.2.7\n  \
        plumb run all --leader-elect=true --install-crds=true")]
    All(Box<RunAll>),
    /// Run the recommender of the Vertical Pod Autoscaler.
    ///
    /// It reads the usage of containers, recommends cpu and memory in the status of VerticalPodAutoscaler objects, and
    /// stores history in `VerticalPodAutoscalerCheckpoint` objects. Flags, objects, checkpoints and metrics are those of
    /// upstream's recommender, so that each can take over from the other: stop the one, start the other.
    ///
    /// Without --kubeconfig it uses the service account of its pod, and outside of a pod the file in KUBECONFIG.
    #[command(after_help = "Examples:\n  \
        plumb run recommender --kubeconfig ~/.kube/config --address=127.0.0.1:8942\n  \
        curl http://127.0.0.1:8942/debug/vpa/default/web\n  \
        plumb run recommender --storage=prometheus --prometheus-address=http://prometheus:9090 \\\n    \
        --prometheus-cadvisor-job-name=kubelet")]
    Recommender(Box<RunRecommender>),
    /// Run the updater of the Vertical Pod Autoscaler.
    ///
    /// It applies recommendations to running pods: in place, or by eviction where the update mode of the VPA allows it.
    /// It also ends CPU start-up boosts. Flags, events and metrics are those of upstream's updater.
    ///
    /// It evicts only while the admission webhook renews its lease: without the webhook a new pod would not get the
    /// recommendation. With --use-admission-controller-status=false it evicts in any case.
    #[command(after_help = "Examples:\n  \
        plumb run updater --kubeconfig ~/.kube/config\n  \
        plumb run updater --leader-elect=true --eviction-rate-limit=2 --eviction-rate-burst=5\n  \
        kubectl describe vpa web    # the condition PodsUpdated and events say what it did and waits for")]
    Updater(Box<RunUpdater>),
    /// Run the admission webhook of the Vertical Pod Autoscaler.
    ///
    /// It sets the requests of new pods to the recommendation of their VPA, with the CPU start-up boost, and validates
    /// VPAs. Any number of processes serve it at once. They share a certificate authority in a Secret, which they
    /// create and renew; files with certificates are used where there are some. They register the webhook by its
    /// Service (--webhook-service), or by a URL (--register-by-url), and renew the lease that the updater reads.
    ///
    /// While it is unavailable, the API server creates pods without it; with --webhook-failure-policy-fail it rejects
    /// them.
    #[command(after_help = "Examples:\n  \
        plumb run admission    # in a pod behind the Service vpa-webhook\n  \
        plumb run admission --kubeconfig ~/.kube/config --register-by-url --webhook-address=192.0.2.7")]
    Admission(Box<RunAdmission>),
    /// Run the controllers of CloneSets and of in-place rollouts.
    ///
    /// They run CloneSets where OpenKruise does not. With the feature gate InPlaceWorkloadVerticalScaling they resize the
    /// pods of Deployments, StatefulSets and DaemonSets that opt in (annotation rollout.plumb.dev/in-place, or a
    /// RolloutPolicy) when the resources of their template change. A webhook, which every process serves, then holds such
    /// a workload in the write that changes it; while it is unavailable, workload controllers recreate the pods.
    #[command(after_help = "Examples:\n  \
        plumb run rollout --kubeconfig ~/.kube/config --install-crds=true\n  \
        plumb run rollout --leader-elect=true --feature-gates=InPlaceWorkloadVerticalScaling=true \\\n    \
        --register-by-url --webhook-address=192.0.2.7")]
    Rollout(Box<RunRollout>),
}

/// The whole autoscaler.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunAll {
    /// The address of metrics (/metrics), health (/healthz, /readyz) and explanations (/debug/vpa/NAMESPACE/NAME).
    #[arg(long, value_name = "ADDRESS", default_value = ":8942")]
    address: String,
    #[command(flatten)]
    common: CommonFlags,
    #[command(flatten)]
    vpas: VpaFlags,
    #[command(flatten)]
    election: ElectionFlags,
    #[command(flatten)]
    recommender: RecommenderFlags,
    #[command(flatten)]
    updater: UpdaterFlags,
    #[command(flatten)]
    admission: AdmissionFlags,
    #[command(flatten)]
    ignored: Ignored,
}

/// The recommender.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunRecommender {
    /// The address of metrics (/metrics), health (/health-check, /healthz, /readyz) and explanations
    /// (/debug/vpa/NAMESPACE/NAME).
    #[arg(long, value_name = "ADDRESS", default_value = ":8942")]
    address: String,
    /// The name of the lease that the leader holds.
    #[arg(long, value_name = "NAME", default_value = RECOMMENDER_LEASE)]
    leader_elect_resource_name: String,
    #[command(flatten)]
    common: CommonFlags,
    #[command(flatten)]
    vpas: VpaFlags,
    #[command(flatten)]
    election: ElectionFlags,
    #[command(flatten)]
    recommender: RecommenderFlags,
    #[command(flatten)]
    ignored: Ignored,
}

/// The updater.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunUpdater {
    /// The address of metrics (/metrics) and health (/health-check, /healthz, /readyz).
    #[arg(long, value_name = "ADDRESS", default_value = ":8943")]
    address: String,
    /// The name of the lease that the leader holds.
    #[arg(long, value_name = "NAME", default_value = UPDATER_LEASE)]
    leader_elect_resource_name: String,
    #[command(flatten)]
    common: CommonFlags,
    #[command(flatten)]
    vpas: VpaFlags,
    #[command(flatten)]
    election: ElectionFlags,
    #[command(flatten)]
    updater: UpdaterFlags,
    #[command(flatten)]
    ignored: Ignored,
}

/// The admission webhook.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunAdmission {
    /// The address of metrics (/metrics) and health (/health-check, /healthz, /readyz).
    #[arg(long, value_name = "ADDRESS", default_value = ":8944")]
    address: String,
    #[command(flatten)]
    common: CommonFlags,
    #[command(flatten)]
    vpas: VpaFlags,
    #[command(flatten)]
    admission: AdmissionFlags,
    #[command(flatten)]
    ignored: Ignored,
}

/// The rollout.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunRollout {
    /// The address of metrics (/metrics) and health (/healthz, /readyz).
    #[arg(long, value_name = "ADDRESS", default_value = ":8945")]
    address: String,
    /// The name of the lease that the leader holds.
    #[arg(long, value_name = "NAME", default_value = ROLLOUT_LEASE)]
    leader_elect_resource_name: String,
    #[command(flatten)]
    common: CommonFlags,
    #[command(flatten)]
    election: ElectionFlags,
    #[command(flatten)]
    rollout: RolloutFlags,
    #[command(flatten)]
    ignored: Ignored,
}

/// A component that works in one process at a time.
#[derive(Clone, Debug)]
pub(crate) struct Elected<F> {
    /// Its flags.
    pub(crate) flags: F,
    /// The lease that its leader holds.
    pub(crate) lease: String,
}

/// The components that a command runs, with their flags.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub(crate) address: String,
    pub(crate) common: CommonFlags,
    /// Of the autoscaler.
    pub(crate) vpas: VpaScope,
    /// None for commands whose components are not elected.
    pub(crate) election: Option<ElectionFlags>,
    pub(crate) recommender: Option<Elected<RecommenderFlags>>,
    pub(crate) updater: Option<Elected<UpdaterFlags>>,
    pub(crate) admission: Option<AdmissionFlags>,
    pub(crate) rollout: Option<Elected<RolloutFlags>>,
    pub(crate) ignored: Ignored,
}

impl RunCommand {
    /// The components.
    pub(crate) fn chosen(self) -> Chosen {
        match self {
            Self::All(all) => Chosen {
                address: all.address,
                common: all.common,
                vpas: all.vpas.scope(),
                election: Some(all.election),
                recommender: Some(Elected { flags: all.recommender, lease: RECOMMENDER_LEASE.to_owned() }),
                updater: Some(Elected { flags: all.updater, lease: UPDATER_LEASE.to_owned() }),
                admission: Some(all.admission),
                rollout: None,
                ignored: all.ignored,
            },
            Self::Recommender(one) => Chosen {
                address: one.address,
                common: one.common,
                vpas: one.vpas.scope(),
                election: Some(one.election),
                recommender: Some(Elected { flags: one.recommender, lease: one.leader_elect_resource_name }),
                updater: None,
                admission: None,
                rollout: None,
                ignored: one.ignored,
            },
            Self::Updater(one) => Chosen {
                address: one.address,
                common: one.common,
                vpas: one.vpas.scope(),
                election: Some(one.election),
                recommender: None,
                updater: Some(Elected { flags: one.updater, lease: one.leader_elect_resource_name }),
                admission: None,
                rollout: None,
                ignored: one.ignored,
            },
            Self::Admission(one) => Chosen {
                address: one.address,
                common: one.common,
                vpas: one.vpas.scope(),
                election: None,
                recommender: None,
                updater: None,
                admission: Some(one.admission),
                rollout: None,
                ignored: one.ignored,
            },
            Self::Rollout(one) => Chosen {
                address: one.address,
                common: one.common,
                vpas: VpaScope { namespaces: Namespaces::All, node_selectors: false },
                election: Some(one.election),
                recommender: None,
                updater: None,
                admission: None,
                rollout: Some(Elected { flags: one.rollout, lease: one.leader_elect_resource_name }),
                ignored: one.ignored,
            },
        }
    }

    /// The error for flags that are valid by themselves and not together.
    pub(crate) fn conflict(&self) -> Option<&'static str> {
        let (vpas, election, recommender, admission) = match self {
            Self::All(all) => (&all.vpas, Some(&all.election), Some(&all.recommender), Some(&all.admission)),
            Self::Recommender(one) => (&one.vpas, Some(&one.election), Some(&one.recommender), None),
            Self::Updater(one) => (&one.vpas, Some(&one.election), None, None),
            Self::Admission(one) => (&one.vpas, None, None, Some(&one.admission)),
            Self::Rollout(one) => return one.rollout.conflict().or_else(|| one.election.conflict()),
        };
        let both = !vpas.vpa_object_namespace.is_empty() && !vpas.ignored_vpa_object_namespaces.is_empty();
        both.then_some("--vpa-object-namespace and --ignored-vpa-object-namespaces cannot be used together")
            .or_else(|| election?.conflict())
            .or_else(|| recommender?.conflict())
            .or_else(|| admission?.conflict())
    }
}

/// What the recommender does.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Recommender loop")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct RecommenderFlags {
    /// The name by which VPAs choose the recommender in `spec.recommenders`. VPAs that choose none use `default`.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) recommender_name: String,
    /// How often the recommender reads usage and updates recommendations.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = positive_time)]
    pub(crate) recommender_interval: Duration,
    /// The storage of history: checkpoints, which the recommender reads at start and writes, or Prometheus, which it
    /// reads at start.
    #[arg(long, value_name = "STORAGE", default_value = "checkpoint", value_enum)]
    pub(crate) storage: StorageFlag,
    /// How long the recommender may write checkpoints in each run.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = positive_time)]
    pub(crate) checkpoints_timeout: Duration,
    /// The minimum number of VPAs whose checkpoints the recommender writes in each run. Deprecated by upstream.
    #[arg(long, value_name = "N", default_value = "10")]
    pub(crate) min_checkpoints: usize,
    /// How often the recommender deletes the checkpoints of deleted VPAs.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = positive_time)]
    pub(crate) checkpoints_gc_interval: Duration,
    /// Keep no usage of pods that no VPA selects.
    #[arg(long, value_name = "true|false", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) memory_saver: bool,
    /// Recommend no more than the largest node that pods can be scheduled to has allocatable.
    #[arg(long, value_name = "true|false", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) cap_by_largest_node: bool,
    /// Recommend no more than the quotas of the namespace leave for each pod of the VPA.
    #[arg(long, value_name = "true|false", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) cap_by_quota: bool,
    /// Recommend no resource that a HorizontalPodAutoscaler scales the same target on, and report it on the VPA.
    #[arg(long, value_name = "true|false", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) yield_to_hpa: bool,
    /// Read present usage from external.metrics.k8s.io rather than from metrics.k8s.io.
    #[arg(long, value_name = "true|false", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) use_external_metrics: bool,
    /// The external metric of the cpu of containers; the label --container-name-label names the container.
    #[arg(long, value_name = "METRIC", default_value = "", hide_default_value = true)]
    pub(crate) external_metrics_cpu_metric: String,
    /// The external metric of the memory of containers.
    #[arg(long, value_name = "METRIC", default_value = "", hide_default_value = true)]
    pub(crate) external_metrics_memory_metric: String,
    /// The maximum number of requests in flight that update VPAs and checkpoints.
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) update_worker_count: u16,
    /// How many parts the VPAs are divided into, which as many processes can share: each part has a lease of its own, and
    /// processes that run with the same number divide the leases among them, whether --leader-elect is set or not.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) shards: u32,
    #[command(flatten)]
    pub(crate) tuning: Tuning,
    #[command(flatten)]
    pub(crate) history: HistoryFlags,
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

/// The cluster.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct CommonFlags {
    /// The kubeconfig. [default: the service account of the pod, else what KUBECONFIG names, then ~/.kube/config]
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    pub(crate) kubeconfig: String,
    /// The maximum number of requests per second; 0 and less for any number.
    #[arg(long, value_name = "N", default_value = "50", allow_negative_numbers = true)]
    pub(crate) kube_api_qps: f64,
    /// The burst of requests after a pause.
    #[arg(long, value_name = "N", default_value = "100", allow_negative_numbers = true)]
    pub(crate) kube_api_burst: f64,
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
    /// Install the CustomResourceDefinitions of these components where the cluster has none.
    #[arg(long, value_name = "true|false", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) install_crds: bool,
}

/// The VPAs of an autoscaler.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct VpaFlags {
    /// The only namespace whose VPAs are reconciled. [default: all]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(crate) vpa_object_namespace: String,
    /// Namespaces whose VPAs are ignored, separated by commas.
    #[arg(long, value_name = "A,B", default_value = "", hide_default_value = true)]
    pub(crate) ignored_vpa_object_namespaces: String,
    /// Let VPAs of a DaemonSet select nodes, by the annotation plumb.dev/node-selector, and apply to the pods on these
    /// alone. The recommender, the updater and the admission webhook need the same value.
    #[arg(long, value_name = "true|false", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) node_selectors: bool,
}

/// Which VPAs count, and for which pods.
#[derive(Clone, Debug)]
pub(crate) struct VpaScope {
    /// Their namespaces.
    pub(crate) namespaces: Namespaces,
    /// Whether they may select nodes.
    pub(crate) node_selectors: bool,
}

impl VpaFlags {
    /// The VPAs that count.
    pub(crate) fn scope(&self) -> VpaScope {
        VpaScope { namespaces: self.namespaces(), node_selectors: self.node_selectors }
    }

    fn namespaces(&self) -> Namespaces {
        let names = self.ignored_vpa_object_namespaces.split(',').map(str::trim);
        let ignored: std::collections::BTreeSet<String> =
            names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        match (self.vpa_object_namespace.as_str(), ignored.is_empty()) {
            ("", true) => Namespaces::All,
            ("", false) => Namespaces::Except(ignored),
            (only, _) => Namespaces::Only(only.to_owned()),
        }
    }
}

/// Which of several processes works.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Leader election")]
#[expect(clippy::struct_field_names, reason = "the flags have upstream's names")]
pub(crate) struct ElectionFlags {
    /// Work only while this process holds the lease, so that several can run and one works.
    #[arg(long, value_name = "true|false", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) leader_elect: bool,
    /// How long other processes wait after the last renewal before they acquire the lease.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = positive_time)]
    pub(crate) leader_elect_lease_duration: Duration,
    /// How long a leader retries to renew before it gives up leadership.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_time)]
    pub(crate) leader_elect_renew_deadline: Duration,
    /// How often processes try to acquire or renew the lease.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = positive_time)]
    pub(crate) leader_elect_retry_period: Duration,
    /// The kind of the lock: only leases are supported.
    #[arg(long, value_name = "KIND", default_value = "leases", value_parser = ["leases"])]
    pub(crate) leader_elect_resource_lock: String,
    /// The namespace of the lease.
    #[arg(long, value_name = "NAME", default_value = "kube-system")]
    pub(crate) leader_elect_resource_namespace: String,
}

impl ElectionFlags {
    /// The error for flags that are valid by themselves and not together.
    fn conflict(&self) -> Option<&'static str> {
        if !self.leader_elect {
            return None;
        }
        let config = LeaderConfig { durations: self.durations(), ..LeaderConfig::new("", "", "checked") };
        match config.check() {
            Err(LeaderConfigError::RenewDeadline { .. }) => Some(
                "--leader-elect-renew-deadline must be shorter than the whole seconds of --leader-elect-lease-duration",
            ),
            Err(LeaderConfigError::RetryPeriod { .. }) => Some(
                "--leader-elect-retry-period, with a fifth more as jitter, must be shorter than \
                 --leader-elect-renew-deadline",
            ),
            Ok(()) | Err(LeaderConfigError::NoIdentity) => None,
        }
    }

    /// How long things take in the election.
    pub(crate) fn durations(&self) -> Durations {
        Durations {
            lease: self.leader_elect_lease_duration,
            renew_deadline: self.leader_elect_renew_deadline,
            retry_period: self.leader_elect_retry_period,
        }
    }
}

/// Where usage comes from besides metrics.k8s.io.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Prometheus")]
pub(crate) struct HistoryFlags {
    /// The Prometheus server with the history.
    #[arg(long, value_name = "URL", default_value = "http://prometheus.monitoring.svc")]
    pub(crate) prometheus_address: String,
    /// A query whose series have the labels of pods, for pods that were deleted.
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
    /// The error for flags that are valid by themselves and not together.
    fn conflict(&self) -> Option<&'static str> {
        let no_metric =
            self.external_metrics_cpu_metric.is_empty() && self.external_metrics_memory_metric.is_empty();
        (self.use_external_metrics && no_metric).then_some(
            "--use-external-metrics needs --external-metrics-cpu-metric or --external-metrics-memory-metric",
        )
    }

    /// Which external metrics are read, if any are.
    pub(crate) fn external_metrics(&self) -> Option<ExternalMetricsSettings> {
        let named = [
            (Resource::Cpu, &self.external_metrics_cpu_metric),
            (Resource::Memory, &self.external_metrics_memory_metric),
        ];
        let metrics = named.into_iter().filter(|(_, metric)| !metric.is_empty());
        self.use_external_metrics.then(|| ExternalMetricsSettings {
            metrics: metrics.map(|(resource, metric)| (resource, metric.clone())).collect(),
            container_name_label: self.prometheus_settings(&Namespaces::All).container_name_label,
        })
    }

    /// Where history is read from.
    pub(crate) fn prometheus_settings(&self, namespaces: &Namespaces) -> PrometheusSettings {
        let history = &self.history;
        PrometheusSettings {
            pod_label_prefix: history.pod_label_prefix.clone(),
            metric_for_pod_labels: history.metric_for_pod_labels.clone(),
            pod_namespace_label: history.pod_namespace_label.clone(),
            pod_name_label: history.pod_name_label.clone(),
            ..history.prometheus.settings(&history.prometheus_address, namespaces.only())
        }
    }
}
