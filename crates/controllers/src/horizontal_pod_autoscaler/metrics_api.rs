//! The three metrics APIs: `metrics.k8s.io`, `custom.metrics.k8s.io` and `external.metrics.k8s.io`.
//!
//! Whatever serves them is not this crate's: metrics-server, an adapter, or the API server of Plumb, which serves the first.
//! An API that is not there is an error in client-go's words, which end up in conditions and events.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use k8s_openapi::api::autoscaling::v2::{CrossVersionObjectReference, MetricIdentifier, MetricSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use k8s_openapi::jiff::SignedDuration;
use kube::Client;
use kube::core::{Selector, Status};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use plumb_controller_runtime::RestMapper;
use plumb_controller_runtime::api_error::is_not_served;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::calculator::Sample;
use super::metric::{Reading, milli};

const RESOURCE_METRICS: &str = "metrics.k8s.io";
const CUSTOM_METRICS: &str = "custom.metrics.k8s.io";
const EXTERNAL_METRICS: &str = "external.metrics.k8s.io";
/// The versions of custom metrics that can be read.
const CUSTOM_VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
/// The window of a custom metric that names none, as upstream assumes it.
const CUSTOM_WINDOW: SignedDuration = SignedDuration::from_mins(1);
/// What stays as it is in a segment of a path, and in a value of a query.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Reads metrics of one reconcile: what several metrics of an autoscaler need is requested once.
pub(super) struct MetricsReader<'a> {
    client: &'a Client,
    mapper: &'a RestMapper,
    namespace: &'a str,
    /// The selector of the pods, as text.
    selector: &'a str,
    /// The usage of the pods, once it was read.
    usage: Option<Result<Vec<PodMetrics>, String>>,
    /// The version of custom metrics, once it was read.
    custom_version: Option<Result<String, String>>,
}

#[derive(Clone, Deserialize)]
struct List<T> {
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

#[derive(Clone, Deserialize)]
struct Name {
    #[serde(default)]
    name: String,
}

#[derive(Clone, Deserialize)]
struct PodMetrics {
    metadata: Name,
    timestamp: Time,
    #[serde(default)]
    window: String,
    #[serde(default)]
    containers: Vec<ContainerMetrics>,
}

#[derive(Clone, Deserialize)]
struct ContainerMetrics {
    name: String,
    #[serde(default)]
    usage: BTreeMap<String, Quantity>,
}

/// A custom metric: `v1beta1` calls the window `window`, `v1beta2` `windowSeconds`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetricValue {
    described_object: Name,
    timestamp: Time,
    #[serde(alias = "window")]
    window_seconds: Option<i64>,
    value: Quantity,
}

#[derive(Deserialize)]
struct ExternalMetricValue {
    value: Quantity,
}

/// What a request is about, for its error.
struct About<'a> {
    group: &'a str,
    resource: &'a str,
    name: &'a str,
}

impl<'a> MetricsReader<'a> {
    /// Reads metrics of pods of a namespace by this selector.
    pub(super) fn new(
        client: &'a Client,
        mapper: &'a RestMapper,
        namespace: &'a str,
        selector: &'a str,
    ) -> Self {
        Self { client, mapper, namespace, selector, usage: None, custom_version: None }
    }

    /// Reads what a metric needs.
    pub(super) async fn read(&mut self, metric: &MetricSpec) -> Result<Reading, String> {
        if let Some(resource) = &metric.resource {
            self.usage(&resource.name, None).await
        } else if let Some(container) = &metric.container_resource {
            self.usage(&container.name, Some(&container.container)).await
        } else if let Some(pods) = &metric.pods {
            self.of_pods(&pods.metric).await.map_err(custom)
        } else if let Some(object) = &metric.object {
            self.of_object(&object.described_object, &object.metric).await.map_err(custom)
        } else if let Some(external) = &metric.external {
            self.external(&external.metric).await
        } else {
            Err("there is no source".to_owned())
        }
    }

    async fn usage(&mut self, resource: &str, container: Option<&str>) -> Result<Reading, String> {
        if self.usage.is_none() {
            self.usage = Some(self.read_usage().await);
        }
        let Some(Ok(pods)) = &self.usage else {
            // It was read above.
            return Err(self.usage.clone().and_then(Result::err).unwrap_or_default());
        };
        Ok(Reading::Pods(
            pods.iter()
                .filter_map(|pod| Some((pod.metadata.name.clone(), pod.sample(resource, container)?)))
                .collect(),
        ))
    }

    async fn read_usage(&self) -> Result<Vec<PodMetrics>, String> {
        let path = format!("/apis/{RESOURCE_METRICS}/v1beta1/namespaces/{}/pods", segment(self.namespace));
        let about = About { group: RESOURCE_METRICS, resource: "pods", name: "" };
        let list: Result<List<PodMetrics>, _> =
            get(self.client, query(path, &[("labelSelector", self.selector)]), &about).await;
        match list {
            Err(error) => Err(format!("unable to fetch metrics from resource metrics API: {error}")),
            Ok(list) if list.items.is_empty() => {
                Err("no metrics returned from resource metrics API".to_owned())
            }
            Ok(list) => Ok(list.items),
        }
    }

    async fn of_pods(&mut self, metric: &MetricIdentifier) -> Result<Reading, Failure> {
        let version = self.custom_version().await?;
        let path = format!(
            "/apis/{CUSTOM_METRICS}/{version}/namespaces/{}/pods/*/{}",
            segment(self.namespace),
            segment(&metric.name)
        );
        let of_metric = selector_text(metric.selector.as_ref())?;
        let path = query(path, &[("labelSelector", self.selector), ("metricLabelSelector", &of_metric)]);
        let about = About { group: CUSTOM_METRICS, resource: "pods", name: "*" };
        let list: List<MetricValue> = get(self.client, path, &about).await?;
        if list.items.is_empty() {
            return Err(Failure::NoMetrics);
        }
        let sample = |value: MetricValue| {
            let window = value.window_seconds.map_or(CUSTOM_WINDOW, SignedDuration::from_secs);
            let sample = Sample { at: value.timestamp.0, window, milli: milli(&value.value) };
            (value.described_object.name, sample)
        };
        Ok(Reading::Pods(list.items.into_iter().map(sample).collect()))
    }

    async fn of_object(
        &mut self,
        object: &CrossVersionObjectReference,
        metric: &MetricIdentifier,
    ) -> Result<Reading, Failure> {
        let version = self.custom_version().await?;
        let base = format!("/apis/{CUSTOM_METRICS}/{version}/namespaces/{}", segment(self.namespace));
        let api_version = object.api_version.as_deref().unwrap_or_default();
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let (resource, name, path) = if group.is_empty() && object.kind == "Namespace" {
            // The namespace is that of the autoscaler, whatever the reference names.
            let path = format!("{base}/metrics/{}", segment(&metric.name));
            ("metrics".to_owned(), &metric.name, path)
        } else {
            let resource = self.resource(group, &object.kind).await?;
            let path =
                format!("{base}/{}/{}/{}", segment(&resource), segment(&object.name), segment(&metric.name));
            (resource, &object.name, path)
        };
        let of_metric = selector_text(metric.selector.as_ref())?;
        let path = query(path, &[("metricLabelSelector", &of_metric)]);
        let about = About { group: CUSTOM_METRICS, resource: &resource, name };
        let list: List<MetricValue> = get(self.client, path, &about).await?;
        match &*list.items {
            [value] => Ok(Reading::Values(vec![milli(&value.value)])),
            values => Err(Failure::Request(format!(
                "the custom metrics API server returned {} results when we asked for exactly one",
                values.len()
            ))),
        }
    }

    /// The resource of a kind, with its group.
    async fn resource(&self, group: &str, kind: &str) -> Result<String, Failure> {
        let found = self.mapper.mapping(self.client, group, kind).await;
        let of_kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let unmapped =
            |why: String| Failure::Request(format!("unable to map kind {of_kind} to resource: {why}"));
        let found = found.map_err(|error| unmapped(message(&error)))?;
        let found = found.ok_or_else(|| unmapped(no_match(group, kind)))?;
        let plural = found.plural;
        Ok(if group.is_empty() { plural } else { format!("{plural}.{group}") })
    }

    async fn custom_version(&mut self) -> Result<String, Failure> {
        if self.custom_version.is_none() {
            self.custom_version = Some(self.read_custom_version().await);
        }
        self.custom_version.clone().unwrap_or_else(|| Err(String::new())).map_err(Failure::Request)
    }

    async fn read_custom_version(&self) -> Result<String, String> {
        let groups = self.client.list_api_groups().await.map_err(|error| message(&error))?.groups;
        let group = groups.into_iter().find(|group| group.name == CUSTOM_METRICS);
        let group = group.ok_or_else(|| format!("no custom metrics API ({CUSTOM_METRICS}) registered"))?;
        let preferred = group.preferred_version.into_iter();
        let mut versions = preferred.chain(group.versions).map(|version| version.version);
        let known = versions.find(|version| CUSTOM_VERSIONS.contains(&&**version));
        known.ok_or_else(|| "no known available metric versions found".to_owned())
    }

    async fn external(&self, metric: &MetricIdentifier) -> Result<Reading, String> {
        let (namespace, name) = (segment(self.namespace), segment(&metric.name));
        let path = format!("/apis/{EXTERNAL_METRICS}/v1beta1/namespaces/{namespace}/{name}");
        let unread = |error: Failure| match error {
            Failure::NoMetrics => "no metrics returned from external metrics API".to_owned(),
            Failure::Request(error) => {
                format!("unable to fetch metrics from external metrics API: {error}")
            }
        };
        let of_metric = selector_text(metric.selector.as_ref()).map_err(unread)?;
        let about = About { group: EXTERNAL_METRICS, resource: &metric.name, name: "" };
        let list: Result<List<ExternalMetricValue>, _> =
            get(self.client, query(path, &[("labelSelector", &of_metric)]), &about).await;
        let list = list.map_err(|error| unread(error.into()))?;
        if list.items.is_empty() {
            return Err(unread(Failure::NoMetrics));
        }
        Ok(Reading::Values(list.items.iter().map(|value| milli(&value.value)).collect()))
    }
}

impl PodMetrics {
    /// The usage of a pod or of one of its containers; `None` if it is incomplete.
    fn sample(&self, resource: &str, container: Option<&str>) -> Option<Sample> {
        let usage = |of: &ContainerMetrics| Some(milli(of.usage.get(resource)?));
        let milli = match container {
            Some(name) => usage(self.containers.iter().find(|container| container.name == name)?)?,
            None if self.containers.is_empty() => return None,
            None => {
                let all: Option<Vec<i64>> = self.containers.iter().map(usage).collect();
                all?.into_iter().fold(0, i64::saturating_add)
            }
        };
        let window = plumb_go::duration::parse(&self.window).unwrap_or_default();
        Some(Sample { at: self.timestamp.0, window: SignedDuration::from_nanos(window), milli })
    }
}

/// Why a custom metric is not known.
enum Failure {
    NoMetrics,
    Request(String),
}

impl From<String> for Failure {
    fn from(error: String) -> Self {
        Self::Request(error)
    }
}

fn custom(failure: Failure) -> String {
    match failure {
        Failure::NoMetrics => "no metrics returned from custom metrics API".to_owned(),
        Failure::Request(error) => format!("unable to fetch metrics from custom metrics API: {error}"),
    }
}

fn selector_text(selector: Option<&LabelSelector>) -> Result<String, Failure> {
    let Some(selector) = selector else { return Ok(String::new()) };
    let selector = Selector::try_from(selector.clone());
    selector.map(|selector| selector.to_string()).map_err(|error| Failure::Request(error.to_string()))
}

fn segment(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

fn query(path: String, parameters: &[(&str, &str)]) -> String {
    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
    let all: Vec<_> = given.map(|(name, value)| format!("{name}={}", segment(value))).collect();
    if all.is_empty() { path } else { format!("{path}?{}", all.join("&")) }
}

/// Sends a request, and says what went wrong as client-go does.
fn get<'a, T: DeserializeOwned>(
    client: &'a Client,
    path: String,
    about: &'a About<'a>,
) -> BoxFuture<'a, Result<T, String>> {
    Box::pin(async move {
        let request = http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
        client.request(request).await.map_err(|error| about.message(&error))
    })
}

/// The message of an error of the API.
pub(super) fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}

/// The error for a kind that no resource serves.
pub(super) fn no_match(group: &str, kind: &str) -> String {
    format!("no matches for kind {kind:?} in group {group:?}")
}

impl About<'_> {
    fn message(&self, error: &kube::Error) -> String {
        match error {
            kube::Error::Api(status) if is_generic(status) => {
                let Self { group, resource, name } = self;
                let name = if name.is_empty() { String::new() } else { format!(" {name}") };
                format!("{} (get {resource}.{group}{name})", generic_message(status))
            }
            error => message(error),
        }
    }
}

/// The reason that kube gives a response that is no `Status`.
const UNPARSED: &str = "Failed to parse error data";

/// Whether a response says nothing but its code: a path that is not served, or an API behind the aggregation layer that does
/// not respond.
pub(super) fn is_generic(status: &Status) -> bool {
    status.reason == UNPARSED || is_not_served(status)
}

/// What client-go makes of such a response.
pub(super) fn generic_message(status: &Status) -> String {
    match status.code {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => status.message.clone(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the request"
            .to_owned(),
        500.. => {
            let message = &status.message;
            format!("an error on the server ({message:?}) has prevented the request from succeeding")
        }
        code => format!("the server responded with the status code {code} but did not return more information"),
    }
}
