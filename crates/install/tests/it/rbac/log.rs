//! What a component asks for, compared with what it may.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use plumb_harness::{TestCluster, eventually};
use plumb_install::{Component, Options};
use plumb_roles::Rule;

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
        let (inner, writer, right) = (inner.clone(), writer.clone(), right(&request));
        async move {
            let response = inner.send(request).await.map_err(io::Error::other)?;
            let Some(right) = right else { return Ok::<_, io::Error>(response) };
            writer.used.lock().insert(right.clone());
            if response.status() != StatusCode::FORBIDDEN {
                return Ok(response);
            }
            let (head, body) = response.into_parts();
            let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
            // Admission answers with the same code.
            if String::from_utf8_lossy(&body).contains(" cannot ") {
                writer.forbidden.lock().push(right);
            }
            Ok(Response::from_parts(head, Body::from(body.to_vec())))
        }
    });
    (Client::new(service, "default"), log)
}

/// The right that a request needs; none for discovery.
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

/// Every right of a rule.
fn rights(rule: &Rule) -> impl Iterator<Item = Right> + '_ {
    rule.verbs.iter().flat_map(move |verb| {
        rule.groups
            .iter()
            .flat_map(move |group| rule.resources.iter().map(move |resource| named(verb, group, resource)))
    })
}

/// Every right of a component.
fn given(component: Component) -> BTreeSet<Right> {
    let role = component.role();
    role.cluster.iter().chain(role.local).flat_map(rights).collect()
}

impl Log {
    /// Whether a right was used.
    pub(super) fn has_used(&self, right: &str) -> bool {
        self.used.lock().contains(right)
    }

    /// Waits until a right was used.
    pub(super) async fn wait_for(&self, right: &str) {
        eventually(async || self.has_used(right)).await;
    }

    /// Fails if the component was refused anything.
    pub(super) fn check_not_forbidden(&self, component: Component) {
        let forbidden = self.forbidden.lock().clone();
        assert!(forbidden.is_empty(), "{component} may not {forbidden:?}");
    }

    /// Fails unless the component used every right that it has but these, and was refused none.
    pub(super) async fn check(&self, component: Component, unused: &[&str]) {
        let expected: BTreeSet<&str> = unused.iter().copied().collect();
        let all_used =
            eventually(async || self.unused(component).iter().all(|right| expected.contains(&**right)));
        // What is missing is said below.
        let _ = tokio::time::timeout(Duration::from_secs(20), all_used).await;
        self.check_not_forbidden(component);
        let used = self.used.lock().clone();
        let unused = self.unused(component);
        let idle: BTreeSet<&str> = unused.iter().map(String::as_str).collect();
        let surprising: Vec<_> = idle.difference(&expected).collect();
        assert!(
            surprising.is_empty(),
            "{component} has rights that it does not use: {surprising:#?}\nused: {used:#?}"
        );
        let given = given(component);
        let stale: Vec<_> = expected.iter().filter(|&&right| !given.contains(right)).collect();
        assert!(stale.is_empty(), "{component} does not have {stale:#?}");
    }

    /// The rights of a component that it has not used.
    fn unused(&self, component: Component) -> BTreeSet<Right> {
        let used = self.used.lock();
        let is_used = |right: &Right| match right.split_once(" */scale.*") {
            Some((verb, _)) => used.iter().any(|used| used.starts_with(verb) && used.contains("/scale")),
            None => used.contains(right),
        };
        given(component).into_iter().filter(|right| !is_used(right)).collect()
    }
}
