//! `plumb kubeconfig`: client certificates that expire, and no static token of an administrator.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams};
use kube::config::Kubeconfig;
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

/// The kubeconfig of a user who works with another cluster.
const OF_USER: &str = "apiVersion: v1
kind: Config
current-context: production
clusters:
- {name: production, cluster: {server: 'https://192.0.2.1:6443'}}
users:
- {name: ann, user: {token: secret}}
contexts:
- {name: production, context: {cluster: production, user: ann}}
";

/// Runs `plumb down --purge` on a data directory.
fn purge(data: &Path) -> String {
    let mut down = Command::new(env!("CARGO_BIN_EXE_plumb"));
    let output = down.args(["down", "--purge", "--data-dir"]).arg(data).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn two_clusters_in_the_file_of_a_user_have_contexts_of_their_own_until_they_are_purged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    std::fs::write(&file, OF_USER).unwrap();
    let read = || Kubeconfig::read_from(&file).unwrap();
    let names = || read().contexts.into_iter().map(|context| context.name).collect::<Vec<_>>();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    let flags = ["--components", "apiserver", "--kubeconfig", file.to_str().unwrap()];

    // What is printed goes to the cluster, and not to production.
    let first = Cluster::start_with(&one, &flags);
    assert_eq!(read().current_context.as_deref(), Some("plumb"));
    let second = Cluster::start_with(&two, &flags);
    let current = read().current_context.unwrap();
    assert!(current.starts_with("plumb-"), "{current}");
    assert_eq!(names(), ["production", "plumb", &current]);
    let server = |name: &str| {
        let found = read().clusters.into_iter().find(|cluster| cluster.name == name).unwrap();
        found.cluster.unwrap().server.unwrap()
    };
    assert_eq!(server("plumb"), format!("https://{}", first.address()));
    assert_eq!(server(&current), format!("https://{}", second.address()));
    // The same cluster finds its entries again.
    assert!(second.stop().success());
    let second = Cluster::start_with(&two, &flags);
    assert_eq!(names(), ["production", "plumb", &current]);

    assert!(first.stop().success() && second.stop().success());
    let said = purge(&two);
    assert!(said.contains(&format!("removed the entries of the cluster from {}", file.display())), "{said}");
    assert_eq!(names(), ["production", "plumb"]);
    assert_eq!(read().current_context.as_deref(), Some(""), "no other cluster is current by that");
    purge(&one);
    assert_eq!(names(), ["production"]);
    assert_eq!(read().auth_infos.len(), 1);
}
