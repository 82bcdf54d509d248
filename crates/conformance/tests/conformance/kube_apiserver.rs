//! A real kube-apiserver, and requests to it.

use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use plumb_conformance::{cli, scenario};
use plumb_testbed::{Cluster, Config, Parts};
use serde_json::{Value, json};

/// What kube-apiserver responded.
pub(super) struct Response {
    pub(super) code: u16,
    /// Null if it is not JSON: a kind that is not served yet is refused in plain text.
    pub(super) body: Value,
    /// The headers `Warning`.
    pub(super) warnings: Vec<String>,
}

/// Starts one, with a client that takes a refusal for a response and tries nothing twice.
pub(super) async fn start() -> (Cluster, Client) {
    plumb_testbed::install_crypto();
    let cluster = Cluster::start(Config::of(Parts::ApiServer)).await.expect("it starts");
    let client = cli::client(Some(cluster.kubeconfig_path().to_owned())).await.expect("a client");
    (cluster, client)
}

/// Sends a request.
pub(super) async fn send(client: &Client, request: Request<Vec<u8>>) -> Response {
    let (head, body) = client.send(request.map(Body::from)).await.expect("a response").into_parts();
    let bytes = body.collect().await.expect("a body").to_bytes();
    let warnings = head.headers.get_all("warning").iter();
    let warnings = warnings.map(|text| String::from_utf8_lossy(text.as_bytes()).into_owned()).collect();
    let code = head.status.as_u16();
    Response { code, body: serde_json::from_slice(&bytes).unwrap_or_default(), warnings }
}

/// Sends a request with a JSON body, or without one; see [`scenario::request`].
pub(super) async fn ask(client: &Client, method: &str, path: &str, body: &Value) -> Response {
    let body = (!body.is_null()).then(|| body.to_string());
    send(client, scenario::request(method, path, body).expect("a request")).await
}

/// Creates a namespace, and the service account that pods need: no controller runs that would.
pub(super) async fn create_namespace(client: &Client, name: &str) {
    let accounts = format!("/api/v1/namespaces/{name}/serviceaccounts");
    for (path, name) in [("/api/v1/namespaces", name), (accounts.as_str(), "default")] {
        let created = ask(client, "POST", path, &json!({ "metadata": { "name": name } })).await;
        assert_eq!(created.code, 201, "{path} {name}: {}", created.body);
    }
}
