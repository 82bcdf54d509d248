//! What metrics.k8s.io answers, however odd.

use http::{Request, Response};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use plumb_recommender::input::live_usage::{LiveUsage as _, LiveUsageError, MetricsApi};
use plumb_recommender::{Discarded, Sample};
use plumb_resize::resource::Resource;
use plumb_vpa::namespaces::Namespaces;
use serde_json::json;

/// A client of a server that answers every request the same, and the path that it was asked.
fn answering(text: String) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let text = text.clone();
        async move {
            assert!(request.uri().path().starts_with("/apis/metrics.k8s.io/v1beta1/"), "{}", request.uri());
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(text.into_bytes())))
        }
    });
    Client::new(service, "default")
}

async fn read(text: String) -> Result<Vec<(String, Result<Sample, Discarded>)>, LiveUsageError> {
    let api = MetricsApi::new(answering(text), &Namespaces::Only("team".to_owned()));
    let answer = api.read(Timestamp::UNIX_EPOCH).await?;
    let mut all = Vec::new();
    answer.visit(&mut |of| all.push((format!("{}/{}/{}", of.namespace, of.pod, of.container), of.sample)))?;
    Ok(all)
}

#[tokio::test]
async fn usage_is_rounded_up_to_whole_millicores_and_bytes() {
    let list = json!({ "kind": "PodMetricsList", "items": [{
        "metadata": { "name": "web-1", "namespace": "team" },
        "timestamp": "2026-01-01T00:01:00Z", "window": "15s",
        "containers": [{ "name": "app", "usage": { "cpu": "100000001n", "memory": "97657Ki", "ephemeral-storage": "1Gi" } }],
    }] });
    let sample = |resource, usage| Sample { at: super::at(60), resource, usage };
    let name = "team/web-1/app".to_owned();
    let expected =
        [(name.clone(), Ok(sample(Resource::Cpu, 101))), (name, Ok(sample(Resource::Memory, 100_000_768)))];
    assert_eq!(read(list.to_string()).await.unwrap(), expected);
}

#[tokio::test]
async fn a_value_that_makes_no_sense_does_not_hide_the_others() {
    let container = |name: &str, cpu: serde_json::Value| json!({ "name": name, "usage": { "cpu": cpu } });
    let list = json!({ "items": [
        { "metadata": { "name": "a" }, "timestamp": "2026-01-01T00:01:00Z", "containers": [
            container("nan", json!("NaN")), container("negative", json!("-5m")), container("number", json!(2)),
            container("null", json!(null)), container("object", json!({ "a": 1 })),
            container("huge", json!("9999999999999999999999E")), { "name": "none" },
        ] },
        { "metadata": { "name": "b" }, "timestamp": "yesterday", "containers": [container("app", json!("1"))] },
        { "metadata": { "name": "c" } },
    ] });
    let read = read(list.to_string()).await.unwrap();
    let texts: Vec<_> = read
        .iter()
        .map(|(name, sample)| {
            let sample = sample.map(|sample| (sample.at.is_set(), sample.usage)).map_err(Discarded::name);
            format!("{name} {sample:?}")
        })
        .collect();
    assert_eq!(
        texts,
        [
            "/a/nan Err(\"not_a_number\")",
            "/a/negative Err(\"negative\")",
            "/a/number Ok((true, 2000))",
            "/a/null Err(\"not_a_number\")",
            "/a/object Err(\"not_a_number\")",
            "/a/huge Err(\"not_a_number\")",
            "/b/app Ok((false, 1000))",
        ]
    );
}

#[tokio::test]
async fn an_answer_that_is_none_is_an_error() {
    for text in ["", "{", "{\"items\": 5}", "{\"items\": [{}]}"] {
        let error = read(text.to_owned()).await.unwrap_err();
        assert!(matches!(error, LiveUsageError::Decode(_)), "{text:?}: {error}");
    }
    assert_eq!(read("{}".to_owned()).await.unwrap(), []);
}
