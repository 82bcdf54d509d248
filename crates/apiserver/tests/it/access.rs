//! Authentication and authorization, as seen by clients.

mod bindings;
mod certificates;
mod defaults;
mod escalation;
mod growth;
mod matrix;
mod nodes;
mod reviews;
mod roles;
mod scope;
mod tokens;
mod wire;

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use plumb_apiserver::accounts::{AccountKeys, Accounts, Settings};
use plumb_apiserver::authn::{Authenticator, InProcess, User};
use plumb_apiserver::pki::{Clock as _, Pki};
use plumb_apiserver::{ApiServer, Config, Limits};
use plumb_kinds::api_server;
use plumb_resize::rules::Rules;
use plumb_store::{Options, Store};
use serde_json::{Value, json};

use super::pki::{Place, TestClock};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A cluster with an authority, accounts and a clock of its own.
struct Cluster {
    place: Place,
    pki: Arc<Pki>,
    server: ApiServer,
    keys: AccountKeys,
    admin_token: String,
}

/// The credentials of a request.
#[derive(Clone)]
enum As {
    /// As a user that the process vouches for.
    User(Arc<User>),
    /// With a token.
    Token(String),
    /// None: the anonymous user.
    Anonymous,
}

/// A user in some groups and in `system:authenticated`.
fn user(name: &str, groups: &[&str]) -> As {
    As::User(Arc::new(User::new(name, "", groups.iter().copied())))
}

fn admin() -> As {
    user("kubernetes-admin", &["system:masters"])
}

fn node(name: &str) -> As {
    user(&format!("system:node:{name}"), &["system:nodes"])
}

/// An answer: its code, its body, its warnings.
#[derive(Debug)]
struct ApiResponse {
    code: u16,
    body: Value,
    warnings: Vec<String>,
}

impl ApiResponse {
    #[track_caller]
    fn ok(self) -> Value {
        assert!((200..300).contains(&self.code), "{} {}", self.code, self.body);
        self.body
    }

    #[track_caller]
    fn rejected(self) -> (u16, String) {
        assert!(self.code >= 400, "{} {}", self.code, self.body);
        (self.code, self.body["message"].as_str().unwrap_or_default().to_owned())
    }
}

impl Cluster {
    fn start() -> Self {
        Self::with(Settings::at("https://127.0.0.1:6443"))
    }

    fn with(settings: Settings) -> Self {
        let place = Place::new();
        let pki = Arc::new(place.open().unwrap());
        let (server, keys) = Self::open(&place, &pki, settings);
        let admin_token = place.read("tokens.csv").split(',').next().unwrap().to_owned();
        Self { place, pki, server, keys, admin_token }
    }

    fn open(place: &Place, pki: &Pki, settings: Settings) -> (ApiServer, AccountKeys) {
        let store = Store::open(place.directory.path().join("objects"), Options::default()).unwrap();
        let tokens = place.admin_token().0;
        let clock = Arc::<TestClock>::clone(&place.clock);
        let accounts =
            Accounts::new(pki.service_account_key(), store.clone(), clock.clone(), settings).unwrap();
        let keys = accounts.keys();
        let now = Arc::<TestClock>::clone(&place.clock);
        let config = Config {
            store: store.clone(),
            rules: Rules::kep(),
            clock: Arc::new(move || now.now()),
            limits: Limits::default(),
            authenticator: Authenticator::new(tokens, clock)
                .with_accounts(accounts)
                .with_bootstrap_tokens(store.clone()),
            nodes: None,
            plugins: plumb_kinds::admission_plugins("", "ServiceAccount").unwrap(),
            usage: None,
            audit: None,
        };
        (api_server(config).unwrap(), keys)
    }

    async fn request(&self, who: &As, method: Method, path: &str, body: &Value) -> ApiResponse {
        self.request_with_headers(who, method, path, body, &[]).await
    }

    async fn request_with_headers(
        &self,
        who: &As,
        method: Method,
        path: &str,
        body: &Value,
        headers: &[(&str, &str)],
    ) -> ApiResponse {
        let media = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let mut request = Request::builder().method(method).uri(path).header("content-type", media);
        match who {
            As::User(user) => request = request.extension(InProcess(Arc::clone(user))),
            As::Token(token) => request = request.header("authorization", format!("Bearer {token}")),
            As::Anonymous => {}
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let response = self.server.handle(request.body(Full::new(Bytes::from(body))).unwrap()).await;
        let (head, body) = response.into_parts();
        let bytes =
            if path.contains("watch=") { Bytes::new() } else { body.collect().await.unwrap().to_bytes() };
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)));
        let warnings =
            head.headers.get_all("warning").iter().map(|value| value.to_str().unwrap().to_owned()).collect();
        ApiResponse { code: StatusCode::as_u16(&head.status), body, warnings }
    }

    async fn get(&self, who: &As, path: &str) -> ApiResponse {
        self.request(who, Method::GET, path, &Value::Null).await
    }

    async fn post(&self, who: &As, path: &str, body: &Value) -> ApiResponse {
        self.request(who, Method::POST, path, body).await
    }

    async fn patch(&self, who: &As, path: &str, body: &Value) -> ApiResponse {
        self.request(who, Method::PATCH, path, body).await
    }

    async fn delete(&self, who: &As, path: &str) -> ApiResponse {
        self.request(who, Method::DELETE, path, &Value::Null).await
    }

    /// Makes something as the administrator.
    async fn make(&self, path: &str, body: &Value) -> Value {
        self.post(&admin(), path, body).await.ok()
    }

    async fn cluster_role(&self, name: &str, rules: &Value) {
        self.make(&format!("{RBAC}/clusterroles"), &json!({ "metadata": { "name": name }, "rules": rules }))
            .await;
    }

    async fn role(&self, namespace: &str, name: &str, rules: &Value) {
        let path = format!("{RBAC}/namespaces/{namespace}/roles");
        self.make(&path, &json!({ "metadata": { "name": name }, "rules": rules })).await;
    }

    /// Gives a cluster role to a subject, everywhere.
    async fn bind(&self, name: &str, role: &str, subject: &Value) {
        let binding = binding(name, "ClusterRole", role, subject);
        self.make(&format!("{RBAC}/clusterrolebindings"), &binding).await;
    }

    /// Gives a role of either kind to a subject, in a namespace.
    async fn bind_in(&self, namespace: &str, name: &str, kind: &str, role: &str, subject: &Value) {
        let path = format!("{RBAC}/namespaces/{namespace}/rolebindings");
        self.make(&path, &binding(name, kind, role, subject)).await;
    }

    async fn namespace(&self, name: &str) {
        self.make("/api/v1/namespaces", &json!({ "metadata": { "name": name } })).await;
    }
}

fn binding(name: &str, kind: &str, role: &str, subject: &Value) -> Value {
    json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role },
        "subjects": [subject],
    })
}

fn person(name: &str) -> Value {
    json!({ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name })
}

fn group(name: &str) -> Value {
    json!({ "kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": name })
}

fn account(namespace: &str, name: &str) -> Value {
    json!({ "kind": "ServiceAccount", "namespace": namespace, "name": name })
}

/// A pod of one container on a node; empty for none.
fn pod_on(node: &str, name: &str) -> Value {
    let mut pod = super::test_api_server::pod(name, "100m", "64Mi");
    if !node.is_empty() {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}
