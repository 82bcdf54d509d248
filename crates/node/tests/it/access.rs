//! The way of clients to a node: through the API server, over TLS.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{AsyncBufReadExt as _, TryStreamExt as _};
use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{LogParams, PostParams};
use plumb_apiserver::authn::Peer;
use plumb_apiserver::pki::NODE_CLIENT_USER;
use plumb_apiserver::serve::{self, Listener};
use plumb_node::register::{Machine, NodeHealth, Registrar, Setup};
use plumb_testkit::in_time;
use serde_json::{Value, json};

use super::cluster::{Cluster, NODE};
use super::server::Node;

/// A node whose server listens at the address in its Node.
async fn serving(cluster: &Cluster) -> (Node, SocketAddr) {
    let node = Node::behind(Arc::new(|extensions| {
        let certificate = extensions.get::<Peer>().and_then(Peer::certificate);
        certificate.is_some_and(|certificate| certificate.user().name() == NODE_CLIENT_USER)
    }))
    .await;
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let at = listener.address();
    let (trigger, shutdown) = serve::shutdown();
    let tls = serve::tls(&cluster.pki).unwrap();
    let service = node.server.clone();
    tokio::spawn(async move {
        let _trigger = trigger;
        serve::serve(listener, tls, serve::Limits::default(), service, shutdown).await
    });
    let mut setup = Setup::new(NODE);
    (setup.addresses, setup.port) = (vec![at.ip()], at.port());
    let registrar =
        Registrar::new(cluster.node(), setup, Arc::new(Machine::default()), Arc::new(Timestamp::now));
    registrar.register(&NodeHealth::default()).await.unwrap();
    (node, at)
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_and_usage_come_through_the_api_server() {
    let cluster = Cluster::start();
    let (node, _) = serving(&cluster).await;
    let pods = Api::<Pod>::default_namespaced(cluster.admin());
    let pod = json!({
        "metadata": { "name": "web" },
        "spec": { "nodeName": NODE, "containers": [{ "name": "c", "image": "i" }] },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    node.write(1, "one");
    node.write(2, "two");
    let tail = LogParams { tail_lines: Some(1), timestamps: true, ..LogParams::default() };
    assert_eq!(in_time(pods.logs("web", &tail)).await.unwrap(), "2026-01-01T00:00:02Z two\n");

    let follow = LogParams { follow: true, ..LogParams::default() };
    let mut lines = in_time(pods.log_stream("web", &follow)).await.unwrap().lines();
    for expected in ["one", "two"] {
        assert_eq!(in_time(lines.try_next()).await.unwrap().as_deref(), Some(expected));
    }
    node.write(3, "three");
    assert_eq!(in_time(lines.try_next()).await.unwrap().as_deref(), Some("three"));

    let path = format!("/api/v1/nodes/{NODE}/proxy/stats/summary");
    let request = Request::get(path).body(Vec::new()).unwrap();
    let summary: Value = in_time(cluster.admin().request(request)).await.unwrap();
    assert_eq!(summary["pods"][0]["podRef"]["name"], "web");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_the_api_servers_certificate_is_rejected() {
    let cluster = Cluster::start();
    let (_node, at) = serving(&cluster).await;
    let mut config = kube::Config::new(format!("https://{at}").parse().unwrap());
    config.accept_invalid_certs = true;
    config.connect_timeout = Some(Duration::from_secs(10));
    let client = kube::Client::try_from(config).unwrap();
    let ask = async |path: &str| {
        let request = Request::get(path).body(kube::client::Body::empty()).unwrap();
        in_time(client.send(request)).await.unwrap().status().as_u16()
    };
    assert_eq!(ask("/healthz").await, 200);
    assert_eq!(ask("/pods").await, 403);
    assert_eq!(ask("/containerLogs/default/web/c").await, 403);
}
