//! The questions of the matrix.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::objects::{NAMESPACE, NODE, OTHER, OTHER_NAMESPACE, ROLES};

/// The verbs of requests for objects.
const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// The verbs that only authorization knows, and the one that stands for all.
const SPECIAL_VERBS: [&str; 8] = ["*", "approve", "attest", "bind", "escalate", "impersonate", "sign", "use"];
/// The namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";

/// Resources that authorization knows and discovery does not list: what approving, signing and impersonating are about,
/// and what a kubelet asks about its own clients.
pub const VIRTUAL: [(&str, &str); 20] = [
    ("", "groups"),
    ("", "nodes/checkpoint"),
    ("", "nodes/configz"),
    ("", "nodes/healthz"),
    ("", "nodes/log"),
    ("", "nodes/metrics"),
    ("", "nodes/pods"),
    ("", "nodes/spec"),
    ("", "nodes/stats"),
    ("", "users"),
    ("authentication.k8s.io", "uids"),
    ("authentication.k8s.io", "userextras"),
    ("authentication.k8s.io", "userextras/scopes"),
    ("certificates.k8s.io", "certificatesigningrequests/nodeclient"),
    ("certificates.k8s.io", "certificatesigningrequests/selfnodeclient"),
    ("certificates.k8s.io", "signers"),
    ("example.com", "widgets"),
    ("example.com", "widgets/status"),
    ("resource.k8s.io", "resourceclaims/binding"),
    ("resource.k8s.io", "resourceclaims/driver"),
];

/// Paths that are no objects.
const PATHS: [&str; 26] = [
    "/",
    "/.well-known/openid-configuration",
    "/api",
    "/api/",
    "/api/v1",
    "/apis",
    "/apis/",
    "/apis/apps",
    "/apis/apps/v1",
    "/configz",
    "/debug/pprof",
    "/flagz",
    "/healthz",
    "/healthz/",
    "/healthz/ping",
    "/livez",
    "/livez/ping",
    "/logs",
    "/metrics",
    "/metrics/slis",
    "/openapi",
    "/openapi/v3",
    "/openid/v1/jwks",
    "/readyz",
    "/version",
    "/version/",
];
const PATH_VERBS: [&str; 5] = ["delete", "get", "head", "post", "put"];

/// Objects of the system that some may have rights to by name: namespace, resource and name.
const NAMED: [(&str, &str, &str); 5] = [
    ("kube-public", "configmaps", "cluster-info"),
    ("kube-system", "configmaps", "extension-apiserver-authentication"),
    ("kube-system", "configmaps", "kubeadm-config"),
    ("kube-system", "configmaps", "plumb-node"),
    ("kube-system", "secrets", "bootstrap-token-abcdef"),
];

/// The question whether authorization allows a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    /// Who; one of the identities of the matrix.
    pub identity: String,
    /// Where; empty at cluster scope.
    pub namespace: String,
    /// To which object; empty for any.
    pub name: String,
    /// The node that a field selector restricts objects to; empty without one.
    pub on_node: String,
    /// The API group; empty for the core.
    pub group: String,
    /// `plural`, `plural/subresource`, or a path that is no object and begins with a slash.
    pub resource: String,
    /// What.
    pub verb: String,
}

/// The identities: how the matrix calls them, their user names and their groups.
pub fn identities() -> Vec<(&'static str, String, Vec<String>)> {
    let groups = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let authenticated = "system:authenticated";
    let mut all = vec![
        ("anonymous", "system:anonymous".to_owned(), groups(&["system:unauthenticated"])),
        ("authenticated", "user".to_owned(), groups(&[authenticated])),
        (
            "bootstrap",
            "system:bootstrap:abcdef".to_owned(),
            groups(&["system:bootstrappers", "system:bootstrappers:plumb:default-node-token", authenticated]),
        ),
        ("node", format!("system:node:{NODE}"), groups(&["system:nodes", authenticated])),
        // Neither is a node: one has only the group, the other only the name.
        ("node-by-group", "mallory".to_owned(), groups(&["system:nodes", authenticated])),
        ("node-by-name", format!("system:node:{NODE}"), groups(&[authenticated])),
        (
            "serviceaccount",
            format!("system:serviceaccount:{NAMESPACE}:{NODE}"),
            groups(&["system:serviceaccounts", "system:serviceaccounts:matrix-one", authenticated]),
        ),
    ];
    all.extend(ROLES.map(|role| (role, role.to_owned(), groups(&[authenticated]))));
    all
}

impl Question {
    /// The question as a `SubjectAccessReview`.
    pub fn review(&self) -> Value {
        let identity = identities().into_iter().find(|(identity, _, _)| *identity == self.identity);
        let (_, user, groups) = identity.unwrap_or_default();
        if self.resource.starts_with('/') {
            let attributes = json!({ "path": self.resource, "verb": self.verb });
            return super::review_of(&user, &groups, ("nonResourceAttributes", attributes));
        }
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        let mut attributes = json!({
            "group": self.group, "resource": resource, "subresource": subresource, "verb": self.verb,
            "namespace": self.namespace, "name": self.name,
        });
        if !self.on_node.is_empty() {
            attributes["fieldSelector"] = json!({ "rawSelector": format!("spec.nodeName={}", self.on_node) });
        }
        super::review_of(&user, &groups, ("resourceAttributes", attributes))
    }
}

/// Every question about these kinds.
pub fn questions(resources: &BTreeSet<(String, String)>) -> Vec<Question> {
    let mut all = Vec::new();
    for (identity, _, _) in identities() {
        let own = Question { identity: identity.to_owned(), ..Question::default() };
        for path in PATHS {
            let about = Question { resource: path.to_owned(), ..own.clone() };
            all.extend(PATH_VERBS.map(|verb| Question { verb: verb.to_owned(), ..about.clone() }));
        }
        for (namespace, resource, name) in NAMED {
            all.extend(VERBS.map(|verb| Question {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                resource: resource.to_owned(),
                verb: verb.to_owned(),
                ..own.clone()
            }));
        }
        for (group, resource) in resources {
            let about = Question { group: group.clone(), resource: resource.clone(), ..own.clone() };
            ask_about(&about, identity == "node", &mut all);
        }
    }
    all
}

fn ask_about(about: &Question, is_node: bool, all: &mut Vec<Question>) {
    let asked = |verb: &str, namespace: &str, name: &str, on_node: &str| Question {
        verb: verb.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        on_node: on_node.to_owned(),
        ..about.clone()
    };
    for verb in SPECIAL_VERBS {
        all.extend(["", NAMESPACE].map(|namespace| asked(verb, namespace, "", "")));
    }
    for verb in VERBS {
        all.extend(["", NAMESPACE, OTHER_NAMESPACE].map(|namespace| asked(verb, namespace, "", "")));
        if !is_node {
            continue;
        }
        // What a node may do depends on which object it is, and on where that is.
        for namespace in ["", NAMESPACE, OTHER_NAMESPACE, LEASES] {
            all.extend([NODE, OTHER].map(|name| asked(verb, namespace, name, "")));
        }
        all.push(asked(verb, LEASES, "", ""));
        if matches!(verb, "list" | "watch" | "deletecollection") {
            for namespace in ["", NAMESPACE] {
                all.extend([NODE, OTHER].map(|node| asked(verb, namespace, "", node)));
            }
        }
    }
}

/// Questions that are answered with yes as soon as authorization knows all bindings and what the node's pod needs.
pub fn markers() -> Vec<Question> {
    let node = |verb: &str, group: &str, resource: &str, namespace: &str| Question {
        identity: "node".to_owned(),
        verb: verb.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: NODE.to_owned(),
        on_node: String::new(),
    };
    let mut all: Vec<Question> =
        ["configmaps", "persistentvolumeclaims", "pods", "secrets", "serviceaccounts"]
            .map(|resource| node("get", "", resource, NAMESPACE))
            .to_vec();
    all.extend([
        node("get", "", "secrets", OTHER_NAMESPACE),
        node("get", "", "persistentvolumes", ""),
        node("get", "resource.k8s.io", "resourceclaims", NAMESPACE),
        node("get", "resource.k8s.io", "resourceslices", ""),
        node("get", "storage.k8s.io", "volumeattachments", ""),
    ]);
    all
}
