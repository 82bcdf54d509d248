//! Defaults of `NetworkPolicies`, Ingresses and `EndpointSlices`.

use serde_json::Value;

use super::Object;
use super::plan::Fill::Text;
use super::plan::Row;
use super::plan::Rule::{Do, Set};

const NETWORKING: &str = "api/networking/v1";

pub(super) const ROWS: &[Row] = &[
    (NETWORKING, "NetworkPolicySpec", &[Do(policy_types)]),
    (NETWORKING, "NetworkPolicyPort", &[Set("protocol", Text("TCP"))]),
    (NETWORKING, "IngressClassParametersReference", &[Set("scope", Text("Cluster"))]),
    ("api/discovery/v1", "EndpointPort", &[Set("name", Text("")), Set("protocol", Text("TCP"))]),
];

/// Defaults `policyTypes`: `Ingress`, and `Egress` if the policy has egress rules.
fn policy_types(spec: &mut Object) {
    let has = |field: &str| spec.get(field).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if has("policyTypes") {
        return;
    }
    let types = if has("egress") { vec!["Ingress", "Egress"] } else { vec!["Ingress"] };
    spec.insert("policyTypes".to_owned(), types.into());
}
