//! VPAs, as objects of the API.

use serde_json::{Map, Value, json};

/// The name of a recommender that does not run: the case itself writes the recommendation.
const RECOMMENDER: &str = "plumb-conformance";

/// The path of a VPA; of all of the namespace without a name.
pub(crate) fn path(namespace: &str, name: &str) -> String {
    let all = format!("/apis/autoscaling.k8s.io/v1/namespaces/{namespace}/verticalpodautoscalers");
    if name.is_empty() { all } else { format!("{all}/{name}") }
}

/// A VPA of the Deployment of the same name.
pub(crate) fn new(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["targetRef"] = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": name });
    spec["recommenders"] = json!([{ "name": RECOMMENDER }]);
    json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": name },
        "spec": spec,
    })
}

/// A merge patch that recommends: container, CPU, memory. An empty amount is none.
pub(crate) fn recommendation(recommended: &[(&str, &str, &str)]) -> Value {
    let container = |(name, cpu, memory): &(&str, &str, &str)| {
        let amounts = [("cpu", cpu), ("memory", memory)].into_iter().filter(|(_, amount)| !amount.is_empty());
        let amounts: Map<String, Value> =
            amounts.map(|(resource, amount)| (resource.to_owned(), json!(amount))).collect();
        json!({ "containerName": name, "target": amounts, "lowerBound": amounts, "upperBound": amounts })
    };
    let containers: Vec<Value> = recommended.iter().map(container).collect();
    json!({ "status": { "recommendation": { "containerRecommendations": containers } } })
}
