//! Who may do what, as long as there are no roles yet: administrators everything, nodes what a node needs.
//!
//! A node reads what it runs and what that needs, and writes what only it can know: its own Node and lease,
//! events, and the status and the end of pods. Which pods are its own is checked where the pod is known.

use crate::authn::User;
use crate::error::ApiError;
use crate::target::{Target, Verb};

/// The group that may do everything.
const MASTERS: &str = "system:masters";
/// The group of nodes, and what comes before a node's name in its user name.
const NODES: &str = "system:nodes";
const NODE_USER: &str = "system:node:";

/// The node that a user is, if it is one.
pub(crate) fn node_of(user: &User) -> Option<&str> {
    user.name().strip_prefix(NODE_USER).filter(|_| user.is_in(NODES))
}

/// Whether a user may do this; the refusal says what was asked in the words of Kubernetes.
pub(crate) fn authorize(user: &User, verb: Verb, target: &Target) -> Result<(), ApiError> {
    let allowed = user.is_in(MASTERS) || node_of(user).is_some_and(|node| node_may(node, verb, target));
    if allowed {
        return Ok(());
    }
    let resource = match &target.subresource {
        Some(subresource) => format!("{}/{subresource}", target.resource),
        None => target.resource.clone(),
    };
    let scope = match &target.namespace {
        Some(namespace) => format!("in the namespace {namespace:?}"),
        None => "at the cluster scope".to_owned(),
    };
    let why = format!(
        "User {:?} cannot {} resource {resource:?} in API group {:?} {scope}",
        user.name(),
        verb.name(),
        target.group
    );
    Err(ApiError::forbidden(
        &target.group,
        &target.resource,
        target.name.as_deref().unwrap_or_default(),
        &why,
    ))
}

/// Whether a user may do this to a path that is no object's; the refusal is in the words of Kubernetes.
pub(crate) fn authorize_path(user: &User, verb: &str, path: &str) -> Result<(), ApiError> {
    if user.is_in(MASTERS) {
        return Ok(());
    }
    let why = format!("User {:?} cannot {verb} path {path:?}", user.name());
    Err(ApiError::forbidden_path(&why))
}

fn node_may(node: &str, verb: Verb, target: &Target) -> bool {
    let reads = matches!(verb, Verb::Get | Verb::List | Verb::Watch);
    let writes = matches!(verb, Verb::Create | Verb::Update | Verb::Patch);
    let own = target.name.as_deref() == Some(node);
    match (target.group.as_str(), target.resource.as_str(), target.subresource.as_deref()) {
        ("", "nodes", None | Some("status")) => reads || verb == Verb::Create || (writes && own),
        ("", "pods", None) => reads || matches!(verb, Verb::Create | Verb::Delete),
        ("", "pods", Some("status" | "eviction")) | ("" | "events.k8s.io", "events", None) => writes,
        (
            "",
            "services" | "configmaps" | "secrets" | "persistentvolumeclaims" | "persistentvolumes",
            None,
        )
        | ("node.k8s.io", "runtimeclasses", None)
        | ("storage.k8s.io", "csidrivers", None) => reads,
        ("coordination.k8s.io", "leases", None) => {
            target.namespace.as_deref() == Some("kube-node-lease")
                && (verb == Verb::Create || (own && (reads || writes || verb == Verb::Delete)))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Address;

    fn target(path: &str) -> Target {
        match Address::parse(path) {
            Ok(Address::Objects(target)) => target,
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn a_node_writes_only_what_is_its_own() {
        let node = User::new("system:node:n1", "", ["system:nodes"]);
        let table = [
            (Verb::Get, "/api/v1/nodes/n2", true),
            (Verb::Patch, "/api/v1/nodes/n1/status", true),
            (Verb::Patch, "/api/v1/nodes/n2/status", false),
            (Verb::Delete, "/api/v1/nodes/n1", false),
            (Verb::Patch, "/api/v1/namespaces/a/pods/p/status", true),
            (Verb::Patch, "/api/v1/namespaces/a/pods/p/resize", false),
            (Verb::Patch, "/api/v1/namespaces/a/pods/p", false),
            (Verb::Update, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1", true),
            (Verb::Update, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n2", false),
            (Verb::Create, "/api/v1/namespaces/a/events", true),
            (Verb::List, "/apis/rbac.authorization.k8s.io/v1/clusterroles", false),
        ];
        for (verb, path, allowed) in table {
            assert_eq!(authorize(&node, verb, &target(path)).is_ok(), allowed, "{verb:?} {path}");
        }
    }

    #[test]
    fn the_refusal_says_who_wanted_what() {
        let nobody = User::new("jane", "", Vec::<String>::new());
        let error = authorize(&nobody, Verb::List, &target("/api/v1/namespaces/a/pods")).unwrap_err();
        assert_eq!(
            error.message,
            "pods is forbidden: User \"jane\" cannot list resource \"pods\" in API group \"\" in the namespace \"a\""
        );
        assert!(
            authorize(&User::new("root", "", ["system:masters"]), Verb::List, &target("/api/v1/pods"))
                .is_ok()
        );
    }
}
