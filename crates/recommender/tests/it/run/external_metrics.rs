//! Usage from external.metrics.k8s.io.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use plumb_recommender::input::external_metrics::{ExternalMetrics, ExternalMetricsSettings};
use plumb_recommender::shards::Ownership;
use plumb_recommender::{Discarded, Options};
use plumb_resize::resource::Resource;
use serde_json::{Value, json};

use super::bed::{Bed, Running, Setup, conditions};

/// What was asked, as path and selector.
type Asked = Arc<Mutex<Vec<String>>>;

/// An API that answers by metric and pod.
fn api(asked: &Asked, answer: fn(&str, &str) -> Option<Value>) -> Client {
    let asked = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let uri = request.uri().to_string();
        let decoded = uri.replace("%2C", ",").replace("%3D", "=");
        let path = decoded.strip_prefix("/apis/external.metrics.k8s.io/v1beta1/namespaces/").unwrap();
        asked.lock().unwrap().push(path.to_owned());
        let (metric, selector) = path.split_once("?labelSelector=").unwrap();
        let pod = selector.rsplit_once("pod=").unwrap().1;
        let answer = answer(metric.rsplit('/').next().unwrap(), pod);
        async move {
            let (code, body) = match answer {
                Some(items) => (StatusCode::OK, json!({ "kind": "ExternalMetricValueList", "items": items })),
                None => (StatusCode::SERVICE_UNAVAILABLE, json!({ "kind": "Status", "code": 503 })),
            };
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, std::convert::Infallible>(Response::builder().status(code).body(body).unwrap())
        }
    });
    Client::new(service, "default")
}

async fn recommender(bed: &Bed, client: Client) -> Running {
    let settings = ExternalMetricsSettings {
        metrics: BTreeMap::from([
            (Resource::Cpu, "pod_cpu".to_owned()),
            (Resource::Memory, "pod_memory".to_owned()),
        ]),
        container_name_label: "container".to_owned(),
    };
    let usage = Box::new(move |informers: &_, targets: &_| {
        let ownership = Ownership::everything();
        let source =
            ExternalMetrics::new(client, settings, &Options::default(), informers, targets, &ownership);
        Arc::new(source) as Arc<_>
    });
    bed.recommender_with(Setup { usage: Some(usage), ..Setup::default() }).await
}

fn value(container: &str, value: &str) -> Value {
    json!({
        "metricName": "m", "metricLabels": { "container": container, "node": "n" },
        "timestamp": "2026-01-01T00:00:00Z", "value": value,
    })
}

#[tokio::test]
async fn external_metrics_are_read_for_each_pod_of_a_vpa_and_count_for_the_container_of_their_label() {
    let bed = Bed::with_web().await;
    bed.deployment("other").await;
    bed.pod("other-1", "other").await;
    bed.vpa(
        "web-too",
        json!({ "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" } }),
    )
    .await;
    bed.vpa("elsewhere", json!({ "recommenders": [{ "name": "other" }] })).await;
    let asked = Asked::default();
    let client = api(&asked, |metric, pod| {
        assert_eq!(pod, "web-1");
        let unlabelled = json!({ "metricLabels": {}, "timestamp": "2026-01-01T00:00:00Z", "value": "7" });
        Some(match metric {
            "pod_cpu" => json!([value("app", "100m"), value("unknown", "1"), unlabelled]),
            _ => json!([value("app", "500M"), value("app", "much")]),
        })
    });
    let mut running = recommender(&bed, client).await;
    running.once().await;
    // 100 millicores lie in the bucket that ends at 110m, and 500 MB in the one that ends at 511 MB; 15 % are added.
    assert_eq!(bed.targets("web").await["app"], "126m/587804717");
    let mut asked = asked.lock().unwrap().clone();
    asked.sort_unstable();
    assert_eq!(
        asked,
        [
            "default/pod_cpu?labelSelector=app=web,pod=web-1",
            "default/pod_memory?labelSelector=app=web,pod=web-1"
        ]
    );
    let discarded = running.state.read(|state| *state.cluster().discarded()).unwrap();
    assert_eq!((discarded.of(Discarded::UnknownContainer), discarded.of(Discarded::NotANumber)), (1, 1));
}

#[tokio::test]
async fn memory_is_recommended_when_only_memory_is_measured() {
    let bed = Bed::with_web().await;
    let client =
        api(&Asked::default(), |metric, _| (metric == "pod_memory").then(|| json!([value("app", "500M")])));
    let mut running = recommender(&bed, client).await;
    running.once().await;
    assert_eq!(bed.targets("web").await["app"], "-/587804717");
}

#[tokio::test]
async fn a_pod_whose_metric_cannot_be_read_does_not_hide_the_others_and_without_any_the_vpa_stays_as_it_is() {
    let bed = Bed::with_web().await;
    bed.pod("web-2", "web").await;
    let client = api(&Asked::default(), |metric, pod| {
        (pod == "web-1" && metric == "pod_cpu").then(|| json!([value("app", "100m")]))
    });
    let mut running = recommender(&bed, client).await;
    running.once().await;
    assert_eq!(bed.targets("web").await["app"].split('/').next(), Some("126m"));

    let bed = Bed::with_web().await;
    let mut running = recommender(&bed, api(&Asked::default(), |_, _| None)).await;
    running.once().await;
    assert_eq!(bed.targets("web").await.len(), 0);
    assert!(conditions(&bed.get("web").await).contains(&"RecommendationProvided=False".to_owned()));
}
