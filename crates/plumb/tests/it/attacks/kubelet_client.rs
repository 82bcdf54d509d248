//! A user takes the name of the API server at the node agents.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use plumb_apiserver::pki::{KeyedCertificate, NODE_CLIENT_USER, Pki, SystemClock};
use rcgen::{CertificateParams, DnType, KeyPair};

use crate::it::cluster::{Cluster, config_of};

/// The status of a GET of all pods at an agent, by a client with a certificate.
async fn pods_at(agent: SocketAddr, cluster: &Cluster, certificate: &KeyedCertificate) -> u16 {
    let mut config = config_of(&cluster.kubeconfig()).await;
    config.cluster_url = format!("https://{agent}").parse().unwrap();
    // As any client of an agent whose certificate is the API server's.
    config.tls_server_name = Some("localhost".to_owned());
    let text = format!("{}{}", certificate.certificate_pem(), certificate.key_pem().reveal());
    config.auth_info = kube::config::AuthInfo {
        client_certificate_data: Some(base64_of(&text)),
        client_key_data: Some(base64_of(&text).into()),
        ..kube::config::AuthInfo::default()
    };
    let client = Client::try_from(config).unwrap();
    let request = http::Request::get("/pods").body(Vec::new()).unwrap();
    match client.request_text(request).await {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(other) => panic!("{other}"),
    }
}

fn base64_of(text: &str) -> String {
    use base64::Engine as _;
    base64::prelude::BASE64_STANDARD.encode(text)
}

fn issue(data: &Path, groups: &[&str]) -> KeyedCertificate {
    let pki = Pki::open(data.join("pki"), [], Arc::new(SystemClock)).unwrap();
    pki.issue_client(NODE_CLIENT_USER, groups).unwrap()
}

#[tokio::test]
async fn the_name_of_the_api_server_alone_opens_no_node() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let flags = ["--components", "apiserver,controllers,node", "--runtime", "virtual"];
    let cluster = Cluster::start_with(&data, &flags);
    let nodes: Api<Node> = Api::all(cluster.client().await);
    let status = nodes.get("plumb").await.unwrap().status.unwrap();
    let port = status.daemon_endpoints.unwrap().kubelet_endpoint.unwrap().port;
    // It listens for the API server alone.
    let agent = format!("127.0.0.1:{port}").parse().unwrap();
    assert_eq!(pods_at(agent, &cluster, &issue(&data, &[])).await, 403);
    // With the group it is the API server itself.
    assert_eq!(pods_at(agent, &cluster, &issue(&data, &["system:masters"])).await, 200);

    // Neither command nor signer gives the name.
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    command.args(["kubeconfig", NODE_CLIENT_USER, "--out"]).arg(folder.path().join("out"));
    let refused = command.arg("--kubeconfig").arg(cluster.kubeconfig()).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("is the API server itself"), "{said}");
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, NODE_CLIENT_USER);
    let request = params.serialize_request(&key).unwrap().pem().unwrap();
    let request = CertificateSigningRequest {
        metadata: ObjectMeta { name: Some("taken".to_owned()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.into_bytes()),
            signer_name: "kubernetes.io/kube-apiserver-client".to_owned(),
            usages: Some(vec!["client auth".to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let requests: Api<CertificateSigningRequest> = Api::all(cluster.client().await);
    let refused = requests.create(&PostParams::default(), &request).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 403), "{refused}");
}
