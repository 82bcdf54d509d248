//! Compares the requests of a component with its permissions.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use plumb_install::{Component, Options};
use plumb_roles::Rule;
use plumb_testkit::{TIMEOUT, TestCluster, eventually};
use serde_json::Value;

/// A verb on a resource: `patch pods/resize`, `get deployments.apps`.
pub(super) type Right = String;

/// The requests of a component.
#[derive(Clone, Default)]
pub(super) struct Log {
    used: Arc<Mutex<BTreeSet<Right>>>,
    forbidden: Arc<Mutex<Vec<Right>>>,
}

/// A client of the `ServiceAccount` of a component, and the log of its requests.
pub(super) fn client(cluster: &TestCluster, component: Component) -> (Client, Log) {
    let namespace = Options::default().namespace;
    let user = format!("system:serviceaccount:{namespace}:{}", component.object_name());
    let group = format!("system:serviceaccounts:{namespace}");
    let inner = cluster.client_as(&user, ["system:serviceaccounts", &group]);
    let log = Log::default();
    let writer = log.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let inner = inner.clone();
        let writer = writer.clone();
        let right = right(&request);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
            writer.block_deletions(component, &body);
            let request = Request::from_parts(head, Body::from(body.to_vec()));
            let response = inner.send(request).await.map_err(io::Error::other)?;
            let Some(right) = right else { return Ok::<_, io::Error>(response) };
            writer.used.lock().insert(right.clone());
            if response.status() != StatusCode::FORBIDDEN {
                return Ok(response);
            }
            let (head, body) = response.into_parts();
            let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
            // Admission also answers 403.
            if String::from_utf8_lossy(&body).contains(" cannot ") {
                writer.forbidden.lock().push(right);
            }
            Ok(Response::from_parts(head, Body::from(body.to_vec())))
        }
    });
    (Client::new(service, "default"), log)
}

/// The permission that a request needs; `None` for discovery.
fn right(request: &Request<Body>) -> Option<Right> {
    let segments: Vec<&str> = request.uri().path().split('/').filter(|segment| !segment.is_empty()).collect();
    let (group, rest) = match segments.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return None,
    };
    let rest = match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        rest => rest,
    };
    let (resource, name, subresource) = match rest {
        [resource] => (*resource, false, None),
        [resource, _] => (*resource, true, None),
        [resource, _, subresource, ..] => (*resource, true, Some(*subresource)),
        [] => return None,
    };
    let watches =
        request.uri().query().is_some_and(|query| query.split('&').any(|part| part == "watch=true"));
    let verb = match (request.method(), name) {
        (&Method::GET, _) if watches => "watch",
        (&Method::GET, true) => "get",
        (&Method::GET, false) => "list",
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, _) => "delete",
        _ => return None,
    };
    let resource = subresource.map_or_else(|| resource.to_owned(), |sub| format!("{resource}/{sub}"));
    Some(named(verb, group, &resource))
}

fn named(verb: &str, group: &str, resource: &str) -> Right {
    if group.is_empty() { format!("{verb} {resource}") } else { format!("{verb} {resource}.{group}") }
}

/// Every permission of a rule.
fn rights(rule: &Rule) -> impl Iterator<Item = Right> + '_ {
    rule.verbs.iter().flat_map(move |verb| {
        rule.groups
            .iter()
            .flat_map(move |group| rule.resources.iter().map(move |resource| named(verb, group, resource)))
    })
}

/// The role of a component that has one.
pub(super) fn role(component: Component) -> plumb_roles::Component {
    let mut roles = component.roles();
    let (_, role) = roles.next().unwrap();
    assert!(roles.next().is_none(), "{component} has several");
    role
}

/// The rules of a component that its work needs, and those that its leader election needs.
fn rules(component: Component) -> (Vec<Rule>, Vec<Rule>) {
    let role = role(component);
    (role.cluster.iter().chain(role.local).copied().collect(), role.election.to_vec())
}

/// Every permission that rules grant.
fn given(rules: &[Rule]) -> BTreeSet<Right> {
    rules.iter().flat_map(rights).collect()
}

/// The owners whose deletion an object in a request blocks, each as the right that the admission plugin
/// `OwnerReferencesPermissionEnforcement` asks for: our API server does not have it, other clusters do.
fn blocked_owners(body: &[u8]) -> Vec<Right> {
    let object: Value = serde_json::from_slice(body).unwrap_or_default();
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let blocked = owners.filter(|owner| owner["blockOwnerDeletion"] == true);
    let right = |owner: &Value| {
        let version = owner["apiVersion"].as_str()?;
        let kind = owner["kind"].as_str()?;
        let group = version.split_once('/').map_or("", |(group, _)| group);
        Some(named("update", group, &format!("{}s/finalizers", kind.to_lowercase())))
    };
    blocked.filter_map(right).collect()
}

impl Log {
    /// Whether a permission was used.
    pub(super) fn has_used(&self, right: &str) -> bool {
        self.used.lock().contains(right)
    }

    /// Waits until a permission was used.
    pub(super) async fn wait_for(&self, right: &str) {
        eventually(async || self.has_used(right)).await;
    }

    /// Fails if a request of the component was forbidden.
    pub(super) fn check_not_forbidden(&self, component: Component) {
        let forbidden = self.forbidden.lock().clone();
        assert!(forbidden.is_empty(), "{component} may not {forbidden:?}");
    }

    /// Fails unless the component used every permission for its work except these, and no request was forbidden.
    pub(super) async fn check(&self, component: Component, unused: &[&str]) {
        self.check_rules(component, &rules(component).0, unused).await;
    }

    /// Fails unless leader election used every permission for it, and no request was forbidden.
    pub(super) async fn check_election(&self, component: Component) {
        self.check_rules(component, &rules(component).1, &[]).await;
    }

    async fn check_rules(&self, component: Component, rules: &[Rule], unused: &[&str]) {
        let expected: BTreeSet<&str> = unused.iter().copied().collect();
        let all_used =
            eventually(async || self.unused(rules).iter().all(|right| expected.contains(&**right)));
        // Shorter than the deadline of `eventually`, since the assertion below names the missing permissions.
        let _ = tokio::time::timeout(TIMEOUT / 2, all_used).await;
        self.check_not_forbidden(component);
        let used = self.used.lock().clone();
        let unused = self.unused(rules);
        let idle: BTreeSet<&str> = unused.iter().map(String::as_str).collect();
        let surprising: Vec<_> = idle.difference(&expected).collect();
        assert!(
            surprising.is_empty(),
            "{component} has rights that it does not use: {surprising:#?}\nused: {used:#?}"
        );
        let given = given(rules);
        let stale: Vec<_> = expected.iter().filter(|&&right| !given.contains(right)).collect();
        assert!(stale.is_empty(), "{component} does not have {stale:#?}");
    }

    /// The permissions that rules grant and that were not used.
    fn unused(&self, rules: &[Rule]) -> BTreeSet<Right> {
        let used = self.used.lock();
        let is_used = |right: &Right| match right.split_once(" */scale.*") {
            Some((verb, _)) => used.iter().any(|used| used.starts_with(verb) && used.contains("/scale")),
            None => used.contains(right),
        };
        given(rules).into_iter().filter(|right| !is_used(right)).collect()
    }

    /// Records the rights that a request needs where the deletion of owners may be blocked only by those who may finalize them.
    fn block_deletions(&self, component: Component, body: &[u8]) {
        let given = given(&rules(component).0);
        for right in blocked_owners(body) {
            if !given.contains(&right) {
                self.forbidden.lock().push(right.clone());
            }
            self.used.lock().insert(right);
        }
    }
}

#[test]
fn no_permission_is_granted_by_two_rules() {
    for component in Component::DEFAULT {
        let (work, election) = rules(component);
        let mut seen = BTreeSet::new();
        for rule in work.iter().chain(&election) {
            for right in rights(rule) {
                assert!(seen.insert((right.clone(), rule.names)), "{component}: {right}");
            }
        }
    }
}
