//! What must not reach a log.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenReview};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use super::cluster::{Cluster, admin_token, config_of};

/// A client that shows a token instead of the administrator's certificate.
async fn bearer(kubeconfig: &std::path::Path, token: &str) -> Client {
    let mut config = config_of(kubeconfig).await;
    config.auth_info = kube::config::AuthInfo { token: Some(token.to_owned().into()), ..Default::default() };
    Client::try_from(config).unwrap()
}

#[tokio::test]
async fn a_token_never_appears_in_a_log() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let cluster = Cluster::start_with(&data, &["--log", "trace"]);
    let kubeconfig = cluster.kubeconfig();
    let admin = cluster.client().await;

    let account: ServiceAccount = serde_json::from_value(json!({ "metadata": { "name": "app" } })).unwrap();
    let accounts: Api<ServiceAccount> = Api::default_namespaced(admin.clone());
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let (post, request) = (PostParams::default(), TokenRequest::default());
    let made = accounts.create_token_request("app", &post, &request).await.unwrap();
    let token = made.status.unwrap().token.unwrap();
    let of_admin = admin_token(&data);
    let wrong = "wrong-0123456789-wrong".to_owned();
    let forged = format!("{token}x");
    for (token, code) in [(&token, 403), (&of_admin, 200), (&wrong, 401), (&forged, 401)] {
        let maps: Api<ConfigMap> = Api::default_namespaced(bearer(&kubeconfig, token).await);
        let found = match maps.list(&ListParams::default()).await {
            Ok(_) => 200,
            Err(kube::Error::Api(status)) => status.code,
            Err(other) => panic!("{other}"),
        };
        assert_eq!(found, code);
        let review: TokenReview = serde_json::from_value(json!({ "spec": { "token": token } })).unwrap();
        Api::all(admin.clone()).create(&PostParams::default(), &review).await.unwrap();
    }
    let said = cluster.said();
    assert!(said.contains("TRACE") && said.contains("refused a bearer token"), "it did log");
    let signature = token.rsplit('.').next().unwrap().to_owned();
    for secret in [&token, &of_admin, &wrong, &forged, &signature, &BASE64_STANDARD.encode(&token)] {
        assert!(!said.contains(secret.as_str()), "a token is in the log");
    }
    assert!(!said.contains("PRIVATE KEY"));
}
