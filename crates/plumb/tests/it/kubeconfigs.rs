//! `plumb kubeconfig`: client certificates that expire, and no static token of an administrator.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};

use super::cluster::{Cluster, config_of};

fn kubeconfig(cluster: &Cluster, args: &[&str], out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    command.arg("kubeconfig").args(args).arg("--out").arg(out).arg("--kubeconfig").arg(cluster.kubeconfig());
    command.output().unwrap()
}

#[tokio::test]
async fn a_user_gets_a_certificate_that_expires_and_no_rights_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(&folder.path().join("data"));
    let out = folder.path().join("alice.kubeconfig");
    let made = kubeconfig(&cluster, &["alice", "--group", "developers", "--expires", "1h"], &out);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert_eq!(std::fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);

    let config = config_of(&out).await;
    let client = Client::try_from(config).unwrap();
    let review = Api::<SelfSubjectReview>::all(client.clone());
    let user = review.create(&PostParams::default(), &SelfSubjectReview::default()).await.unwrap();
    let user = user.status.unwrap().user_info.unwrap();
    assert_eq!(user.username.as_deref(), Some("alice"));
    assert!(user.groups.unwrap().contains(&"developers".to_owned()));
    let refused =
        Api::<ConfigMap>::default_namespaced(client).list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 403));

    let requests =
        Api::<k8s_openapi::api::certificates::v1::CertificateSigningRequest>::all(cluster.client().await);
    let requests = requests.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].spec.expiration_seconds, Some(3600));
}

#[tokio::test]
async fn names_of_the_cluster_short_lifetimes_and_existing_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(&folder.path().join("data"));
    let out = folder.path().join("out");
    let cases: [(&[&str], &str); 4] = [
        (&["bob", "--group", "system:masters"], "would bypass every role"),
        (&["system:node:n1"], "belong to the cluster itself"),
        (&["bob", "--expires", "1m"], "ten minutes or more"),
        (&[""], "need a name"),
    ];
    for (args, expected) in cases {
        let refused = kubeconfig(&cluster, args, &out);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(expected), "{args:?}: {said}");
        assert!(!out.exists());
    }
    std::fs::write(&out, "mine").unwrap();
    let refused = kubeconfig(&cluster, &["bob"], &out);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("exists"));
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "mine");
}

#[tokio::test]
async fn no_static_token_of_the_administrator_is_made_and_an_old_one_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    drop(Cluster::start_alone(&data));
    let file = data.join("pki/tokens.csv");
    assert!(!file.exists());

    std::fs::write(&file, "s3cret-of-an-earlier-version,kubernetes-admin,,system:masters\n").unwrap();
    let cluster = Cluster::start_alone(&data);
    assert!(!file.exists(), "{}", cluster.said());
    let mut config = config_of(&cluster.kubeconfig()).await;
    config.auth_info = kube::config::AuthInfo {
        token: Some("s3cret-of-an-earlier-version".to_owned().into()),
        ..kube::config::AuthInfo::default()
    };
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config).unwrap());
    let refused = maps.list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 401));
}
