//! The flags of the recommender, under the names and with the defaults that VPA's recommender has.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use clap::Args;
use plumb_cluster::flags::values::positive_quantity;
use plumb_recommender::input::prometheus::{Authentication, PrometheusSettings};
use plumb_recommender::{AggregationSettings, EstimationSettings, Percentiles};
use plumb_resize::Quantity;
use plumb_resize::resource::PerResource;

/// How usage is aggregated, and how recommendations are made of it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Recommender")]
pub(crate) struct Tuning {
    /// The fraction of usage that is added to it as a safety margin.
    #[arg(long, value_name = "FRACTION", default_value = "0.15", value_parser = non_negative)]
    recommendation_margin_fraction: f64,
    /// The least cpu for all containers of a pod together, in millicores.
    #[arg(long, value_name = "MILLICORES", default_value = "25", value_parser = non_negative)]
    pod_recommendation_min_cpu_millicores: f64,
    /// The least memory for all containers of a pod together, in MiB.
    #[arg(long, value_name = "MIB", default_value = "250", value_parser = non_negative)]
    pod_recommendation_min_memory_mb: f64,
    /// The percentile of cpu usage that the target starts from.
    #[arg(long, value_name = "PERCENTILE", default_value = "0.9", value_parser = fraction)]
    target_cpu_percentile: f64,
    /// The percentile of cpu usage that the lower bound starts from.
    #[arg(long, value_name = "PERCENTILE", default_value = "0.5", value_parser = fraction)]
    recommendation_lower_bound_cpu_percentile: f64,
    /// The percentile of cpu usage that the upper bound starts from.
    #[arg(long, value_name = "PERCENTILE", default_value = "0.95", value_parser = fraction)]
    recommendation_upper_bound_cpu_percentile: f64,
    /// How much history of cpu makes bounds reliable: with less they are further apart.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = positive_time)]
    confidence_interval_cpu: Duration,
    /// The percentile of memory peaks that the target starts from.
    #[arg(long, value_name = "PERCENTILE", default_value = "0.9", value_parser = fraction)]
    target_memory_percentile: f64,
    /// The percentile of memory peaks that the lower bound starts from.
    #[arg(long, value_name = "PERCENTILE", default_value = "0.5", value_parser = fraction)]
    recommendation_lower_bound_memory_percentile: f64,
    /// The percentile of memory peaks that the upper bound starts from.
    #[arg(long, value_name = "PERCENTILE", default_value = "0.95", value_parser = fraction)]
    recommendation_upper_bound_memory_percentile: f64,
    /// How much history of memory makes bounds reliable: with less they are further apart.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = positive_time)]
    confidence_interval_memory: Duration,
    /// Write memory with two decimals of the largest unit. Deprecated: `--round-memory-bytes` rounds.
    #[arg(long, value_name = "true|false", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    humanize_memory: bool,
    /// Round cpu up to a multiple of so many millicores.
    #[arg(long, value_name = "MILLICORES", default_value = "1", value_parser = clap::value_parser!(i64).range(1..))]
    round_cpu_millicores: i64,
    /// Round memory up to a multiple of so many bytes.
    #[arg(long, value_name = "BYTES", default_value = "1", value_parser = clap::value_parser!(i64).range(1..))]
    round_memory_bytes: i64,
    /// The time whose memory peak is one sample.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = positive_time)]
    memory_aggregation_interval: Duration,
    /// The number of memory aggregation intervals without a sample after which the history of a container is dropped.
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(i64).range(1..))]
    memory_aggregation_interval_count: i64,
    /// The age at which a memory peak counts half.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = positive_time)]
    memory_histogram_decay_half_life: Duration,
    /// The age at which a cpu sample counts half.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = positive_time)]
    cpu_histogram_decay_half_life: Duration,
    /// The factor by which memory is raised after an OOM kill.
    #[arg(long, value_name = "FACTOR", default_value = "1.2", value_parser = at_least_one)]
    oom_bump_up_ratio: f64,
    /// The minimum number of bytes by which memory is raised after an OOM kill.
    #[arg(long, value_name = "BYTES", default_value = "104857600", value_parser = non_negative)]
    oom_min_bump_up_bytes: f64,
    /// Round cpu up to whole cores for VPAs whose annotation asks for it.
    #[arg(long, value_name = "true|false", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    cpu_integer_post_processor_enabled: bool,
    /// The most cpu for a container whose policy has no maximum. [default: none]
    #[arg(long, value_name = "CPU", value_parser = positive_quantity)]
    container_recommendation_max_allowed_cpu: Option<Quantity>,
    /// The most memory for a container whose policy has no maximum. [default: none]
    #[arg(long, value_name = "MEMORY", value_parser = positive_quantity)]
    container_recommendation_max_allowed_memory: Option<Quantity>,
}

impl Tuning {
    /// How usage is aggregated.
    pub(crate) fn aggregation(&self) -> AggregationSettings {
        AggregationSettings {
            memory_interval: self.memory_aggregation_interval,
            memory_interval_count: self.memory_aggregation_interval_count,
            memory_half_life: self.memory_histogram_decay_half_life,
            cpu_half_life: self.cpu_histogram_decay_half_life,
            oom_bump_up_ratio: self.oom_bump_up_ratio,
            oom_min_bump_up_bytes: self.oom_min_bump_up_bytes,
        }
    }

    /// How recommendations are made.
    pub(crate) fn estimation(&self) -> EstimationSettings {
        EstimationSettings {
            safety_margin_fraction: self.recommendation_margin_fraction,
            pod_min_cpu_millicores: self.pod_recommendation_min_cpu_millicores,
            pod_min_memory_mb: self.pod_recommendation_min_memory_mb,
            percentiles: PerResource::new(
                Percentiles {
                    target: self.target_cpu_percentile,
                    lower: self.recommendation_lower_bound_cpu_percentile,
                    upper: self.recommendation_upper_bound_cpu_percentile,
                },
                Percentiles {
                    target: self.target_memory_percentile,
                    lower: self.recommendation_lower_bound_memory_percentile,
                    upper: self.recommendation_upper_bound_memory_percentile,
                },
            ),
            confidence_interval: PerResource::new(
                self.confidence_interval_cpu,
                self.confidence_interval_memory,
            ),
            round_up_to: PerResource::new(self.round_cpu_millicores, self.round_memory_bytes),
            humanize_memory: self.humanize_memory,
            integer_cpu: self.cpu_integer_post_processor_enabled,
            max_allowed: PerResource::new(
                self.container_recommendation_max_allowed_cpu,
                self.container_recommendation_max_allowed_memory,
            ),
        }
    }
}

/// Where history comes from, and which names it has there.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Prometheus")]
pub(crate) struct PrometheusFlags {
    /// Accept any certificate of the server.
    #[arg(long, value_name = "true|false", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    prometheus_insecure: bool,
    /// The job that scrapes cAdvisor; empty for any.
    #[arg(long, value_name = "JOB", default_value = "kubernetes-cadvisor")]
    prometheus_cadvisor_job_name: String,
    /// How long a query may take.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = positive_time)]
    prometheus_query_timeout: Duration,
    /// The bearer token. Every process of the machine can read the command line, so prefer the file.
    #[arg(long, value_name = "TOKEN", default_value = "", hide_default_value = true, conflicts_with_all = ["prometheus_bearer_token_file", "username"])]
    prometheus_bearer_token: String,
    /// A file with the bearer token; it is read for each query.
    #[arg(long, value_name = "FILE", conflicts_with = "username")]
    prometheus_bearer_token_file: Option<PathBuf>,
    /// The user of basic authentication. The default is the environment variable `PROMETHEUS_USERNAME`.
    #[arg(long, value_name = "USER", default_value = "", hide_default_value = true)]
    username: String,
    /// The user's password. The default is the environment variable `PROMETHEUS_PASSWORD`.
    #[arg(long, value_name = "PASSWORD", default_value = "", hide_default_value = true)]
    password: String,
    /// How far back history goes.
    #[arg(long, value_name = "TIME", default_value = "8d", value_parser = positive_time)]
    history_length: Duration,
    /// How far apart samples are.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = positive_time)]
    history_resolution: Duration,
    /// The counter of cpu seconds.
    #[arg(long, value_name = "METRIC", default_value = "container_cpu_usage_seconds_total")]
    history_cpu_metric: String,
    /// The gauge of bytes of memory.
    #[arg(long, value_name = "METRIC", default_value = "container_memory_working_set_bytes")]
    history_memory_metric: String,
    /// The label with the namespace of a container.
    #[arg(long, value_name = "LABEL", default_value = "namespace")]
    container_namespace_label: String,
    /// The label with the pod of a container.
    #[arg(long, value_name = "LABEL", default_value = "pod")]
    container_pod_name_label: String,
    /// The label with the name of a container.
    #[arg(long, value_name = "LABEL", default_value = "container")]
    container_name_label: String,
}

impl PrometheusFlags {
    /// How far back history goes.
    pub(crate) fn history_length(&self) -> Duration {
        self.history_length
    }

    /// The settings for a server and a namespace, or all.
    pub(crate) fn settings(&self, address: &str, namespace: Option<&str>) -> PrometheusSettings {
        PrometheusSettings {
            address: address.to_owned(),
            insecure: self.prometheus_insecure,
            authentication: self.authentication(|name| std::env::var(name).unwrap_or_default()),
            query_timeout: self.prometheus_query_timeout,
            cadvisor_job_name: self.prometheus_cadvisor_job_name.clone(),
            history_length: self.history_length,
            history_resolution: self.history_resolution,
            cpu_metric: self.history_cpu_metric.clone(),
            memory_metric: self.history_memory_metric.clone(),
            container_namespace_label: self.container_namespace_label.clone(),
            container_pod_name_label: self.container_pod_name_label.clone(),
            container_name_label: self.container_name_label.clone(),
            namespace: namespace.map(str::to_owned),
            ..PrometheusSettings::default()
        }
    }

    fn authentication(&self, variable: impl Fn(&str) -> String) -> Authentication {
        let or_variable =
            |flag: &str, name: &str| if flag.is_empty() { variable(name) } else { flag.to_owned() };
        if let Some(file) = &self.prometheus_bearer_token_file {
            return Authentication::BearerTokenFile(file.clone());
        }
        if !self.prometheus_bearer_token.is_empty() {
            return Authentication::BearerToken(self.prometheus_bearer_token.clone().into());
        }
        let username = or_variable(&self.username, "PROMETHEUS_USERNAME");
        if username.is_empty() {
            return Authentication::None;
        }
        let password = or_variable(&self.password, "PROMETHEUS_PASSWORD").into();
        Authentication::Basic { username, password }
    }
}

pub(super) fn number(text: &str) -> anyhow::Result<f64> {
    let number: f64 = text.parse().map_err(|_| anyhow!("it must be a number"))?;
    ensure!(number.is_finite(), "it must be a finite number");
    Ok(number)
}

pub(super) fn non_negative(text: &str) -> anyhow::Result<f64> {
    let number = number(text)?;
    ensure!(number >= 0.0, "it must be 0 or more");
    Ok(number)
}

fn at_least_one(text: &str) -> anyhow::Result<f64> {
    let number = number(text)?;
    ensure!(number >= 1.0, "it must be 1 or more");
    Ok(number)
}

pub(super) fn fraction(text: &str) -> anyhow::Result<f64> {
    let number = number(text)?;
    ensure!((0.0..=1.0).contains(&number), "it must be from 0 to 1");
    Ok(number)
}

/// A time as Go writes it, such as `24h` or `1h30m`; days and weeks (`8d`), as Prometheus writes them, too.
pub(super) fn positive_time(text: &str) -> anyhow::Result<Duration> {
    const DAY: u64 = 24 * 60 * 60;
    let whole = |suffix, seconds: u64| {
        let count: u64 = text.strip_suffix(suffix)?.parse().ok()?;
        count.checked_mul(seconds).map(Duration::from_secs)
    };
    let time = if let Some(time) = whole('d', DAY).or_else(|| whole('w', 7 * DAY)) {
        time
    } else {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let nanos = plumb_go::duration::parse(text).map_err(|error| {
            if is_number { anyhow!("it needs a unit: write {text}s or {text}m") } else { error.into() }
        })?;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or_default())
    };
    ensure!(!time.is_zero(), "it must be more than 0");
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        tuning: Tuning,
        #[command(flatten)]
        prometheus: PrometheusFlags,
    }

    #[test]
    fn without_flags_prometheus_is_queried_with_the_default_settings() {
        let flags = Flags::try_parse_from(["plumb"]).expect("no flag is needed");
        let expected = PrometheusSettings { address: "http://p".to_owned(), ..PrometheusSettings::default() };
        assert_eq!(flags.prometheus.settings("http://p", None), expected);
    }

    #[test]
    fn the_password_may_come_from_the_environment() {
        let flags = Flags::try_parse_from(["plumb", "--username", "ann"]).expect("a user");
        let found = flags
            .prometheus
            .authentication(|name| if name == "PROMETHEUS_PASSWORD" { "x" } else { "" }.to_owned());
        let expected = Authentication::Basic { username: "ann".to_owned(), password: "x".to_owned().into() };
        assert_eq!(found, expected);
        assert!(Flags::try_parse_from(["plumb", "--username=a", "--prometheus-bearer-token=t"]).is_err());
    }

    #[test]
    fn without_flags_the_settings_are_the_engine_s_defaults() {
        let flags = Flags::try_parse_from(["plumb"]).expect("no flag is needed");
        assert_eq!(flags.tuning.aggregation(), AggregationSettings::default());
        assert_eq!(flags.tuning.estimation(), EstimationSettings::default());
    }

    #[test]
    fn values_that_make_no_sense_are_refused() {
        for wrong in [
            "--target-cpu-percentile=90",
            "--target-cpu-percentile=NaN",
            "--recommendation-margin-fraction=-1",
            "--oom-bump-up-ratio=0.5",
            "--confidence-interval-cpu=0s",
            "--confidence-interval-cpu=-1h",
            "--confidence-interval-cpu=1",
            "--round-cpu-millicores=0",
            "--container-recommendation-max-allowed-cpu=much",
            "--container-recommendation-max-allowed-cpu=-1",
            "--container-recommendation-max-allowed-memory=0",
        ] {
            assert!(Flags::try_parse_from(["plumb", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_written_as_in_go_or_in_days() {
        for (text, seconds) in [("24h", 86_400), ("1h30m", 5_400), ("8d", 691_200), ("2w", 1_209_600)] {
            assert_eq!(positive_time(text).unwrap(), Duration::from_secs(seconds), "{text}");
        }
    }
}
