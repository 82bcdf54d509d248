//! The address of a node of `plumb up`, and where its agent listens.

use k8s_openapi::api::core::v1::Node;
use kube::Api;

use super::cluster::Cluster;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_has_the_address_of_the_machine_and_its_agent_listens_for_the_api_server_alone() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let flags = ["--components", "apiserver,controllers,node", "--runtime", "virtual"];
    // No packet is sent; the documentation of RFC 5737 has the address.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let routed = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
    let usual = routed.map_or("127.0.0.1".to_owned(), |address| address.ip().to_string());
    for (given, expected) in [(&[][..], usual.as_str()), (&["--node-ip", "198.51.100.7"], "198.51.100.7")] {
        let cluster = Cluster::start_with(&data, &[&flags[..], given].concat());
        let client = cluster.client().await;
        let nodes: Api<Node> = Api::all(client.clone());
        let status = nodes.get("plumb").await.unwrap().status.unwrap();
        let addresses = status.addresses.unwrap();
        let internal = addresses.iter().find(|address| address.type_ == "InternalIP").unwrap();
        assert_eq!(internal.address, expected);
        let port = status.daemon_endpoints.unwrap().kubelet_endpoint.unwrap().port;
        // The API server reaches the agent, and verifies its certificate.
        let request = http::Request::get("/api/v1/nodes/plumb/proxy/healthz").body(Vec::new()).unwrap();
        assert_eq!(client.request_text(request).await.unwrap(), "ok");
        let elsewhere = format!("127.0.0.2:{port}").parse().unwrap();
        let refused = std::net::TcpStream::connect_timeout(&elsewhere, plumb_testkit::TIMEOUT).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        assert!(cluster.stop().success());
    }
}
