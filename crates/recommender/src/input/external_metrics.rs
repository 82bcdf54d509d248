//! external.metrics.k8s.io as the source of present usage, for clusters whose metrics come from an adapter.
//!
//! Such an API has no list of all pods: for each pod that a VPA selects and for each resource there is a request for a metric,
//! with the VPA's selector and `pod=NAME`. A value belongs to the container that one of its labels names. Upstream gives
//! everything up at the first request that fails; here the values of the others count.

use std::collections::BTreeMap;

use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{self, StreamExt as _};
use jiff::Timestamp;
use kube::core::{Expression, Selector, SelectorExt as _};
use kube::{Client, ResourceExt as _};
use plumb_resize::resource::Resource;
use plumb_vpa::informers::Informers;
use plumb_vpa::target::Targets;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::live_usage::{LiveUsage, LiveUsageError, Measurement, Measurements, sample};
use super::prometheus::form;
use crate::VpaKey;
use crate::model::sample::{Discarded, Sample};
use crate::model::time::Time;
use crate::options::Options;
use crate::shards::Ownership;

/// How many requests are under way at once.
const WORKERS: usize = 10;
/// After how many failures, and no success, the API is taken to be unavailable.
const ENOUGH_FAILURES: usize = 2 * WORKERS;

/// Which metrics are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalMetricsSettings {
    /// The metric of each resource (`--external-metrics-cpu-metric`, `--external-metrics-memory-metric`). One without a metric
    /// is not measured.
    pub metrics: BTreeMap<Resource, String>,
    /// The label of a value that names the container (`--container-name-label`).
    pub container_name_label: String,
}

/// external.metrics.k8s.io.
#[derive(Clone)]
pub struct ExternalMetrics {
    client: Client,
    settings: ExternalMetricsSettings,
    options: Options,
    informers: Informers,
    targets: Targets,
    ownership: Ownership,
}

/// The queries for a pod.
struct Query {
    namespace: String,
    pod: String,
    resource: Resource,
    uri: String,
}

/// The usage of a container.
struct Measured {
    namespace: String,
    pod: String,
    container: String,
    sample: Result<Sample, Discarded>,
}

#[derive(Deserialize)]
struct ValueList<'a> {
    #[serde(borrow, default)]
    items: Vec<Item<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item<'a> {
    #[serde(default)]
    metric_labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    timestamp: Option<String>,
    #[serde(borrow, default)]
    value: Option<&'a RawValue>,
}

impl ExternalMetrics {
    /// The metrics of the pods of a recommender's VPAs. The client has to be allowed to get them.
    pub fn new(
        client: Client,
        settings: ExternalMetricsSettings,
        options: &Options,
        informers: &Informers,
        targets: &Targets,
        ownership: &Ownership,
    ) -> Self {
        let (options, informers) = (options.clone(), informers.clone());
        Self { client, settings, options, informers, targets: targets.clone(), ownership: ownership.clone() }
    }

    /// The queries: each pod once, though several VPAs may select it.
    async fn queries(&self) -> Vec<Query> {
        let mut queries: BTreeMap<(String, String), Selector> = BTreeMap::new();
        for vpa in self.informers.vpas.all() {
            let Some(namespace) = vpa.namespace() else { continue };
            if !self.options.namespaces.contains(&namespace)
                || !self.options.is_chosen_by(&vpa.spec)
                || !self.ownership.owns(&VpaKey::new(&namespace, &vpa.name_any()))
            {
                continue;
            }
            // A condition of the VPA reports that it has none.
            let Ok(target) = self.targets.of_vpa(&namespace, &vpa.spec.target_ref).await else { continue };
            for pod in self.informers.pods.in_namespace(&namespace) {
                if target.selector.matches(pod.labels()) {
                    let at = (namespace.clone(), pod.name_any());
                    queries.entry(at).or_insert_with(|| (*target.selector).clone());
                }
            }
        }
        let of_pod = |((namespace, pod), selector): ((String, String), Selector)| {
            let mut selector = selector;
            selector.extend([Expression::Equal("pod".to_owned(), pod.clone())]);
            let query = form(&[("labelSelector", &selector.to_string())]);
            let metrics = self.settings.metrics.iter().map(move |(&resource, metric)| Query {
                uri: format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{metric}?{query}"),
                namespace: namespace.clone(),
                pod: pod.clone(),
                resource,
            });
            metrics.collect::<Vec<_>>()
        };
        queries.into_iter().flat_map(of_pod).collect()
    }

    async fn ask(&self, query: Query) -> Result<Vec<Measured>, LiveUsageError> {
        let request = http::Request::get(&query.uri).body(Vec::new());
        let request = request.map_err(|error| LiveUsageError::External(kube::Error::HttpError(error)))?;
        let answer = self.client.request_text(request).await.map_err(LiveUsageError::External)?;
        let list: ValueList<'_> = serde_json::from_str(&answer).map_err(LiveUsageError::DecodeExternal)?;
        let measured = list.items.into_iter().filter_map(|item| {
            let container = item.metric_labels?.remove(&self.settings.container_name_label)?;
            let at = item.timestamp.and_then(|text| text.parse::<Timestamp>().ok());
            let at = at.and_then(|at| Time::try_from(at).ok()).unwrap_or(Time::UNSET);
            let sample = sample(at, query.resource, item.value?.get());
            Some(Measured { namespace: query.namespace.clone(), pod: query.pod.clone(), container, sample })
        });
        Ok(measured.collect())
    }
}

impl LiveUsage for ExternalMetrics {
    fn name(&self) -> &'static str {
        "external-metrics-client"
    }

    fn read(&self, _: Timestamp) -> BoxFuture<'static, Result<Box<dyn Measurements>, LiveUsageError>> {
        let this = self.clone();
        async move {
            let queries = this.queries().await;
            let (mut measured, mut answers, mut failures) = (Vec::new(), 0_usize, 0_usize);
            let mut asked = stream::iter(queries).map(|query| this.ask(query)).buffer_unordered(WORKERS);
            let mut failure = None;
            while let Some(answer) = asked.next().await {
                match answer {
                    Ok(values) => {
                        answers += 1;
                        measured.extend(values);
                    }
                    Err(error) => {
                        failures += 1;
                        failure.get_or_insert(error);
                    }
                }
                if answers == 0 && failures >= ENOUGH_FAILURES {
                    break;
                }
            }
            match failure {
                Some(error) if answers == 0 => return Err(error),
                Some(error) => tracing::warn!(%error, failures, "some external metrics cannot be read"),
                None => {}
            }
            Ok(Box::new(measured) as Box<dyn Measurements>)
        }
        .boxed()
    }
}

impl Measurements for Vec<Measured> {
    fn visit(&self, visit: &mut dyn FnMut(Measurement<'_>)) -> Result<(), LiveUsageError> {
        for Measured { namespace, pod, container, sample } in self {
            visit(Measurement { namespace, pod, container, sample: *sample });
        }
        Ok(())
    }
}
