//! `CertificateSigningRequests` and bootstrap tokens.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::Method;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

use super::{As, Cluster, admin, node, user};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const OF_NODES: &str = "kubernetes.io/kube-apiserver-client-kubelet";

fn request(name: &str, signer: &str, user: &str, group: &str) -> Value {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, group);
    params.distinguished_name.push(DnType::CommonName, user);
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    json!({ "metadata": { "name": name }, "spec": {
        "request": BASE64_STANDARD.encode(pem), "signerName": signer,
        "usages": ["digital signature", "client auth"], "username": "another-user", "groups": ["system:masters"],
    } })
}

fn with_condition(mut object: Value, kind: &str) -> Value {
    object["status"]["conditions"] = json!([{ "type": kind, "status": "True", "reason": "Test" }]);
    object
}

#[tokio::test]
async fn the_server_records_the_requesting_user_and_the_spec_is_immutable() {
    let cluster = Cluster::start();
    let signing_request = request("n1", OF_NODES, "system:node:n1", "system:nodes");
    let made = cluster.post(&node("n1"), REQUESTS, &with_condition(signing_request, "Approved")).await.ok();
    assert_eq!(made["spec"]["username"], "system:node:n1");
    assert_eq!(made["spec"]["groups"], json!(["system:nodes", "system:authenticated"]));
    assert!(made["status"].get("conditions").is_none(), "{made}");

    let mut changed = made.clone();
    changed["spec"]["username"] = json!("kubernetes-admin");
    changed["spec"]["usages"] = json!(["server auth"]);
    changed["metadata"]["labels"] = json!({ "a": "b" });
    let path = format!("{REQUESTS}/n1");
    let after = cluster.request(&admin(), Method::PUT, &path, &changed).await.ok();
    assert_eq!(after["spec"], made["spec"]);
    assert_eq!(after["metadata"]["labels"]["a"], "b");
}

#[tokio::test]
async fn approval_and_signing_are_separate_permissions_per_signer() {
    let cluster = Cluster::start();
    let controller =
        user("system:serviceaccount:kube-system:certificate-controller", &["system:serviceaccounts"]);
    let serving =
        user("system:serviceaccount:kube-system:kubelet-serving-approver", &["system:serviceaccounts"]);
    let made = cluster
        .post(&admin(), REQUESTS, &request("n1", OF_NODES, "system:node:n1", "system:nodes"))
        .await
        .ok();
    let (approval, status) = (format!("{REQUESTS}/n1/approval"), format!("{REQUESTS}/n1/status"));
    let approved = with_condition(made.clone(), "Approved");
    // `/status` cannot approve.
    let (code, why) = cluster.request(&admin(), Method::PUT, &status, &approved).await.rejected();
    assert_eq!(
        (code, why.contains("updates may not add a condition of type \"Approved\"")),
        (422, true),
        "{why}"
    );
    let (code, why) = cluster.request(&serving, Method::PUT, &approval, &approved).await.rejected();
    assert_eq!(code, 403);
    assert!(why.contains("user not permitted to approve requests with signerName \"kubernetes.io/kube-apiserver-client-kubelet\""), "{why}");
    let approved = cluster.request(&controller, Method::PUT, &approval, &approved).await.ok();
    assert!(approved["status"]["conditions"][0]["lastTransitionTime"].is_string());

    let mut signed = approved.clone();
    signed["status"]["certificate"] = json!(BASE64_STANDARD.encode(cluster.pki.authority_pem()));
    // `/approval` cannot set the certificate.
    let again = cluster.request(&controller, Method::PUT, &approval, &signed).await.ok();
    assert!(again["status"].get("certificate").is_none(), "{again}");
    let (code, _) = cluster.request(&node("n1"), Method::PUT, &status, &signed).await.rejected();
    assert_eq!(code, 403);
    let after = cluster.request(&controller, Method::PUT, &status, &signed).await.ok();
    assert_eq!(after["status"]["certificate"], signed["status"]["certificate"]);
    assert_eq!(after["status"]["conditions"], approved["status"]["conditions"]);
    let denied = with_condition(after, "Denied");
    let (_, why) = cluster.request(&controller, Method::PUT, &approval, &denied).await.rejected();
    assert!(why.contains("updates may not remove a condition of type \"Approved\""), "{why}");
}

#[tokio::test]
async fn forbidden_certificate_signing_requests_are_rejected() {
    let cluster = Cluster::start();
    let table: [(As, Value, &str); 5] = [
        (
            admin(),
            request("a", "kubernetes.io/kube-apiserver-client", "jane", "system:masters"),
            "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
        ),
        (
            node("n2"),
            request("b", OF_NODES, "system:node:n1", "system:nodes"),
            "can only create a node CSR with CN=system:node:n2",
        ),
        (
            admin(),
            request("c", "kubernetes.io/legacy-unknown", "x", "y"),
            "the legacy signerName is not allowed via this API version",
        ),
        (
            admin(),
            request("d", "nowhere", "x", "y"),
            "must be a fully qualified domain and path of the form 'example.com/signer-name'",
        ),
        (
            admin(),
            json!({ "metadata": { "name": "e" }, "spec": { "request": "eA==", "signerName": OF_NODES, "usages": ["flying"] } }),
            "PEM block type must be CERTIFICATE REQUEST",
        ),
    ];
    for (who, signing_request, expected) in table {
        let (_, why) = cluster.post(&who, REQUESTS, &signing_request).await.rejected();
        assert!(why.contains(expected), "{why}");
    }
}

#[tokio::test]
async fn a_certificate_is_issued_as_its_request_specifies() {
    let cluster = Cluster::start();
    let signing_request = request("n1", OF_NODES, "system:node:n1", "system:nodes");
    let pem = BASE64_STANDARD.decode(signing_request["spec"]["request"].as_str().unwrap()).unwrap();
    let request = plumb_certificates::Request::parse(&pem).unwrap();
    let usages = [plumb_certificates::Usage::DigitalSignature, plumb_certificates::Usage::ClientAuth];
    let made = cluster.pki.sign(&request, &usages, jiff::SignedDuration::from_hours(1)).unwrap();
    let (_, block) = x509_parser::pem::parse_x509_pem(made.as_bytes()).unwrap();
    let identity = plumb_apiserver::authn::CertificateIdentity::read(&block.contents).unwrap();
    assert_eq!(identity.user().name(), "system:node:n1");
    assert_eq!(identity.user().groups()[0], "system:nodes");
    let certificate = block.parse_x509().unwrap();
    let purposes = certificate.extended_key_usage().unwrap().unwrap().value;
    assert!(purposes.client_auth && !purposes.server_auth);
    assert!(!certificate.is_ca());
    assert_eq!(certificate.public_key().raw, request.public_key);
}

#[tokio::test]
async fn a_bootstrap_token_can_request_a_certificate_and_nothing_else() {
    let cluster = Cluster::start();
    let data = |text: &str| BASE64_STANDARD.encode(text);
    let secret = json!({ "metadata": { "name": "bootstrap-token-abcdef" }, "type": "bootstrap.kubernetes.io/token", "data": {
        "token-id": data("abcdef"), "token-secret": data("0123456789abcdef"),
        "usage-bootstrap-authentication": data("true"),
        "auth-extra-groups": data("system:bootstrappers:plumb:default-node-token"),
    } });
    let bearer = As::Token("abcdef.0123456789abcdef".to_owned());
    assert_eq!(cluster.get(&bearer, REQUESTS).await.rejected().0, 401);
    cluster.post(&admin(), "/api/v1/namespaces/kube-system/secrets", &secret).await.ok();
    cluster.get(&bearer, REQUESTS).await.ok();
    let signing_request = request("n1", OF_NODES, "system:node:n1", "system:nodes");
    let made = cluster.post(&bearer, REQUESTS, &signing_request).await.ok();
    assert_eq!(made["spec"]["username"], "system:bootstrap:abcdef");
    for path in ["/api/v1/nodes", "/api/v1/namespaces/kube-system/secrets", "/api/v1/pods"] {
        assert_eq!(cluster.get(&bearer, path).await.rejected().0, 403, "{path}");
    }
    let path = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef";
    cluster.request(&admin(), Method::DELETE, path, &Value::Null).await.ok();
    assert_eq!(cluster.get(&bearer, REQUESTS).await.rejected().0, 401);
}

#[tokio::test]
async fn an_anonymous_user_can_read_cluster_info() {
    let cluster = Cluster::start();
    let maps = "/api/v1/namespaces/kube-public/configmaps";
    let writer = user("system:serviceaccount:kube-system:cluster-info", &["system:serviceaccounts"]);
    let info = json!({ "metadata": { "name": "cluster-info" }, "data": { "kubeconfig": "{}" } });
    cluster.post(&writer, maps, &info).await.ok();
    let read = cluster.get(&As::Anonymous, &format!("{maps}/cluster-info")).await.ok();
    assert_eq!(read["data"]["kubeconfig"], "{}");
    assert_eq!(cluster.get(&As::Anonymous, maps).await.rejected().0, 401);
    let change = cluster.request(&As::Anonymous, Method::PUT, &format!("{maps}/cluster-info"), &read).await;
    assert_eq!(change.rejected().0, 403);
}
