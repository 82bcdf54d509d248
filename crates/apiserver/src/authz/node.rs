//! The node authorizer: a node may read what its pods refer to, and write its own objects.
//!
//! It decides by the URL whether a Node, pod or lease is the node's own; where only the object shows it, the admission
//! plugin `NodeRestriction` decides, as for a resize that a node requests for a pod that has opted in to growth.

use super::graph::{Graph, Kind};
use super::{About, Ask, Authorizer, Objects};
use crate::user::User;

/// The group of nodes, and the prefix of their user names.
pub(crate) const NODES: &str = "system:nodes";
const NODE_USER: &str = "system:node:";
const LEASES: &str = "kube-node-lease";

/// The decision of the node authorizer.
pub(super) enum Opinion {
    /// It is allowed.
    Allow,
    /// The node authorizer does not allow it, for this reason.
    None(String),
}

impl Opinion {
    fn none() -> Self {
        Self::None(String::new())
    }

    fn because(reason: impl Into<String>) -> Self {
        Self::None(reason.into())
    }

    fn allow_if(allowed: bool, otherwise: impl FnOnce() -> String) -> Self {
        if allowed { Self::Allow } else { Self::None(otherwise()) }
    }
}

/// The name of the node, if the user is a node.
pub fn node_of(user: &User) -> Option<&str> {
    user.name().strip_prefix(NODE_USER).filter(|_| user.is_in(NODES))
}

impl Authorizer {
    /// Decides about a request.
    pub(super) fn node_decides(&self, ask: &Ask<'_>) -> Opinion {
        let Some(node) = node_of(ask.user) else { return Opinion::none() };
        if node.is_empty() {
            return Opinion::because(format!("unknown node for user {:?}", ask.user.name()));
        }
        let About::Objects(objects) = &ask.about else { return self.by_rules(ask) };
        let verb = ask.verb;
        match (objects.group, objects.resource) {
            ("", "secrets") => self.reads(node, verb, objects, Kind::Secret),
            ("", "configmaps") => self.reads(node, verb, objects, Kind::ConfigMap),
            ("", "persistentvolumeclaims") if objects.subresource == "status" => match verb {
                "update" | "patch" => {
                    self.related(node, objects, |graph, ns, name| graph.needs(node, Kind::Claim, ns, name))
                }
                _ => Opinion::because("can only get/update/patch this type"),
            },
            ("", "persistentvolumeclaims") => {
                self.gets(node, verb, objects, |graph, ns, name| graph.needs(node, Kind::Claim, ns, name))
            }
            ("", "persistentvolumes") => self
                .gets(node, verb, objects, |graph, ns, name| ns.is_empty() && graph.needs_volume(node, name)),
            ("resource.k8s.io", "resourceclaims") => self.gets(node, verb, objects, |graph, ns, name| {
                graph.needs(node, Kind::ResourceClaim, ns, name)
            }),
            ("storage.k8s.io", "volumeattachments") => self
                .gets(node, verb, objects, |graph, ns, name| ns.is_empty() && graph.is_attached(node, name)),
            ("", "serviceaccounts") => self.account(node, verb, objects),
            ("coordination.k8s.io", "leases") => lease(node, verb, objects),
            ("storage.k8s.io", "csinodes") => storage_node(node, verb, objects),
            ("resource.k8s.io", "resourceslices") => self.slices(node, verb, objects),
            ("", "nodes") => own_node(node, verb, objects),
            ("", "pods") => self.pods(node, verb, objects),
            // Upstream's kubelet creates these for pods, behind a gate that is off.
            ("certificates.k8s.io", "podcertificaterequests") => Opinion::none(),
            _ => self.by_rules(ask),
        }
    }

    fn by_rules(&self, ask: &Ask<'_>) -> Opinion {
        Opinion::allow_if(self.node_rules.iter().any(|rule| rule.allows(ask)), String::new)
    }

    /// Reading an object that a pod of the node refers to.
    fn reads(&self, node: &str, verb: &str, objects: &Objects<'_>, kind: Kind) -> Opinion {
        if !matches!(verb, "get" | "list" | "watch") {
            return Opinion::because("can only read resources of this type");
        }
        if !objects.subresource.is_empty() {
            return Opinion::because("cannot read subresource");
        }
        if objects.namespace.is_empty() {
            return Opinion::because("can only read namespaced object of this type");
        }
        self.related(node, objects, |graph, namespace, name| graph.needs(node, kind, namespace, name))
    }

    fn gets(
        &self,
        node: &str,
        verb: &str,
        objects: &Objects<'_>,
        is_related: impl FnOnce(&Graph, &str, &str) -> bool,
    ) -> Opinion {
        if verb != "get" {
            return Opinion::because("can only get individual resources of this type");
        }
        if !objects.subresource.is_empty() {
            return Opinion::because("cannot get subresource");
        }
        self.related(node, objects, is_related)
    }

    /// Whether a pod of the node refers to the object. A request for a cluster-scoped object has no namespace: with
    /// one, there is no such object.
    fn related(
        &self,
        node: &str,
        objects: &Objects<'_>,
        is_related: impl FnOnce(&Graph, &str, &str) -> bool,
    ) -> Opinion {
        if objects.name.is_empty() {
            return Opinion::because("No Object name found");
        }
        let found = self.graph.ask(|graph| is_related(graph, objects.namespace, objects.name));
        Opinion::allow_if(found, || unrelated(node))
    }

    /// Reading the service account of a pod of the node, and requesting tokens for it.
    fn account(&self, node: &str, verb: &str, objects: &Objects<'_>) -> Opinion {
        if verb == "get" && objects.subresource.is_empty() {
            return self.reads(node, verb, objects, Kind::ServiceAccount);
        }
        if verb != "create" || objects.name.is_empty() {
            return Opinion::because("can only create tokens for individual service accounts");
        }
        if objects.subresource != "token" {
            return Opinion::because("can only create token subresource of serviceaccount");
        }
        self.related(node, objects, |graph, namespace, name| {
            graph.needs(node, Kind::ServiceAccount, namespace, name)
        })
    }

    fn slices(&self, node: &str, verb: &str, objects: &Objects<'_>) -> Opinion {
        if !objects.subresource.is_empty() {
            return Opinion::because("cannot authorize ResourceSlice subresources");
        }
        match verb {
            "create" => Opinion::Allow,
            "get" | "update" | "patch" | "delete" => {
                self.related(node, objects, |graph, ns, name| ns.is_empty() && graph.has_slice(node, name))
            }
            "watch" | "list" | "deletecollection" => Opinion::allow_if(objects.on_node == Some(node), || {
                "can only list/watch/deletecollection resourceslices with nodeName field selector".to_owned()
            }),
            _ => Opinion::because(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, \
                 delete, deletecollection",
            ),
        }
    }

    fn pods(&self, node: &str, verb: &str, objects: &Objects<'_>) -> Opinion {
        let runs = |graph: &Graph, namespace: &str, name: &str| graph.runs(node, namespace, name);
        match (objects.subresource, verb) {
            ("", "get") => self.gets(node, verb, objects, runs),
            ("", "list" | "watch") if objects.on_node == Some(node) => Opinion::Allow,
            ("", "list" | "watch") if !objects.name.is_empty() => self.related(node, objects, runs),
            ("", "list" | "watch") => {
                Opinion::because("can only list/watch pods with spec.nodeName field selector")
            }
            // Only mirror pods of its own, which admission checks.
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
                Opinion::Allow
            }
            // Only within the pod's bounds, which admission checks.
            ("resize", "patch") => self.related(node, objects, |graph, ns, name| graph.grows(node, ns, name)),
            _ => Opinion::none(),
        }
    }
}

fn unrelated(node: &str) -> String {
    format!("no relationship found between node '{node}' and this object")
}

/// Its own lease. The name of a new one is in the object, which admission checks.
fn lease(node: &str, verb: &str, objects: &Objects<'_>) -> Opinion {
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return Opinion::because("can only get, create, update, patch, or delete a node lease");
    }
    if objects.namespace != LEASES {
        return Opinion::because(format!("can only access leases in the {LEASES:?} system namespace"));
    }
    Opinion::allow_if(verb == "create" || objects.name == node, || {
        "can only access node lease with the same name as the requesting node".to_owned()
    })
}

fn storage_node(node: &str, verb: &str, objects: &Objects<'_>) -> Opinion {
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return Opinion::because("can only get, create, update, patch, or delete a CSINode");
    }
    if !objects.subresource.is_empty() {
        return Opinion::because("cannot authorize CSINode subresources");
    }
    Opinion::allow_if(verb == "create" || objects.name == node, || {
        "can only access CSINode with the same name as the requesting node".to_owned()
    })
}

/// Its own Node object. The name of a new one is in the object, which admission checks.
fn own_node(node: &str, verb: &str, objects: &Objects<'_>) -> Opinion {
    match (objects.subresource, verb) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Opinion::Allow,
        ("", "get" | "list" | "watch") => match objects.name {
            "" => Opinion::because(format!("node '{node}' cannot read all nodes, only its own Node object")),
            name if name == node => Opinion::Allow,
            name => Opinion::because(format!("node '{node}' cannot read '{name}', only its own Node object")),
        },
        _ => Opinion::none(),
    }
}
