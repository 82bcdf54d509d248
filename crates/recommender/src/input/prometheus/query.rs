//! What is asked for, in the language of Prometheus.

use std::fmt::Write as _;
use std::ops::Index;
use std::time::Duration;

use plumb_resize::resource::{PerResource, Resource};

use super::settings::{PrometheusSettings, SettingsError};

/// The queries of usage by resource.
#[derive(Debug)]
pub(super) struct Queries(PerResource<String>);

impl Queries {
    /// The queries of VPA's recommender, with one difference: the series of a container are aggregated into one. A
    /// container that was restarted has two, whose samples would come one series after the other instead of in the order of
    /// their times; and the labels that the recommender does not read are most of an answer.
    pub(super) fn new(settings: &PrometheusSettings) -> Result<Self, SettingsError> {
        settings.check()?;
        let selector = selector(settings);
        let by = format!(
            "max by ({}, {}, {})",
            settings.container_namespace_label,
            settings.container_pod_name_label,
            settings.container_name_label
        );
        let resolution = duration(settings.history_resolution);
        Ok(Self(PerResource::new(
            format!("{by} (rate({}{{{selector}}}[{resolution}]))", settings.cpu_metric),
            format!("{by} ({}{{{selector}}})", settings.memory_metric),
        )))
    }
}

impl Index<Resource> for Queries {
    type Output = String;

    fn index(&self, resource: Resource) -> &String {
        &self.0[resource]
    }
}

/// The containers: of the job, of pods, neither the pause container nor the cgroup of the whole pod.
fn selector(settings: &PrometheusSettings) -> String {
    let (pod, name) = (&settings.container_pod_name_label, &settings.container_name_label);
    let mut selector = String::new();
    // Writing to a string does not fail.
    if !settings.cadvisor_job_name.is_empty() {
        let _ = write!(selector, "job={}, ", quoted(&settings.cadvisor_job_name));
    }
    let _ = write!(selector, "{pod}=~\".+\", {name}!=\"POD\", {name}!=\"\"");
    if let Some(namespace) = &settings.namespace {
        let _ = write!(selector, ", {}={}", settings.container_namespace_label, quoted(namespace));
    }
    selector
}

/// The jobs that have a metric.
pub(super) fn jobs(metric: &str) -> String {
    format!("count by (job) ({metric})")
}

/// Parts of queries for those who write their own.
#[derive(Clone, Copy, Debug)]
pub struct PromQl;

impl PromQl {
    /// `{namespace="default"}`, or nothing for all namespaces.
    pub fn namespace_selector(namespace: Option<&str>) -> String {
        namespace.map_or_else(String::new, |namespace| format!("{{namespace={}}}", quoted(namespace)))
    }

    /// A duration in the largest unit that divides it: `8d`, `90m`.
    pub fn duration(of: Duration) -> String {
        duration(of)
    }
}

/// A string in a query.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

/// A duration in a query, in the largest unit that divides it.
fn duration(of: Duration) -> String {
    const UNITS: [(&str, u128); 4] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
    let millis = of.as_millis();
    match UNITS.into_iter().find(|(_, unit)| millis.is_multiple_of(*unit)) {
        Some((name, unit)) if millis > 0 => format!("{}{name}", millis / unit),
        _ => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_select_containers_and_aggregate_their_series() {
        let queries = Queries::new(&PrometheusSettings::default()).unwrap();
        assert_eq!(
            queries[Resource::Cpu],
            "max by (namespace, pod, container) (rate(container_cpu_usage_seconds_total{job=\"kubernetes-cadvisor\", \
             pod=~\".+\", container!=\"POD\", container!=\"\"}[1h]))"
        );
        let settings = PrometheusSettings {
            cadvisor_job_name: String::new(),
            container_namespace_label: "ns".to_owned(),
            namespace: Some("a\"b\\".to_owned()),
            ..PrometheusSettings::default()
        };
        assert_eq!(
            Queries::new(&settings).unwrap()[Resource::Memory],
            "max by (ns, pod, container) (container_memory_working_set_bytes{pod=~\".+\", container!=\"POD\", \
             container!=\"\", ns=\"a\\\"b\\\\\"})"
        );
    }

    #[test]
    fn names_that_are_none_are_refused() {
        for name in ["", "a b", "1a", "a}", "é", "a-b"] {
            let settings =
                PrometheusSettings { container_name_label: name.to_owned(), ..PrometheusSettings::default() };
            assert_eq!(Queries::new(&settings).unwrap_err(), SettingsError::Name(name.to_owned()));
        }
    }

    #[test]
    fn durations_are_written_in_one_unit() {
        let cases = [(86_400, "1d"), (3_600, "1h"), (5_400, "90m"), (61, "61s"), (0, "0ms")];
        for (seconds, expected) in cases {
            assert_eq!(duration(Duration::from_secs(seconds)), expected);
        }
        assert_eq!(duration(Duration::from_millis(1_500)), "1500ms");
    }
}
