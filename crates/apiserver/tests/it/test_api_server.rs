//! An API server for tests, over a store in a temporary folder, called without a socket.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use plumb_apiserver::admission::Plugins;
use plumb_apiserver::authn::{Authenticator, InProcess, Tokens, User};
use plumb_apiserver::pki::SystemClock;
use plumb_apiserver::usage::UsageSource;
use plumb_apiserver::{ApiServer, Config, KubeletClient, Limits};
use plumb_audit::Auditor;
use plumb_kinds::{AdmissionConfiguration, Features, admission_plugins, configured_api_server};
use plumb_resize::rules::Rules;
use plumb_store::{Options, Store};
use serde_json::{Value, json};

/// An API server and the folder that it lives in.
pub(crate) struct TestApiServer {
    pub(crate) server: ApiServer,
    store: Store,
    _folder: tempfile::TempDir,
}

/// An answer: its status, its body, its warnings.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

impl ApiResponse {
    /// The body, if all went well.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!(self.status.is_success(), "{} {}", self.status, self.body);
        self.body
    }

    /// The refusal's code, reason and message.
    #[track_caller]
    pub(crate) fn rejected(self) -> (u16, String, String) {
        assert!(!self.status.is_success(), "{} {}", self.status, self.body);
        let text = |field: &str| self.body[field].as_str().unwrap_or_default().to_owned();
        (self.status.as_u16(), text("reason"), text("message"))
    }
}

/// The moment at which all tests take place.
pub(crate) const NOW: &str = "2026-01-02T03:04:05Z";

/// What a server is made of, besides its store.
struct Setup {
    rules: Rules,
    nodes: Option<KubeletClient>,
    plugins: Plugins,
    admission: AdmissionConfiguration,
    usage: Option<Arc<dyn UsageSource>>,
    limits: Limits,
    audit: Option<Arc<Auditor>>,
}

impl Setup {
    /// No controller creates service accounts here, so pods need none.
    fn new(rules: Rules) -> Self {
        let plugins = admission_plugins("", "ServiceAccount").unwrap();
        let admission = AdmissionConfiguration::default();
        Self { rules, nodes: None, plugins, admission, usage: None, limits: Limits::default(), audit: None }
    }
}

impl TestApiServer {
    /// A server without the plugin `ServiceAccount`.
    pub(crate) fn open(rules: Rules) -> Self {
        Self::with(Setup::new(rules))
    }

    /// The same with a source of metrics.
    pub(crate) fn measuring(rules: Rules, usage: Arc<dyn UsageSource>) -> Self {
        Self::with(Setup { usage: Some(usage), ..Setup::new(rules) })
    }

    /// The same with an audit policy and a source of metrics.
    pub(crate) fn audited(auditor: Arc<Auditor>, usage: Option<Arc<dyn UsageSource>>) -> Self {
        Self::with(Setup { audit: Some(auditor), usage, ..Setup::new(Rules::kep()) })
    }

    /// The same with connections to nodes.
    pub(crate) fn with_nodes(rules: Rules, nodes: Option<KubeletClient>) -> Self {
        Self::with(Setup { nodes, ..Setup::new(rules) })
    }

    /// The same with other plugins.
    pub(crate) fn open_with(rules: Rules, plugins: Plugins) -> Self {
        Self::with(Setup { plugins, ..Setup::new(rules) })
    }

    /// The same with a configuration of plugins.
    pub(crate) fn configured(rules: Rules, admission: AdmissionConfiguration) -> Self {
        Self::with(Setup { admission, ..Setup::new(rules) })
    }

    /// The same with all plugins and other limits.
    pub(crate) fn narrow(rules: Rules, limits: Limits) -> Self {
        Self::with(Setup { plugins: Plugins::default(), limits, ..Setup::new(rules) })
    }

    /// The same over a store that holds something already.
    pub(crate) fn over(store: Store, rules: Rules) -> Self {
        Self::on(tempfile::tempdir().unwrap(), store, Setup::new(rules))
    }

    /// The same over a store with little history.
    pub(crate) fn forgetful(history: usize) -> (Store, Self) {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { history, ..Options::default() };
        let store = Store::open(folder.path().join("objects"), options).unwrap();
        (store.clone(), Self::on(folder, store, Setup::new(Rules::kep())))
    }

    fn with(setup: Setup) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("objects"), Options::default()).unwrap();
        Self::on(folder, store, setup)
    }

    fn on(folder: tempfile::TempDir, store: Store, setup: Setup) -> Self {
        let Setup { rules, nodes, plugins, admission, usage, limits, audit } = setup;
        let now: Timestamp = NOW.parse().unwrap();
        let config = Config {
            store: store.clone(),
            rules,
            clock: Arc::new(move || now),
            limits,
            authenticator: Authenticator::new(Tokens::default(), Arc::new(SystemClock)),
            nodes,
            plugins,
            usage,
            audit,
        };
        let server = configured_api_server(config, Features::default(), admission).unwrap();
        Self { server, store, _folder: folder }
    }

    /// Where its objects are.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        media: &str,
        body: impl Into<Bytes>,
    ) -> ApiResponse {
        self.request_as(admin(), method, path, media, body).await
    }

    /// Sends a request as another user.
    pub(crate) async fn request_as(
        &self,
        who: InProcess,
        method: Method,
        path: &str,
        media: &str,
        body: impl Into<Bytes>,
    ) -> ApiResponse {
        let request =
            Request::builder().method(method).uri(path).header("content-type", media).extension(who);
        self.answer(request.body(Full::new(body.into())).unwrap()).await
    }

    /// Requests a table.
    pub(crate) async fn table(&self, path: &str) -> ApiResponse {
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let request = Request::get(path).header("accept", accept).extension(admin());
        self.answer(request.body(Full::default()).unwrap()).await
    }

    async fn answer(&self, request: Request<Full<Bytes>>) -> ApiResponse {
        let response = self.server.handle(request).await;
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let values = head.headers.get_all("warning").iter();
        let warnings = values.map(|text| String::from_utf8(text.as_bytes().to_vec()).unwrap()).collect();
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)));
        ApiResponse { status: head.status, body, warnings }
    }

    pub(crate) async fn get(&self, path: &str) -> ApiResponse {
        self.request(Method::GET, path, "", "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> ApiResponse {
        self.request(Method::POST, path, "application/json", body.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> ApiResponse {
        self.request(Method::PUT, path, "application/json", body.to_string()).await
    }

    pub(crate) async fn merge(&self, path: &str, body: &Value) -> ApiResponse {
        self.request(Method::PATCH, path, "application/merge-patch+json", body.to_string()).await
    }

    pub(crate) async fn strategic(&self, path: &str, body: &Value) -> ApiResponse {
        self.request(Method::PATCH, path, "application/strategic-merge-patch+json", body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str, body: &Value) -> ApiResponse {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.request(Method::DELETE, path, "application/json", body).await
    }
}

/// Who may do everything.
pub(crate) fn admin() -> InProcess {
    InProcess(Arc::new(User::new("kubernetes-admin", "", ["system:masters"])))
}

/// A pod of one container with equal requests and limits.
pub(crate) fn pod(name: &str, cpu: &str, memory: &str) -> Value {
    let amounts = json!({ "cpu": cpu, "memory": memory });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "containers": [{
            "name": "main", "image": "plumb/load", "resources": { "requests": amounts, "limits": amounts },
        }]},
    })
}
