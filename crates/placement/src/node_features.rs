//! The features that a node must declare in `status.declaredFeatures` for a pod (KEP-5328).

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use plumb_resize::list::WireList;
use plumb_resize::quantity::Quantity;

/// A feature that a pod may need of its node. The order is that of the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeFeature {
    /// The node resizes the pod-level resources of a pod.
    ResizePodLevel,
    /// The node resizes init containers that are no sidecars.
    ResizeInitContainers,
    /// The node has the action `RestartAllContainers` of `restartPolicyRules`.
    RestartAllContainers,
    /// The node runs pods with a user namespace in the network of the host.
    UserNamespaceInHostNetwork,
}

impl NodeFeature {
    /// Its name in the status of a node.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ResizePodLevel => "InPlacePodLevelResourcesVerticalScaling",
            Self::ResizeInitContainers => "InPlacePodVerticalScalingInitContainers",
            Self::RestartAllContainers => "RestartAllContainersOnContainerExits",
            Self::UserNamespaceInHostNetwork => "UserNamespacesHostNetworkSupport",
        }
    }

    /// Whether a node declares it in `status.declaredFeatures`.
    pub fn is_declared(self, declared: &[String]) -> bool {
        declared.iter().any(|name| name == self.name())
    }
}

/// The features that a node needs to run a pod, sorted.
pub fn required_to_run(spec: &PodSpec) -> Vec<NodeFeature> {
    let restarts_all = |container: &Container| {
        container.restart_policy_rules.iter().flatten().any(|rule| rule.action == "RestartAllContainers")
    };
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let required = [
        (NodeFeature::RestartAllContainers, containers.any(restarts_all)),
        (
            NodeFeature::UserNamespaceInHostNetwork,
            spec.host_network == Some(true) && spec.host_users == Some(false),
        ),
    ];
    only_required(required)
}

/// The features that a node needs to update a pod that it runs, sorted.
pub fn required_to_update(old: &PodSpec, new: &PodSpec) -> Vec<NodeFeature> {
    // An update of a pod cannot add, remove or move init containers.
    let init_containers = old.init_containers.iter().flatten().zip(new.init_containers.iter().flatten());
    let mut plain = init_containers.filter(|(old, _)| old.restart_policy.as_deref() != Some("Always"));
    let required = [
        (NodeFeature::ResizePodLevel, !is_same(old.resources.as_ref(), new.resources.as_ref())),
        (
            NodeFeature::ResizeInitContainers,
            plain.any(|(old, new)| !is_same(old.resources.as_ref(), new.resources.as_ref())),
        ),
    ];
    only_required(required)
}

fn only_required(features: [(NodeFeature, bool); 2]) -> Vec<NodeFeature> {
    features.into_iter().filter(|(_, is_required)| *is_required).map(|(feature, _)| feature).collect()
}

/// Whether two lists of requests and limits have the same amounts.
fn is_same(old: Option<&ResourceRequirements>, new: Option<&ResourceRequirements>) -> bool {
    let requests = |resources: Option<&ResourceRequirements>| resources.and_then(|one| one.requests.clone());
    let limits = |resources: Option<&ResourceRequirements>| resources.and_then(|one| one.limits.clone());
    let claims = |resources: Option<&ResourceRequirements>| resources.and_then(|one| one.claims.clone());
    is_same_list(requests(old), requests(new))
        && is_same_list(limits(old), limits(new))
        && claims(old).unwrap_or_default() == claims(new).unwrap_or_default()
}

fn is_same_list(old: Option<WireList>, new: Option<WireList>) -> bool {
    let old = old.unwrap_or_default();
    let new = new.unwrap_or_default();
    old.len() == new.len()
        && old.iter().all(|(name, amount)| {
            let amount = amount.0.parse::<Quantity>();
            new.get(name).is_some_and(|new| new.0.parse::<Quantity>().ok() == amount.ok())
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(fields: &Value) -> PodSpec {
        let mut spec = json!({ "containers": [{ "name": "c" }] });
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    fn names(features: Vec<NodeFeature>) -> Vec<&'static str> {
        features.into_iter().map(NodeFeature::name).collect()
    }

    #[test]
    fn a_pod_needs_the_features_of_its_restart_rules_and_of_its_user_namespace() {
        let rules =
            |action: &str| json!([{ "action": action, "exitCodes": { "operator": "In", "values": [1] } }]);
        let with_rules = |list: &str, action: &str| json!({ list: [{ "name": "c", "restartPolicyRules": rules(action) }] });
        let restart_all = "RestartAllContainersOnContainerExits";
        let user_namespace = "UserNamespacesHostNetworkSupport";
        for (fields, expected) in [
            (json!({}), vec![]),
            (with_rules("containers", "Restart"), vec![]),
            (with_rules("containers", "RestartAllContainers"), vec![restart_all]),
            (with_rules("initContainers", "RestartAllContainers"), vec![restart_all]),
            (json!({ "hostNetwork": true }), vec![]),
            (json!({ "hostNetwork": true, "hostUsers": true }), vec![]),
            (json!({ "hostUsers": false }), vec![]),
            (json!({ "hostNetwork": true, "hostUsers": false }), vec![user_namespace]),
            (json!({ "resources": { "requests": { "cpu": "1" } } }), vec![]),
        ] {
            assert_eq!(names(required_to_run(&spec(&fields))), expected, "{fields}");
        }
    }

    #[test]
    fn an_update_needs_the_features_of_the_resources_that_it_changes() {
        let amounts = |cpu: &str| json!({ "requests": { "cpu": cpu } });
        let pod_level = |cpu: &str| json!({ "resources": amounts(cpu) });
        let init = |cpu: &str, policy: Option<&str>| json!({ "initContainers": [{ "name": "i", "resources": amounts(cpu), "restartPolicy": policy }] });
        let main = |cpu: &str| json!({ "containers": [{ "name": "c", "resources": amounts(cpu) }] });
        let both = |cpu: &str| {
            let mut both = init(cpu, None);
            both["resources"] = amounts(cpu);
            both
        };
        let of_pod = "InPlacePodLevelResourcesVerticalScaling";
        let of_init = "InPlacePodVerticalScalingInitContainers";
        for (old, new, expected) in [
            (main("1"), main("2"), vec![]),
            (pod_level("1"), pod_level("2"), vec![of_pod]),
            (pod_level("1"), pod_level("1000m"), vec![]),
            (json!({}), pod_level("1"), vec![of_pod]),
            (json!({ "resources": {} }), json!({}), vec![]),
            (init("1", None), init("2", None), vec![of_init]),
            (init("1", Some("Always")), init("2", Some("Always")), vec![]),
            (both("1"), both("2"), vec![of_pod, of_init]),
        ] {
            assert_eq!(names(required_to_update(&spec(&old), &spec(&new))), expected, "{old} {new}");
        }
    }

    #[test]
    fn a_feature_is_declared_by_its_name() {
        let declared = ["RestartAllContainersOnContainerExits".to_owned()];
        assert!(NodeFeature::RestartAllContainers.is_declared(&declared));
        assert!(!NodeFeature::ResizePodLevel.is_declared(&declared));
        assert!(!NodeFeature::RestartAllContainers.is_declared(&[]));
    }
}
