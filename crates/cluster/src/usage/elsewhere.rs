//! Resource usage of nodes on other machines: it is read through the API server, which knows their addresses and
//! verifies them.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::ListParams;
use plumb_apiserver::usage::{Amounts, NodeUsage, PodUsage, Span};
use plumb_client::Api;
use plumb_resize::Quantity;
use serde::Deserialize;

/// How many nodes are queried at a time, and the timeout of each.
const AT_ONCE: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(10);

/// The part of a node's summary that is used.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Summary {
    node: Figures,
    #[serde(default)]
    pods: Vec<OfPod>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfPod {
    pod_ref: Reference,
    #[serde(default)]
    containers: Vec<OfContainer>,
}

#[derive(Clone, Debug, Deserialize)]
struct Reference {
    name: String,
    namespace: String,
}

#[derive(Clone, Debug, Deserialize)]
struct OfContainer {
    name: String,
    #[serde(flatten)]
    figures: Figures,
}

#[derive(Clone, Debug, Deserialize)]
struct Figures {
    cpu: Option<Cpu>,
    memory: Option<Memory>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cpu {
    time: Timestamp,
    usage_core_nano_seconds: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Memory {
    working_set_bytes: u64,
}

/// The last two answers of each node: how much cpu was used is what lies between them.
#[derive(Debug, Default)]
pub(super) struct Elsewhere(HashMap<String, (Option<Summary>, Summary)>);

impl Elsewhere {
    /// Takes the answers of a round. A node that did not answer is no longer known.
    pub(super) fn take(&mut self, answers: Vec<(String, Summary)>) {
        let mut before = std::mem::take(&mut self.0);
        for (node, now) in answers {
            let last = before.remove(&node).map(|(_, last)| last);
            self.0.insert(node, (last, now));
        }
    }

    pub(super) fn node(&self, name: &str) -> Option<NodeUsage> {
        let (before, now) = self.0.get(name)?;
        let (span, used) = between(&before.as_ref()?.node, &now.node)?;
        Some(NodeUsage { span, used })
    }

    pub(super) fn pod(&self, node: &str, namespace: &str, name: &str) -> Option<PodUsage> {
        let (before, now) = self.0.get(node)?;
        let of = |summary: &Summary| {
            let own = |pod: &&OfPod| pod.pod_ref.namespace == namespace && pod.pod_ref.name == name;
            summary.pods.iter().find(own).map(|pod| pod.containers.clone())
        };
        let (before, now) = (of(before.as_ref()?)?, of(now)?);
        let mut span = None;
        let mut containers = Vec::with_capacity(now.len());
        for container in &now {
            // One that was not there before is too young for a figure.
            let Some(earlier) = before.iter().find(|earlier| earlier.name == container.name) else {
                continue;
            };
            let Some((of_one, used)) = between(&earlier.figures, &container.figures) else { continue };
            span.get_or_insert(of_one);
            containers.push((container.name.clone(), used));
        }
        Some(PodUsage { span: span?, containers })
    }
}

fn between(before: &Figures, now: &Figures) -> Option<(Span, Amounts)> {
    let (first, last, memory) = (before.cpu.as_ref()?, now.cpu.as_ref()?, now.memory.as_ref()?);
    let length =
        Duration::try_from(last.time.duration_since(first.time)).ok().filter(|length| !length.is_zero())?;
    // Less than before is another container of the same name, which has begun to count anew.
    let used = last.usage_core_nano_seconds.checked_sub(first.usage_core_nano_seconds)?;
    let nano = u128::from(used) * 1_000_000_000 / length.as_nanos();
    let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    let used = Amounts {
        cpu: Quantity::from_nano(i64::try_from(nano).unwrap_or(i64::MAX)),
        memory: Quantity::from_bytes(signed(memory.working_set_bytes)),
    };
    Some((Span { until: last.time, length }, used))
}

/// Queries every node that is not in this process.
pub(super) async fn ask_all(
    client: &Client,
    is_here: impl Fn(&str) -> bool,
) -> Result<Vec<(String, Summary)>, kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let known = nodes.list_metadata(&ListParams::default()).await?;
    let names = known.items.into_iter().filter_map(|node| node.metadata.name).filter(|name| !is_here(name));
    let asking = names.map(|name| async move {
        let answer = tokio::time::timeout(TIMEOUT, ask(client, &name)).await;
        match answer {
            Ok(Ok(summary)) => Some((name, summary)),
            Ok(Err(error)) => {
                tracing::debug!(%error, node = name, "cannot read the usage of a node");
                None
            }
            Err(_) => None,
        }
    });
    Ok(futures_util::stream::iter(asking)
        .buffer_unordered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await)
}

async fn ask(client: &Client, node: &str) -> Result<Summary, kube::Error> {
    let path = format!("/api/v1/nodes/{node}/proxy/stats/summary");
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request(request).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn summary(second: i64, nanos: u64) -> Summary {
        let time = Timestamp::from_second(second).unwrap().to_string();
        let figures = json!({
            "cpu": { "time": time, "usageCoreNanoSeconds": nanos }, "memory": { "workingSetBytes": 4096 },
        });
        let mut container = figures.clone();
        container["name"] = json!("main");
        serde_json::from_value(json!({
            "node": figures,
            "pods": [{ "podRef": { "name": "web", "namespace": "default", "uid": "1" }, "containers": [container] }],
        }))
        .unwrap()
    }

    #[test]
    fn usage_is_the_difference_between_two_responses() {
        let mut elsewhere = Elsewhere::default();
        elsewhere.take(vec![("n1".to_owned(), summary(100, 1_000_000_000))]);
        assert!(elsewhere.node("n1").is_none());
        elsewhere.take(vec![("n1".to_owned(), summary(110, 6_000_000_000))]);
        let node = elsewhere.node("n1").unwrap();
        assert_eq!((node.used.cpu.to_string().as_str(), node.span.length), ("500m", Duration::from_secs(10)));
        let pod = elsewhere.pod("n1", "default", "web").unwrap();
        assert_eq!(pod.containers[0].1.memory.to_string(), "4Ki");
        assert!(elsewhere.pod("n1", "default", "other").is_none());
        // Begun anew, and then gone.
        elsewhere.take(vec![("n1".to_owned(), summary(120, 0))]);
        assert!(elsewhere.node("n1").is_none());
        elsewhere.take(Vec::new());
        assert!(elsewhere.pod("n1", "default", "web").is_none());
    }
}
