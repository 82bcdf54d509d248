//! A webhook's own authority and certificates.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use plumb_client::Api;
use plumb_controller_runtime::Clock;
use plumb_testkit::TestCluster;
use plumb_webhook::authority::{Authority, Leaf};
use plumb_webhook::trust::{Decision, Trust};
use x509_parser::prelude::FromDer as _;

fn at(days: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap() + SignedDuration::from_hours(days * 24)
}

/// Whether a certificate is an authority's, and the names that it is for.
fn read(leaf: &Leaf) -> (bool, Vec<String>) {
    let der = leaf.certified.cert[0].clone();
    let (_, certificate) = x509_parser::certificate::X509Certificate::from_der(&der).unwrap();
    let names = certificate.subject_alternative_name().unwrap().unwrap().value.general_names.clone();
    (certificate.is_ca(), names.iter().map(ToString::to_string).collect())
}

#[test]
fn a_serving_certificate_is_no_authority_and_is_for_its_names() {
    let authority = Authority::make(at(0)).unwrap();
    let leaf = authority.issue(&["127.0.0.1".to_owned(), "hook.vpa.svc".to_owned()], at(0)).unwrap();
    let (is_authority, names) = read(&leaf);
    assert!(!is_authority);
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(
        !leaf.validity.is_due(at(30)) && leaf.validity.is_due(at(61)) && !leaf.validity.has_ended(at(89))
    );
    assert!(leaf.validity.is_due(at(-1)), "a clock was ahead");
    let late = authority.issue(&["a".to_owned()], at(729)).unwrap();
    assert!(late.validity.has_ended(at(730)), "nothing outlives its authority");
    assert!(authority.issue(&["no name\u{e9}".to_owned()], at(0)).is_err());
}

#[test]
fn an_authority_is_read_with_its_own_key_alone() {
    let one = Authority::make(at(0)).unwrap();
    let two = Authority::make(at(0)).unwrap();
    assert!(Authority::read(one.certificate(), one.key()).is_ok());
    assert!(Authority::read(one.certificate(), two.key()).is_err());
    assert!(Authority::read("", one.key()).is_err());
    assert!(!format!("{one:?}").contains("PRIVATE"), "the key is not shown");
}

/// The Secret that a decision writes.
async fn ensured(api: &Api<Secret>, days: i64) -> Trust {
    Trust::ensure(api, "ca", &Clock::with_wall(move || at(days))).await.unwrap()
}

#[tokio::test]
async fn the_authority_is_replaced_in_time_and_the_old_one_stays_trusted() {
    let cluster = TestCluster::start();
    let api: Api<Secret> = Api::namespaced(cluster.admin(), "default");
    let first = ensured(&api, 0).await;
    assert_eq!(first.bundle(), first.authority.certificate());
    assert_eq!(ensured(&api, 400).await.bundle(), first.bundle(), "it is still used");

    let second = ensured(&api, 500).await;
    assert_ne!(second.authority.certificate(), first.authority.certificate());
    assert_eq!(
        second.bundle(),
        format!("{}{}", second.authority.certificate(), first.authority.certificate())
    );
    assert_eq!(ensured(&api, 501).await.bundle(), second.bundle());
    let third = ensured(&api, 500 + 800).await;
    assert_eq!(third.bundle(), third.authority.certificate(), "the second has ended");
}

#[tokio::test]
async fn replicas_that_start_at_once_share_one_authority() {
    let cluster = TestCluster::start();
    let api: Api<Secret> = Api::namespaced(cluster.admin(), "default");
    let all = futures_util::future::join_all((0..8).map(|_| ensured(&api, 0))).await;
    assert!(all.iter().all(|trust| trust.bundle() == all[0].bundle()));
}

#[tokio::test]
async fn a_secret_that_cannot_be_read_is_replaced() {
    let cluster = TestCluster::start();
    let api: Api<Secret> = Api::namespaced(cluster.admin(), "default");
    for data in [serde_json::json!({}), serde_json::json!({ "ca.crt": "bm9uZQ==", "ca.key": "bm9uZQ==" })] {
        let secret: Secret =
            serde_json::from_value(serde_json::json!({ "metadata": { "name": "ca" }, "data": data }))
                .unwrap();
        assert!(matches!(Trust::decide(Some(&secret), at(0)), Ok(Decision::Replace(_))));
        drop(api.create(&kube::api::PostParams::default(), &secret).await);
        let made = ensured(&api, 0).await;
        assert_eq!(ensured(&api, 0).await.bundle(), made.bundle());
        api.delete("ca", &kube::api::DeleteParams::default()).await.unwrap();
    }
}
