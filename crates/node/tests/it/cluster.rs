//! An API server in this process, and a node's place in it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use plumb_apiserver::accounts::{Accounts, Settings};
use plumb_apiserver::admission::Plugins;
use plumb_apiserver::authn::{Authenticator, Tokens, User};
use plumb_apiserver::pki::{Pki, SystemClock};
use plumb_apiserver::{ApiServer, Config, Limits, NodeLink};
use plumb_resize::rules::Rules;
use plumb_store::{Options, Store};
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// The node that tests are.
pub(super) const NODE: &str = "n1";

/// A cluster that has an API server and nothing else.
pub(super) struct Cluster {
    pub(super) pki: Pki,
    server: ApiServer,
    away: Arc<AtomicBool>,
    /// The next request of the node whose path ends like this panics.
    pub(super) panics: Arc<Mutex<Option<String>>>,
    _folder: tempfile::TempDir,
}

impl Cluster {
    pub(super) fn start() -> Self {
        Self::start_under(Rules::v1_36())
    }

    /// One in which these rules bind.
    pub(super) fn start_under(rules: Rules) -> Self {
        plumb_apiserver::serve::install_crypto();
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("objects"), Options::default()).unwrap();
        let clock = Arc::new(SystemClock);
        let pki = Pki::open(folder.path().join("pki"), ["127.0.0.1".to_owned()], clock.clone()).unwrap();
        let settings = Settings::at("https://127.0.0.1".to_owned());
        let accounts =
            Accounts::new(pki.service_account_key(), store.clone(), clock.clone(), settings).unwrap();
        let tokens = Tokens::default();
        let server = ApiServer::new(Config {
            store,
            rules,
            clock: Arc::new(Timestamp::now),
            limits: Limits::default(),
            authenticator: Authenticator::new(tokens, clock).with_accounts(accounts),
            nodes: Some(NodeLink::new(&pki).unwrap()),
            usage: None,
            plugins: Plugins::new("", "ServiceAccount").unwrap(),
        })
        .unwrap();
        Self { pki, server, away: Arc::default(), panics: Arc::default(), _folder: folder }
    }

    /// The API as the administrator sees it.
    pub(super) fn admin(&self) -> Client {
        Client::new(self.server.inside(User::new("admin", "", ["system:masters"])), "default")
    }

    /// The API as the node sees it, unless the server is away.
    pub(super) fn node(&self) -> Client {
        let inside = self.server.inside(User::new(format!("system:node:{NODE}"), "", ["system:nodes"]));
        let (away, panics) = (self.away.clone(), self.panics.clone());
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (inside, away) = (inside.clone(), away.load(Ordering::SeqCst));
            let panics = panics.clone();
            async move {
                let path = request.uri().path();
                let strikes = panics.lock().unwrap().take_if(|end| path.ends_with(&**end)).is_some();
                assert!(!strikes, "the request for {path} panics");
                if away {
                    return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
                }
                inside.oneshot(request).await.map_err(|never| match never {})
            }
        });
        Client::new(service, "default")
    }

    /// Has the node's requests fail, or not any more.
    pub(super) fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    /// Makes a pod that is bound to the node.
    pub(super) async fn pod(&self, spec: Value) -> Pod {
        let mut spec = spec;
        spec["nodeName"] = json!(NODE);
        let metadata = json!({
            "generateName": "pod-", "labels": { "app": "web" }, "annotations": { "note": "a \"b\"\n" },
        });
        let pod = serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap();
        Api::default_namespaced(self.admin()).create(&PostParams::default(), &pod).await.unwrap()
    }

    pub(super) async fn config_map(&self, name: &str, data: Value) {
        let maps = Api::<ConfigMap>::default_namespaced(self.admin());
        let map =
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data });
        maps.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(map)).await.unwrap();
    }

    pub(super) async fn secret(&self, name: &str, data: Value) {
        let secrets = Api::<Secret>::default_namespaced(self.admin());
        let secret = json!({ "metadata": { "name": name }, "stringData": data });
        let secret = serde_json::from_value(secret).unwrap();
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    }
}

/// Waits for something that must come.
pub(super) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(1), what).await.unwrap()
}

/// Polls until a condition holds for which there is no event.
pub(super) async fn until(mut holds: impl FnMut() -> bool) {
    soon(async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
