//! Which requests for certificates are approved, signed and swept away.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Node, Secret};
use plumb_certificates::Usage;
use plumb_controllers::certificates::{Step, decide, is_own, is_stale};
use plumb_controllers::{signing, tokens};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use serde_json::json;

const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";

/// A request of a user, for the certificate of a node.
fn request(
    author: &str,
    signer: &str,
    alternatives: Vec<SanType>,
    conditions: &[&str],
) -> CertificateSigningRequest {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, "system:node:n1");
    params.subject_alt_names = alternatives;
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    let usage = if signer == SERVING { "server auth" } else { "client auth" };
    let conditions: Vec<_> =
        conditions.iter().map(|kind| json!({ "type": kind, "status": "True" })).collect();
    let mut object: CertificateSigningRequest = serde_json::from_value(json!({
        "metadata": { "name": "r", "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "request": "", "signerName": signer, "usages": ["digital signature", usage], "username": author,
                  "groups": ["system:nodes", "system:authenticated"], "expirationSeconds": 3600 },
        "status": { "conditions": conditions },
    }))
    .unwrap();
    object.spec.request = ByteString(pem.into_bytes());
    object
}

fn names() -> Vec<SanType> {
    vec![SanType::DnsName("n1".try_into().unwrap()), SanType::IpAddress("10.0.0.1".parse().unwrap())]
}

#[test]
fn a_machine_and_a_node_are_reviewed_and_a_server_is_compared_with_its_node() {
    let step = decide(&request("system:bootstrap:abcdef", CLIENT, vec![], &[]));
    assert_eq!(step, Step::Review(vec!["nodeclient"]));
    let step = decide(&request("system:node:n1", CLIENT, vec![], &[]));
    assert_eq!(step, Step::Review(vec!["selfnodeclient", "nodeclient"]));
    let Step::Compare(node, asked) = decide(&request("system:node:n1", SERVING, names(), &[])) else {
        panic!("not compared")
    };
    assert_eq!(node, "n1");
    let node = |addresses: &[&str]| -> Node {
        let addresses: Vec<_> =
            addresses.iter().map(|address| json!({ "type": "InternalIP", "address": address })).collect();
        serde_json::from_value(json!({ "metadata": { "name": "n1" }, "status": { "addresses": addresses } }))
            .unwrap()
    };
    assert!(is_own(&asked, &node(&["10.0.0.1"])));
    assert!(!is_own(&asked, &node(&["10.0.0.2"])), "an address of somebody else's");
    assert!(!is_own(&asked, &node(&[])));
}

#[test]
fn nobody_is_a_server_but_the_node_itself_and_what_is_decided_stays_so() {
    for left in [
        request("system:node:n2", SERVING, names(), &[]),
        request("system:bootstrap:abcdef", SERVING, names(), &[]),
        request("system:node:n1", CLIENT, names(), &[]),
        request("system:node:n1", CLIENT, vec![], &["Denied"]),
        request("system:node:n1", CLIENT, vec![], &["Approved", "Failed"]),
        request("system:node:n1", "example.com/other", vec![], &["Approved"]),
    ] {
        assert_eq!(decide(&left), Step::Leave, "{left:?}");
    }
}

#[test]
fn what_was_approved_is_signed_for_as_long_as_was_asked_or_said_to_have_failed() {
    let Step::Sign(_, usages, lifetime) = decide(&request("system:node:n1", CLIENT, vec![], &["Approved"]))
    else {
        panic!("not signed")
    };
    assert_eq!(usages, [Usage::DigitalSignature, Usage::ClientAuth]);
    assert_eq!(lifetime, SignedDuration::from_hours(1));
    let step = decide(&request("system:node:n1", CLIENT, names(), &["Approved"]));
    assert_eq!(step, Step::Fail("DNS subjectAltNames are not allowed".to_owned()));
}

#[test]
fn old_requests_are_swept_away() {
    let at =
        |hours: i64| "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_hours(hours);
    let (decided, waiting) = (request("a", CLIENT, vec![], &["Approved"]), request("a", CLIENT, vec![], &[]));
    assert!(!is_stale(&decided, at(1)) && is_stale(&decided, at(2)));
    assert!(!is_stale(&waiting, at(24)) && is_stale(&waiting, at(25)));
}

#[test]
fn tokens_end_when_they_say_and_the_next_end_is_waited_for() {
    let token = |name: &str, end: Option<&str>| {
        let mut secret: Secret =
            serde_json::from_value(json!({ "metadata": { "name": name }, "type": tokens::TYPE })).unwrap();
        let end = end.map(|end| ("expiration".to_owned(), ByteString(end.as_bytes().to_vec())));
        secret.data = Some(end.into_iter().collect());
        secret
    };
    let all = [
        token("over", Some("2026-01-01T00:00:00Z")),
        token("soon", Some("2026-01-01T00:10:00Z")),
        token("later", Some("2026-01-02T00:00:00Z")),
        token("never", None),
        token("odd", Some("tomorrow")),
    ];
    let (over, next) = tokens::decide(all.iter(), "2026-01-01T00:00:00Z".parse().unwrap());
    assert_eq!((over, next), (vec!["over".to_owned()], Some(Duration::from_mins(10))));
}

#[test]
fn what_is_told_is_signed_with_every_token_that_is_for_it() {
    let token = |id: &str, signs: &str| -> Secret {
        let mut secret: Secret =
            serde_json::from_value(json!({ "metadata": { "name": id }, "type": tokens::TYPE })).unwrap();
        let data =
            [("token-id", id), ("token-secret", "0123456789abcdef"), ("usage-bootstrap-signing", signs)];
        let data = data.map(|(name, value)| (name.to_owned(), ByteString(value.as_bytes().to_vec())));
        secret.data = Some(data.into());
        secret
    };
    let told = |pairs: &[(&str, &str)]| -> std::collections::BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let all = [token("abcdef", "true"), token("fedcba", "false")];
    let before = told(&[("kubeconfig", "payload"), ("jws-kubeconfig-gone00", "x..y")]);
    let signed = signing::decide(&before, all.iter(), now).unwrap();
    // {"alg":"HS256","kid":"abcdef"}, and what `openssl dgst -sha256 -hmac` makes of it and of the payload.
    assert_eq!(
        signed.get("jws-kubeconfig-abcdef").unwrap(),
        "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..pQpAf41KnbpDpf53Otu_ufAeAbWD9CSytTS_WpoG4Mc"
    );
    assert_eq!(signed.keys().collect::<Vec<_>>(), ["jws-kubeconfig-abcdef", "kubeconfig"]);
    assert_eq!(signing::decide(&signed, all.iter(), now), None);
    assert_eq!(signing::decide(&told(&[]), all.iter(), now), None);
}
