//! KEP-1287, flow control: a second resize while the first is being actuated (T=3 to T=7), and the conflict between them.

use std::sync::{Arc, Mutex};

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, WatchEvent, WatchParams};
use plumb_conformance::Figure;
use serde_json::json;

use super::machine::{Groups, Machine, create, equal, id, is_settled, load, pod, pods, resize, until};
use crate::it::cluster::Cluster;

/// What the proposal says of each moment: the CPU that is desired, allocated and actual, and `status.resize`.
type Moment = (String, String, String, Option<String>);

fn moment(pod: &Pod) -> Moment {
    let value = serde_json::to_value(pod).unwrap();
    let text =
        |pointer: &str| value.pointer(pointer).and_then(|text| text.as_str()).unwrap_or_default().to_owned();
    (
        text("/spec/containers/0/resources/requests/cpu"),
        text("/status/containerStatuses/0/allocatedResources/cpu"),
        text("/status/containerStatuses/0/resources/requests/cpu"),
        pod.status.as_ref().and_then(|status| status.resize.clone()),
    )
}

/// How many status patches the API server has answered with a conflict.
async fn conflicts(cluster: &Cluster) -> f64 {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = cluster.client().await.request_text(request).await.unwrap();
    let is_so = |line: &&str| {
        line.starts_with("apiserver_request_total{")
            && [r#"code="409""#, r#"resource="pods""#, r#"subresource="status""#]
                .iter()
                .all(|label| line.contains(label))
    };
    metrics.lines().filter(is_so).filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

#[tokio::test]
async fn a_second_resize_during_the_first_conflicts_with_its_report_and_is_decided_after_it() {
    let Some(machine) = Machine::here() else { return };
    let slow =
        ["--runtime-delay", "UpdateContainerResources=20s", "--node-cpu", "3", "--resize-dialect", "kep"];
    let cluster = Cluster::start_with(
        &machine.data(),
        &[&["--components", "apiserver,controllers,node", "--runtime", "builtin"][..], &slow].concat(),
    );
    let pods = pods(&cluster).await;
    create(&pods, &pod("other", json!([load("c", &[], equal("1200m", "32Mi"))]))).await;
    until(&pods, "other", "settled", is_settled).await;
    create(&pods, &pod("web", json!([load("c", &[], equal("1", "32Mi"))]))).await;
    let before = until(&pods, "web", "settled", is_settled).await;
    let fields = "metadata.name=web";
    let version = pods.list(&ListParams::default().fields(fields)).await.unwrap().metadata.resource_version;
    let moments = Arc::new(Mutex::new(Vec::new()));
    let watching = {
        let (pods, moments) = (pods.clone(), moments.clone());
        tokio::spawn(async move {
            let params = WatchParams::default().fields(fields);
            let mut events = pods.watch(&params, &version.unwrap()).await.unwrap().boxed();
            while let Some(event) = events.next().await {
                if let Ok(WatchEvent::Modified(pod)) = event {
                    let moment = moment(&pod);
                    let is_last = moment.3.as_deref() == Some("Deferred");
                    moments.lock().unwrap().push(moment);
                    if is_last {
                        break;
                    }
                }
            }
        })
    };
    let conflicts_before = conflicts(&cluster).await;
    let is = |word: &'static str| {
        move |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.resize.as_deref() == Some(word))
    };
    // T=3 and T=4.
    resize(&pods, "web", json!([{ "name": "c", "resources": equal("1500m", "32Mi") }])).await;
    until(&pods, "web", "in progress", is("InProgress")).await;
    // T=5: it would fit the node, but not beside the other pod.
    resize(&pods, "web", json!([{ "name": "c", "resources": equal("2", "32Mi") }])).await;
    // T=6 and T=7.
    let after = until(&pods, "web", "deferred", is("Deferred")).await;
    // This watch may lag behind the one that was waited for.
    tokio::time::timeout(plumb_testkit::TIMEOUT, watching).await.unwrap().unwrap();
    let moments = moments.lock().unwrap().clone();
    let word = |word: &str| Some(word.to_owned());
    let expected = [
        ("1500m", "1", "1", word("Proposed")),
        ("1500m", "1500m", "1", word("InProgress")),
        ("2", "1500m", "1", word("Proposed")),
        ("2", "1500m", "1500m", word("Deferred")),
    ];
    let expected: Vec<Moment> =
        expected.map(|(a, b, c, word)| (a.to_owned(), b.to_owned(), c.to_owned(), word)).to_vec();
    let mut seen = moments.clone();
    seen.dedup();
    assert_eq!(seen, expected);
    assert!(conflicts(&cluster).await > conflicts_before, "the report of the first resize conflicts");
    let (groups, container) = (Groups::of(&after), id(&after, "c"));
    assert_eq!(groups.number(&container, Figure::CpuQuota), Some(150_000));
    assert_eq!(id(&before, "c"), container);
    drop(cluster);
    machine.clear();
}
