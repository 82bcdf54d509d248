//! An API server in this process, and the objects that the pods of a node name.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use http::Uri;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use plumb_apiserver::pki::{Pki, SystemClock};
use plumb_resize::rules::Rules;
use plumb_testkit::{Options, TestCluster, object};
use serde_json::{Value, json};

/// The node that tests are.
pub(super) const NODE: &str = "n1";

/// A cluster with an API server and no other component.
pub(super) struct Cluster {
    pub(super) pki: Arc<Pki>,
    api: TestCluster,
    away: Arc<AtomicBool>,
    /// The paths of the node's requests.
    requests: Arc<Mutex<Vec<String>>>,
    /// The node's requests whose path ends like this fail.
    pub(super) refused: Arc<Mutex<Option<String>>>,
    /// The next request of the node whose path ends like this panics.
    pub(super) panics: Arc<Mutex<Option<String>>>,
    _certificates: tempfile::TempDir,
}

impl Cluster {
    pub(super) fn start() -> Self {
        Self::start_under(Rules::v1_36())
    }

    /// One in which these rules bind.
    pub(super) fn start_under(rules: Rules) -> Self {
        plumb_apiserver::serve::install_crypto();
        let certificates = tempfile::tempdir().unwrap();
        let pki = Pki::open(certificates.path(), ["127.0.0.1".to_owned()], Arc::new(SystemClock));
        let pki = Arc::new(pki.unwrap());
        let api = TestCluster::with(Options { rules, pki: Some(pki.clone()), ..Options::default() });
        Self {
            pki,
            api,
            away: Arc::default(),
            requests: Arc::default(),
            panics: Arc::default(),
            refused: Arc::default(),
            _certificates: certificates,
        }
    }

    /// The API as the administrator sees it.
    pub(super) fn admin(&self) -> Client {
        self.api.admin()
    }

    /// The API as the node sees it, unless the server is unreachable.
    pub(super) fn node(&self) -> Client {
        let (away, panics, requests) = (self.away.clone(), self.panics.clone(), self.requests.clone());
        let refused = self.refused.clone();
        self.api.intercepted(&format!("system:node:{NODE}"), ["system:nodes"], move |uri: &mut Uri| {
            let path = uri.path();
            let strikes = panics.lock().unwrap().take_if(|end| path.ends_with(&**end)).is_some();
            assert!(!strikes, "the request for {path} panics");
            requests.lock().unwrap().push(path.to_owned());
            let refused = refused.lock().unwrap().as_ref().is_some_and(|end| path.ends_with(&**end));
            let is_away = refused || away.load(Ordering::SeqCst);
            if is_away { Err(io::ErrorKind::ConnectionRefused.into()) } else { Ok(()) }
        })
    }

    /// Has the node's requests fail, or not any more.
    pub(super) fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    /// How many requests the node has sent whose path ends like this.
    pub(super) fn requests(&self, end: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|path| path.ends_with(end)).count()
    }

    /// Makes a pod that is bound to the node.
    pub(super) async fn pod(&self, spec: Value) -> Pod {
        let mut spec = spec;
        spec["nodeName"] = json!(NODE);
        let metadata = json!({
            "generateName": "pod-", "labels": { "app": "web" }, "annotations": { "note": "a \"b\"\n" },
        });
        let pod = object(json!({ "metadata": metadata, "spec": spec }));
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
        let secret = object(json!({ "metadata": { "name": name }, "stringData": data }));
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    }
}
