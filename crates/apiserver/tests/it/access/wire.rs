//! A node with a client certificate, over TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::{AuthInfo, Cluster as KubeCluster, Context, KubeConfigOptions, Kubeconfig};
use kube::config::{NamedAuthInfo, NamedCluster, NamedContext};
use kube::{Api, Client};
use plumb_apiserver::authn::{Authenticator, Tokens};
use plumb_apiserver::pki::{KeyedCertificate, Pki, SystemClock};
use plumb_apiserver::serve::{self, Listener, Trigger};
use plumb_apiserver::{Config, Limits};
use plumb_kinds::api_server;
use plumb_resize::rules::Rules;
use plumb_store::{Options, Store};
use serde_json::json;

/// A server on a socket.
struct Served {
    pki: Pki,
    url: String,
    _trigger: Trigger,
    _folder: tempfile::TempDir,
}

impl Served {
    fn start() -> Self {
        serve::install_crypto();
        let folder = tempfile::tempdir().unwrap();
        let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        // Real clients have only the machine's clock.
        let clock = Arc::new(SystemClock);
        let pki = Pki::open(folder.path().join("pki"), ["127.0.0.1".to_owned()], clock.clone()).unwrap();
        let tokens = Tokens::default();
        let config = Config {
            store: Store::open(folder.path().join("objects"), Options::default()).unwrap(),
            rules: Rules::kep(),
            clock: Arc::new(Timestamp::now),
            limits: Limits::default(),
            authenticator: Authenticator::new(tokens, clock),
            nodes: None,
            plugins: plumb_kinds::admission_plugins("", "ServiceAccount").unwrap(),
            usage: None,
            audit: None,
        };
        let (trigger, shutdown) = serve::shutdown();
        let (url, tls) = (listener.url(), serve::tls(&pki).unwrap());
        let server = api_server(config).unwrap();
        tokio::spawn(serve::serve(listener, tls, serve::Limits::default(), server, shutdown));
        Self { pki, url, _trigger: trigger, _folder: folder }
    }

    /// A client that trusts this server and shows a certificate.
    async fn client(&self, identity: &KeyedCertificate) -> Client {
        let encode = |text: String| Some(BASE64_STANDARD.encode(text));
        let cluster = KubeCluster {
            server: Some(self.url.clone()),
            certificate_authority_data: encode(self.pki.authority_pem()),
            ..KubeCluster::default()
        };
        let auth = AuthInfo {
            client_certificate_data: encode(identity.certificate_pem()),
            client_key_data: encode(identity.key_pem().reveal().to_owned()).map(Into::into),
            ..AuthInfo::default()
        };
        let context = Context { cluster: "c".to_owned(), user: Some("u".to_owned()), ..Context::default() };
        let kubeconfig = Kubeconfig {
            clusters: vec![NamedCluster {
                name: "c".to_owned(),
                cluster: Some(cluster),
                ..NamedCluster::default()
            }],
            auth_infos: vec![NamedAuthInfo {
                name: "u".to_owned(),
                auth_info: Some(auth),
                ..NamedAuthInfo::default()
            }],
            contexts: vec![NamedContext {
                name: "x".to_owned(),
                context: Some(context),
                ..NamedContext::default()
            }],
            current_context: Some("x".to_owned()),
            ..Kubeconfig::default()
        };
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        Client::try_from(config).unwrap()
    }
}

fn code<T>(result: Result<T, kube::Error>) -> u16 {
    match result {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(_) => 0,
    }
}

#[tokio::test]
async fn a_node_with_a_certificate_has_access_to_its_own_pods_only() {
    let served = Served::start();
    let admin = served.client(&served.pki.admin()).await;
    let mut nodes = Vec::new();
    for name in ["n1", "n2"] {
        let issued = served.pki.issue_client(&format!("system:node:{name}"), &["system:nodes"]).unwrap();
        let client = served.client(&issued).await;
        let own: Node = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        Api::<Node>::all(client.clone()).create(&PostParams::default(), &own).await.unwrap();
        nodes.push(client);
    }
    let secret =
        |name: &str| serde_json::from_value::<Secret>(json!({ "metadata": { "name": name } })).unwrap();
    let secrets: Api<Secret> = Api::default_namespaced(admin.clone());
    secrets.create(&PostParams::default(), &secret("used")).await.unwrap();
    secrets.create(&PostParams::default(), &secret("other")).await.unwrap();
    let mut pod = super::pod_on("n1", "web");
    pod["spec"]["volumes"] = json!([{ "name": "v", "secret": { "secretName": "used" } }]);
    let pod: Pod = serde_json::from_value(pod).unwrap();
    Api::<Pod>::default_namespaced(admin).create(&PostParams::default(), &pod).await.unwrap();

    let one = nodes.remove(0);
    let two = nodes.remove(0);
    let seen = async |client: &Client, name: &str| {
        code(Api::<Secret>::default_namespaced(client.clone()).get(name).await)
    };
    assert_eq!(seen(&one, "used").await, 200);
    assert_eq!(seen(&one, "other").await, 403);
    assert_eq!(seen(&two, "used").await, 403);
    let mine = ListParams::default().fields("spec.nodeName=n1");
    assert_eq!(Api::<Pod>::all(one.clone()).list(&mine).await.unwrap().items.len(), 1);
    // Network policies select pods of the whole cluster, so that nodes list them; one by one they get their own.
    assert_eq!(Api::<Pod>::all(two.clone()).list(&mine).await.unwrap().items.len(), 1);
    assert_eq!(code(Api::<Pod>::default_namespaced(two.clone()).get("web").await), 403);
    let status = json!({ "status": { "phase": "Running" } });
    let patch = async |client: &Client| {
        let pods = Api::<Pod>::default_namespaced(client.clone());
        code(pods.patch_status("web", &PatchParams::default(), &Patch::Merge(&status)).await)
    };
    assert_eq!(patch(&one).await, 200);
    assert_eq!(patch(&two).await, 403);
    let taint = json!({ "spec": { "taints": [{ "key": "a", "effect": "NoSchedule" }] } });
    let own = Api::<Node>::all(one.clone());
    assert_eq!(code(own.patch("n1", &PatchParams::default(), &Patch::Merge(&taint)).await), 403);

    // The same name from another authority opens nothing.
    let foreign = super::Place::new().open().unwrap();
    let foreign = foreign.issue_client("system:node:n1", &["system:nodes"]).unwrap();
    assert_eq!(seen(&served.client(&foreign).await, "used").await, 0);
}
