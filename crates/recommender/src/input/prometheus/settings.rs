//! Which server, what of it, and who asks: upstream's flags.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::PodLabels;
use super::response::Labels;

/// A value that is never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The value itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self(value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Authentication {
    /// No credentials.
    #[default]
    None,
    /// A bearer token (`--prometheus-bearer-token`).
    BearerToken(Secret),
    /// The same with a token in a file, which is read for each query (`--prometheus-bearer-token-file`).
    BearerTokenFile(PathBuf),
    /// A user with a password (`--username`, `--password`).
    Basic {
        /// The user.
        username: String,
        /// The password.
        password: Secret,
    },
}

/// Which server, what of it, and who asks.
///
/// The names of labels are those that cAdvisor has had since Kubernetes 1.16. Upstream's defaults are those from before.
#[derive(Clone, Debug, PartialEq)]
pub struct PrometheusSettings {
    /// The URL of the server (`--prometheus-address`).
    pub address: String,
    /// Whether any certificate of the server is accepted (`--prometheus-insecure`).
    pub insecure: bool,
    /// Who asks.
    pub authentication: Authentication,
    /// How long a query may take (`--prometheus-query-timeout`).
    pub query_timeout: Duration,
    /// The job that scrapes cAdvisor; empty for any (`--prometheus-cadvisor-job-name`).
    pub cadvisor_job_name: String,
    /// How far back history goes (`--history-length`).
    pub history_length: Duration,
    /// How far apart its samples are (`--history-resolution`).
    pub history_resolution: Duration,
    /// The counter of CPU seconds (`--history-cpu-metric`).
    pub cpu_metric: String,
    /// The gauge of bytes of memory (`--history-memory-metric`).
    pub memory_metric: String,
    /// What labels that are labels of pods start with (`--pod-label-prefix`).
    pub pod_label_prefix: String,
    /// A query whose series have the labels of pods (`--metric-for-pod-labels`).
    pub metric_for_pod_labels: String,
    /// The label of that with the namespace (`--pod-namespace-label`).
    pub pod_namespace_label: String,
    /// The label of that with the name of the pod (`--pod-name-label`).
    pub pod_name_label: String,
    /// The label of usage with the namespace (`--container-namespace-label`).
    pub container_namespace_label: String,
    /// The label of usage with the name of the pod (`--container-pod-name-label`).
    pub container_pod_name_label: String,
    /// The label of usage with the name of the container (`--container-name-label`).
    pub container_name_label: String,
    /// The only namespace, or all (`--vpa-object-namespace`).
    pub namespace: Option<String>,
}

impl Default for PrometheusSettings {
    fn default() -> Self {
        Self {
            address: "http://prometheus.monitoring.svc".to_owned(),
            insecure: false,
            authentication: Authentication::None,
            query_timeout: Duration::from_mins(5),
            cadvisor_job_name: "kubernetes-cadvisor".to_owned(),
            history_length: Duration::from_hours(8 * 24),
            history_resolution: Duration::from_hours(1),
            cpu_metric: "container_cpu_usage_seconds_total".to_owned(),
            memory_metric: "container_memory_working_set_bytes".to_owned(),
            pod_label_prefix: "pod_label_".to_owned(),
            metric_for_pod_labels: "up{job=\"kubernetes-pods\"}".to_owned(),
            pod_namespace_label: "kubernetes_namespace".to_owned(),
            pod_name_label: "kubernetes_pod_name".to_owned(),
            container_namespace_label: "namespace".to_owned(),
            container_pod_name_label: "pod".to_owned(),
            container_name_label: "container".to_owned(),
            namespace: None,
        }
    }
}

/// A setting that makes no query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The address is no URL of a server.
    #[error("the address is no URL such as http://prometheus.monitoring.svc:9090")]
    Address,
    /// The name of a metric or label.
    #[error("{0:?} is no name of a metric or label")]
    Name(String),
    /// A time is too short to be asked for.
    #[error("history is asked for in steps of a second or more")]
    Resolution,
}

impl PrometheusSettings {
    /// The names in queries, which must be names.
    pub(super) fn check(&self) -> Result<(), SettingsError> {
        let names = [
            &self.cpu_metric,
            &self.memory_metric,
            &self.container_namespace_label,
            &self.container_pod_name_label,
            &self.container_name_label,
        ];
        for name in names {
            let starts =
                name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_' || first == ':');
            let holds = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':');
            if !(starts && holds) {
                return Err(SettingsError::Name(name.clone()));
            }
        }
        if self.history_resolution < Duration::from_secs(1) {
            return Err(SettingsError::Resolution);
        }
        Ok(())
    }

    /// The labels of a pod, as a series carries them; none if it is no series of a pod.
    pub(super) fn pod_labels(&self, series: &Labels) -> Option<PodLabels> {
        let labels = series.iter().filter_map(|(name, value)| {
            let name = name.strip_prefix(&self.pod_label_prefix)?;
            Some((name.to_owned(), value.clone()))
        });
        Some(PodLabels {
            namespace: series.get(&self.pod_namespace_label)?.clone(),
            pod: series.get(&self.pod_name_label)?.clone(),
            labels: labels.collect(),
        })
    }
}
