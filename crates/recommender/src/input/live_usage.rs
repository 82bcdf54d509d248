//! Where the present usage of containers comes from: metrics.k8s.io, which metrics-server and `plumb up` serve.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use futures_util::TryStreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _};
use jiff::Timestamp;
use kube::Client;
use plumb_resize::Quantity;
use plumb_resize::resource::Resource;
use plumb_vpa::namespaces::Namespaces;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::prometheus::{ContainerUsage, Prometheus, PrometheusError, UsageSource as _};
use crate::model::sample::{Discarded, Sample};
use crate::model::time::Time;

/// A source of the present usage of all containers.
pub trait LiveUsage: Send + Sync {
    /// Its name in metrics and logs.
    fn name(&self) -> &'static str;

    /// Reads what containers use now.
    fn read(&self, now: Timestamp) -> BoxFuture<'static, Result<Box<dyn Measurements>, LiveUsageError>>;
}

/// The response of a source.
pub trait Measurements: Send {
    /// Passes each measurement on.
    fn visit(&self, visit: &mut dyn FnMut(Measurement<'_>)) -> Result<(), LiveUsageError>;
}

/// The usage of a resource by a container, or why it is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measurement<'a> {
    /// Namespace of the pod.
    pub namespace: &'a str,
    /// Name of the pod.
    pub pod: &'a str,
    /// Name of the container.
    pub container: &'a str,
    /// The sample, or its error.
    pub sample: Result<Sample, Discarded>,
}

/// Why usage could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LiveUsageError {
    /// The API did not answer.
    #[error("reading metrics.k8s.io: {0}")]
    Request(#[source] kube::Error),
    /// The answer is none.
    #[error("decoding the answer of metrics.k8s.io: {0}")]
    Decode(#[source] serde_json::Error),
    /// The API of external metrics did not answer.
    #[error("reading external.metrics.k8s.io: {0}")]
    External(#[source] kube::Error),
    /// The answer is none.
    #[error("decoding an answer of external.metrics.k8s.io: {0}")]
    DecodeExternal(#[source] serde_json::Error),
    /// Prometheus did not answer.
    #[error(transparent)]
    Prometheus(PrometheusError),
}

/// metrics.k8s.io.
#[derive(Clone)]
pub struct MetricsApi {
    client: Client,
    path: String,
}

impl MetricsApi {
    /// The metrics of the pods of some namespaces. The client has to be allowed to list pods of `metrics.k8s.io`.
    pub fn new(client: Client, namespaces: &Namespaces) -> Self {
        let namespace = namespaces.only().map_or(String::new(), |only| format!("namespaces/{only}/"));
        Self { client, path: format!("/apis/metrics.k8s.io/v1beta1/{namespace}pods") }
    }
}

impl LiveUsage for MetricsApi {
    fn name(&self) -> &'static str {
        "default-metrics-client"
    }

    fn read(&self, _: Timestamp) -> BoxFuture<'static, Result<Box<dyn Measurements>, LiveUsageError>> {
        let Self { client, path } = self.clone();
        async move {
            let request = http::Request::get(path).body(Vec::new());
            let request = request.map_err(|error| LiveUsageError::Request(kube::Error::HttpError(error)))?;
            let answer = client.request_text(request).await.map_err(LiveUsageError::Request)?;
            Ok(Box::new(PodMetricsList(answer)) as Box<dyn Measurements>)
        }
        .boxed()
    }
}

/// The text of a `PodMetricsList`. It is not copied.
struct PodMetricsList(String);

#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow, default)]
    items: Vec<PodMetrics<'a>>,
}

#[derive(Deserialize)]
struct PodMetrics<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow, default)]
    timestamp: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    containers: Option<Vec<ContainerMetrics<'a>>>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct ContainerMetrics<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    /// A value that is no quantity must not make the whole list unreadable.
    #[serde(borrow, default)]
    usage: Option<HashMap<Cow<'a, str>, &'a RawValue>>,
}

impl Measurements for PodMetricsList {
    fn visit(&self, visit: &mut dyn FnMut(Measurement<'_>)) -> Result<(), LiveUsageError> {
        let list: List<'_> = serde_json::from_str(&self.0).map_err(LiveUsageError::Decode)?;
        for pod in &list.items {
            let at = pod.timestamp.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
            let at = at.and_then(|at| Time::try_from(at).ok()).unwrap_or(Time::UNSET);
            for container in pod.containers.iter().flatten() {
                for resource in Resource::ALL {
                    let Some(usage) = container.usage.as_ref().and_then(|usage| usage.get(resource.name()))
                    else {
                        continue;
                    };
                    visit(Measurement {
                        namespace: pod.metadata.namespace.as_deref().unwrap_or_default(),
                        pod: &pod.metadata.name,
                        container: &container.name,
                        sample: sample(at, resource, usage.get()),
                    });
                }
            }
        }
        Ok(())
    }
}

/// A sample as upstream reads it: rounded up to whole millicores and bytes.
pub(crate) fn sample(at: Time, resource: Resource, json: &str) -> Result<Sample, Discarded> {
    let quantity: Quantity = json.trim_matches('"').parse().map_err(|_| Discarded::NotANumber)?;
    if quantity.is_negative() {
        return Err(Discarded::Negative);
    }
    let usage = match resource {
        Resource::Cpu => quantity.saturating_milli(),
        Resource::Memory => quantity.saturating_units(),
    };
    Ok(Sample { at, resource, usage })
}

impl LiveUsage for Prometheus {
    fn name(&self) -> &'static str {
        "prometheus-client"
    }

    fn read(&self, now: Timestamp) -> BoxFuture<'static, Result<Box<dyn Measurements>, LiveUsageError>> {
        let answers = self.latest(now);
        async move {
            let usage: Vec<ContainerUsage> =
                answers.try_collect().await.map_err(LiveUsageError::Prometheus)?;
            Ok(Box::new(usage) as Box<dyn Measurements>)
        }
        .boxed()
    }
}

impl Measurements for Vec<ContainerUsage> {
    fn visit(&self, visit: &mut dyn FnMut(Measurement<'_>)) -> Result<(), LiveUsageError> {
        for ContainerUsage { namespace, pod, container, samples, discarded } in self {
            let samples = samples.iter().copied().map(Ok);
            for sample in samples.chain(discarded.iter().copied().map(Err)) {
                visit(Measurement { namespace, pod, container, sample });
            }
        }
        Ok(())
    }
}

impl<T: LiveUsage + ?Sized> LiveUsage for Arc<T> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn read(&self, now: Timestamp) -> BoxFuture<'static, Result<Box<dyn Measurements>, LiveUsageError>> {
        (**self).read(now)
    }
}
