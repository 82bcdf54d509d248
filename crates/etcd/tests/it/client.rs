//! Calls.

use plumb_etcd::proto::{Compare, Comparison, Operation, PutRequest, RangeRequest, TxnRequest};
use plumb_etcd::{CallError, Client, Compactor, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use plumb_testkit::Etcd;
use tempfile::TempDir;

fn put_if(key: &str, comparison: Comparison, revision: i64, value: &'static str) -> TxnRequest {
    let put = PutRequest { key: key.into(), value: value.into() };
    let read = RangeRequest { key: key.into(), ..RangeRequest::default() };
    TxnRequest {
        compare: vec![Compare::mod_revision(key.into(), comparison, revision)],
        success: vec![Operation::Put(put).into()],
        failure: vec![Operation::Range(read).into()],
    }
}

fn client(etcd: &Etcd) -> Client {
    Client::new(&[etcd.url()], &TlsFiles::default()).unwrap()
}

#[tokio::test]
async fn a_transaction_writes_if_its_conditions_hold_and_reads_if_not() {
    let Some(etcd) = Etcd::start() else { return };
    let client = client(&etcd);
    let created = client.txn(put_if("/a", Comparison::Equal, 0, "one")).await.unwrap();
    assert!(created.succeeded);
    let conflict = client.txn(put_if("/a", Comparison::Equal, 0, "two")).await.unwrap();
    assert!(!conflict.succeeded);
    let found = conflict.responses[0].range.as_ref().unwrap();
    assert_eq!(found.kvs[0].value, "one");
    assert_eq!(found.kvs[0].mod_revision, created.header.unwrap().revision);
}

#[tokio::test]
async fn a_request_that_etcd_rejects_is_a_rejection_and_has_no_effect() {
    let Some(etcd) = Etcd::start() else { return };
    let client = client(&etcd);
    let mut twice = put_if("/a", Comparison::Equal, 0, "one");
    twice.success.push(twice.success[0].clone());
    let before = client.revision(b"/").await.unwrap();
    let rejected = client.txn(twice).await.unwrap_err();
    assert!(matches!(rejected, CallError::Rejected(_)), "{rejected:?}");
    assert_eq!(client.revision(b"/").await, Ok(before));
}

#[tokio::test]
async fn a_member_that_cannot_be_reached_is_passed_over() {
    let Some(etcd) = Etcd::start() else { return };
    // Port 1 is privileged, and nothing listens there.
    let urls = ["http://127.0.0.1:1".to_owned(), etcd.url()];
    let client = Client::new(&urls, &TlsFiles::default()).unwrap();
    assert!(client.status().await.unwrap().version.starts_with('3'));
    let nowhere = Client::new(&urls[..1], &TlsFiles::default()).unwrap();
    let error = nowhere.txn(put_if("/a", Comparison::Equal, 0, "one")).await.unwrap_err();
    assert!(matches!(error, CallError::Unreachable(_)), "{error:?}");
}

#[tokio::test]
async fn of_several_servers_one_compacts_at_a_time_and_only_what_is_old() {
    let Some(etcd) = Etcd::start() else { return };
    let client = client(&etcd);
    let (mut one, mut other) = (Compactor::default(), Compactor::default());
    let write = async || client.txn(put_if("/a", Comparison::Greater, -1, "again")).await.unwrap();
    // The first looks only show the servers which revision is current.
    assert_eq!(one.compact(&client).await, Ok(None));
    assert_eq!(other.compact(&client).await, Ok(None));
    let old = client.revision(b"/").await.unwrap();
    write().await;
    assert_eq!(one.compact(&client).await, Ok(Some(old)));
    assert_eq!(other.compact(&client).await, Ok(None), "the other server has just compacted");
    let at = |revision| RangeRequest { key: b"/a".to_vec(), revision, ..RangeRequest::default() };
    assert!(client.range(at(old)).await.is_ok());
    assert!(client.range(at(old - 1)).await.unwrap_err().is_compacted());
}

fn certificates() -> TempDir {
    let files = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| std::fs::write(files.path().join(name), text).unwrap();
    let mut authority = CertificateParams::new(vec![]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    write("ca.crt", authority.self_signed(&authority_key).unwrap().pem());
    let issuer = Issuer::new(authority, authority_key);
    for name in ["server", "client"] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        write(&format!("{name}.crt"), params.signed_by(&key, &issuer).unwrap().pem());
        write(&format!("{name}.key"), key.serialize_pem());
    }
    files
}

#[tokio::test]
async fn an_encrypted_member_takes_the_client_with_its_certificate_only() {
    let files = certificates();
    let Some(etcd) = Etcd::start_encrypted(files.path()) else { return };
    let file = |name: &str| Some(files.path().join(name));
    let tls =
        TlsFiles { authorities: file("ca.crt"), certificate: file("client.crt"), key: file("client.key") };
    let known = Client::new(&[etcd.url()], &tls).unwrap();
    assert!(known.txn(put_if("/a", Comparison::Equal, 0, "one")).await.unwrap().succeeded);

    let anonymous = TlsFiles { certificate: None, key: None, ..tls.clone() };
    let anonymous = Client::new(&[etcd.url()], &anonymous).unwrap();
    assert!(anonymous.status().await.is_err());

    let stranger = certificates();
    let stranger = TlsFiles { authorities: Some(stranger.path().join("ca.crt")), ..tls.clone() };
    let stranger = Client::new(&[etcd.url()], &stranger).unwrap();
    let error = stranger.status().await.unwrap_err();
    assert!(matches!(error, CallError::Unreachable(_)), "{error:?}");
}
