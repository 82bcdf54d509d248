//! Usage from Prometheus: the history at start, a live source, and reports over a cluster's past.
//!
//! ```text
//!   history ──▶ windows of time ──▶ POST /api/v1/query_range ──▶ body, parsed as it arrives ──▶ stream of samples
//!                  ▲      │ too large: half as long
//!                  └──────┘ no answer: again, after a backoff, a few times
//! ```
//!
//! The answer for a whole cluster can have hundreds of megabytes. It is never in memory as a whole: each window of time is
//! one query, and its answer is parsed while it arrives. The order of the samples of a container is that of their times.
//!
//! A window that fails half-way is queried again, so that a sample can come twice; the model counts none of a container that is
//! not newer than its last one.

mod error;
mod http;
mod query;
mod response;
mod settings;
mod window;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use jiff::Timestamp;
use kube::Client;
use plumb_resize::resource::Resource;
use plumb_supervise::{Backoff, Exponential, system_random};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub use error::PrometheusError;
pub(crate) use http::form;
use http::{Connection, Request};
pub use query::PromQl;
use query::Queries;
pub use response::Labels;
use response::Point;
pub use settings::{Authentication, PrometheusSettings, Secret, SettingsError};
use window::Windows;

use crate::metrics::PrometheusClientMetrics;
use crate::{Discarded, Sample, Time};

/// How many items are ahead of the reader of a stream.
const AHEAD: usize = 16;
/// How often a query is repeated that got no answer.
const RETRIES: u32 = 4;
/// How long to wait between two attempts.
const DELAYS: Exponential = Exponential::new(Duration::from_millis(500), Duration::from_secs(10));

/// Usage of one container: a part of its samples, in the order of their times.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerUsage {
    /// Namespace of the pod.
    pub namespace: Arc<str>,
    /// Name of the pod.
    pub pod: Arc<str>,
    /// Name of the container.
    pub container: Arc<str>,
    /// Its usage.
    pub samples: Vec<Sample>,
    /// How many values were none that could be measured.
    pub discarded: Vec<Discarded>,
}

/// Labels of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLabels {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Its labels.
    pub labels: Labels,
}

/// Where usage of containers comes from, past and present.
pub trait UsageSource: Send + Sync {
    /// The usage of all containers up to a time, for as long as the source is to go back.
    fn history(&self, until: Timestamp) -> Answers<ContainerUsage>;

    /// The last usage of all containers.
    fn latest(&self, at: Timestamp) -> Answers<ContainerUsage>;
}

/// A Prometheus server, or another one with its API: Thanos, Mimir, `VictoriaMetrics`.
#[derive(Clone, Debug)]
pub struct Prometheus {
    server: Arc<Server>,
}

#[derive(Debug)]
struct Server {
    client: DebugClient,
    settings: PrometheusSettings,
    queries: Queries,
    delays: Exponential,
    metrics: Arc<PrometheusClientMetrics>,
}

/// A client whose `Debug` shows no credentials.
struct DebugClient(Client);

impl std::fmt::Debug for DebugClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl Prometheus {
    /// A server by its settings. It is not connected to yet. A TLS provider must be installed, as for any client.
    pub fn new(settings: PrometheusSettings) -> Result<Self, PrometheusError> {
        Self::with(settings, DELAYS, Arc::default())
    }

    /// The same with other delays between attempts.
    pub fn with_delays(settings: PrometheusSettings, delays: Exponential) -> Result<Self, PrometheusError> {
        Self::with(settings, delays, Arc::default())
    }

    /// The same with requests counted.
    pub fn with_metrics(
        settings: PrometheusSettings,
        metrics: Arc<PrometheusClientMetrics>,
    ) -> Result<Self, PrometheusError> {
        Self::with(settings, DELAYS, metrics)
    }

    fn with(
        settings: PrometheusSettings,
        delays: Exponential,
        metrics: Arc<PrometheusClientMetrics>,
    ) -> Result<Self, PrometheusError> {
        let queries = Queries::new(&settings)?;
        let client = http::client(&settings)?;
        let server = Server { client: DebugClient(client), settings, queries, delays, metrics };
        Ok(Self { server: Arc::new(server) })
    }

    /// How long to wait between two attempts.
    pub(crate) fn delays(&self) -> Exponential {
        self.server.delays
    }

    /// The series of an instant query, each with its value.
    pub fn instant(&self, query: String, at: Timestamp) -> Answers<(Labels, f64)> {
        let server = self.server.clone();
        Answers::from(async move |out| {
            let request = Request::instant(query, at, server.settings.query_timeout);
            let convert =
                |labels: &Labels, points: &[Point]| points.last().map(|point| (labels.clone(), point.value));
            server.repeat(&request, &out, convert).await
        })
    }

    /// Labels of pods, from the metric that has them. It may be an instant vector or a range vector.
    pub fn pod_labels(&self, at: Timestamp) -> Answers<PodLabels> {
        let server = self.server.clone();
        Answers::from(async move |out| {
            let request = Request::instant(
                server.settings.metric_for_pod_labels.clone(),
                at,
                server.settings.query_timeout,
            );
            let settings = server.settings.clone();
            let convert = move |labels: &Labels, _: &[Point]| settings.pod_labels(labels);
            server.repeat(&request, &out, convert).await
        })
    }

    /// Why there is no usage: which settings do not fit the series of the server.
    pub async fn why_empty(&self, at: Timestamp) -> Result<String, PrometheusError> {
        let settings = &self.server.settings;
        let metric = &settings.cpu_metric;
        let jobs = self.instant(query::jobs(metric), at).collect().await?;
        let jobs: Vec<&str> =
            jobs.iter().map(|(labels, _)| labels.get("job").map_or("", String::as_str)).collect();
        let wanted = &settings.cadvisor_job_name;
        Ok(if jobs.is_empty() {
            format!("it has no metric {metric} at {at}")
        } else if !wanted.is_empty() && !jobs.contains(&wanted.as_str()) {
            let jobs = jobs.join(", ");
            format!(
                "its metric {metric} has no job {wanted:?}, but {jobs}: --prometheus-cadvisor-job-name chooses"
            )
        } else {
            format!(
                "no series of its metric {metric} has the labels {}, {} and {}: flags such as --container-name-label choose",
                settings.container_namespace_label,
                settings.container_pod_name_label,
                settings.container_name_label
            )
        })
    }
}

impl UsageSource for Prometheus {
    fn history(&self, until: Timestamp) -> Answers<ContainerUsage> {
        let server = self.server.clone();
        Answers::from(async move |out| {
            for resource in Resource::ALL {
                server.history(resource, until, &out).await?;
            }
            Ok(())
        })
    }

    fn latest(&self, at: Timestamp) -> Answers<ContainerUsage> {
        let server = self.server.clone();
        Answers::from(async move |out| {
            for resource in Resource::ALL {
                let request =
                    Request::instant(server.queries[resource].clone(), at, server.settings.query_timeout);
                server.repeat(&request, &out, server.usage(resource)).await?;
            }
            Ok(())
        })
    }
}

impl Server {
    /// Queries one resource, a window after the other.
    async fn history(
        &self,
        resource: Resource,
        until: Timestamp,
        out: &Out<ContainerUsage>,
    ) -> Result<(), PrometheusError> {
        let settings = &self.settings;
        let mut windows = Windows::new(until, settings.history_length, settings.history_resolution);
        let mut backoff = Backoff::new(self.delays).with_jitter(0.3, system_random());
        while let Some(window) = windows.next_window() {
            let request = Request::range(&self.queries[resource], window, settings.query_timeout);
            match self.ask(&request, out, self.usage(resource)).await {
                Ok(()) => {
                    windows.done(window);
                    backoff.reset();
                }
                Err(PrometheusError::Abandoned) => return Ok(()),
                Err(error) if error.is_too_large() && window.points() > 1 => {
                    tracing::debug!(%error, points = window.points(), "asking Prometheus for a shorter window");
                    windows.halve(window);
                }
                Err(error) => retry(&mut backoff, error).await?,
            }
        }
        Ok(())
    }

    /// Sends a query, with a few retries.
    async fn repeat<T: Send + 'static>(
        &self,
        request: &Request,
        out: &Out<T>,
        convert: impl Fn(&Labels, &[Point]) -> Option<T> + Clone + Send + 'static,
    ) -> Result<(), PrometheusError> {
        let mut backoff = Backoff::new(self.delays).with_jitter(0.3, system_random());
        loop {
            match self.ask(request, out, convert.clone()).await {
                Ok(()) | Err(PrometheusError::Abandoned) => return Ok(()),
                Err(error) => retry(&mut backoff, error).await?,
            }
        }
    }

    async fn ask<T: Send + 'static>(
        &self,
        request: &Request,
        out: &Out<T>,
        convert: impl Fn(&Labels, &[Point]) -> Option<T> + Send + 'static,
    ) -> Result<(), PrometheusError> {
        let connection = Connection {
            client: &self.client.0,
            authentication: &self.settings.authentication,
            metrics: &self.metrics,
        };
        http::ask(connection, request, out.clone(), convert).await
    }

    /// Makes samples of the series of a resource.
    fn usage(
        &self,
        resource: Resource,
    ) -> impl Fn(&Labels, &[Point]) -> Option<ContainerUsage> + Clone + use<> {
        let settings = self.settings.clone();
        move |labels, points| {
            let mut usage = ContainerUsage {
                namespace: labels.get(&settings.container_namespace_label)?.as_str().into(),
                pod: labels.get(&settings.container_pod_name_label)?.as_str().into(),
                container: labels.get(&settings.container_name_label)?.as_str().into(),
                samples: Vec::with_capacity(points.len()),
                discarded: Vec::new(),
            };
            for point in points {
                match Sample::from_base_units(Time::from_unix_nanos(point.at), resource, point.value) {
                    Ok(sample) => usage.samples.push(sample),
                    Err(reason) => usage.discarded.push(reason),
                }
            }
            Some(usage)
        }
    }
}

/// Waits before the next attempt, unless there is to be none.
async fn retry(backoff: &mut Backoff, error: PrometheusError) -> Result<(), PrometheusError> {
    if !error.is_transient() || backoff.failures() >= RETRIES {
        return Err(error);
    }
    tracing::warn!(%error, "Prometheus did not answer; asking again");
    backoff.wait().await;
    Ok(())
}

type Out<T> = mpsc::Sender<Result<T, PrometheusError>>;

/// The response of a server, as it arrives. It ends after the first error. Dropping it ends the query.
#[derive(Debug)]
pub struct Answers<T> {
    received: mpsc::Receiver<Result<T, PrometheusError>>,
    task: JoinHandle<()>,
}

impl<T: Send + 'static> Answers<T> {
    fn from<F: Future<Output = Result<(), PrometheusError>> + Send + 'static>(
        work: impl FnOnce(Out<T>) -> F,
    ) -> Self {
        let (out, received) = mpsc::channel(AHEAD);
        let work = work(out.clone());
        let task = tokio::spawn(async move {
            if let Err(error) = work.await {
                // The receiver may be dropped already.
                let _ = out.send(Err(error)).await;
            }
        });
        Self { received, task }
    }

    /// The next item; none at the end.
    pub async fn next(&mut self) -> Option<Result<T, PrometheusError>> {
        self.received.recv().await
    }

    /// All items.
    pub async fn collect(mut self) -> Result<Vec<T>, PrometheusError> {
        let mut items = Vec::new();
        while let Some(item) = self.next().await {
            items.push(item?);
        }
        Ok(items)
    }
}

impl<T> Stream for Answers<T> {
    type Item = Result<T, PrometheusError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.received.poll_recv(cx)
    }
}

impl<T> Drop for Answers<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}
