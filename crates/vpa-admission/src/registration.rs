//! How the webhook is registered with the API server.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use plumb_vpa::namespaces::Namespaces;
use plumb_webhook::registration::rule;
use plumb_webhook::{Endpoint, Registration};

/// The name of the configuration: upstream's.
pub const NAME: &str = "vpa-webhook-config";
/// The name of the webhook: upstream's.
pub const WEBHOOK: &str = "vpa.k8s.io";
/// The manager of the fields that are applied.
pub const FIELD_MANAGER: &str = "plumb-vpa-admission-controller";

const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// A registration with upstream's defaults, except that the API server waits for 5 seconds instead of 30: a webhook that
/// hangs should not delay pods for longer.
pub fn registration(endpoint: Endpoint, namespaces: &Namespaces) -> Registration {
    Registration {
        name: NAME,
        webhook: WEBHOOK,
        field_manager: FIELD_MANAGER,
        rules: vec![
            rule("", "v1", &["pods"], &["CREATE"]),
            rule("autoscaling.k8s.io", "*", &["verticalpodautoscalers"], &["CREATE", "UPDATE"]),
        ],
        match_conditions: Vec::new(),
        // Events are emitted, except for a dry run.
        side_effects: "NoneOnDryRun",
        endpoint,
        fail: false,
        timeout_seconds: 5,
        labels: std::collections::BTreeMap::new(),
        namespace_selector: namespace_selector(namespaces),
    }
}

fn namespace_selector(namespaces: &Namespaces) -> LabelSelector {
    let requirement = |operator: &str, values: Vec<String>| LabelSelectorRequirement {
        key: NAMESPACE_LABEL.to_owned(),
        operator: operator.to_owned(),
        values: Some(values),
    };
    let requirement = match namespaces {
        Namespaces::All => None,
        Namespaces::Only(only) => Some(requirement("In", vec![only.clone()])),
        Namespaces::Except(ignored) => Some(requirement("NotIn", ignored.iter().cloned().collect())),
    };
    LabelSelector { match_expressions: requirement.map(|requirement| vec![requirement]), match_labels: None }
}
