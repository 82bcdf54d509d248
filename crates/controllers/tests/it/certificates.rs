//! Which certificate signing requests are approved, signed and deleted.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Node, Secret};
use plumb_certificates::Usage;
use plumb_certificates::{CLIENT_KEY, Request, encoded_key};
use plumb_controllers::certificates::{
    ForeignName, NameTaken, Step, check_name, check_names, decide, is_stale,
};
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

fn node(name: &str, addresses: &[&str], annotations: serde_json::Value) -> Node {
    let addresses: Vec<_> =
        addresses.iter().map(|address| json!({ "type": "InternalIP", "address": address })).collect();
    let metadata = json!({ "name": name, "annotations": annotations });
    serde_json::from_value(json!({ "metadata": metadata, "status": { "addresses": addresses } })).unwrap()
}

#[test]
fn a_machine_is_admitted_a_node_is_reviewed_and_a_server_is_compared_with_its_node() {
    let step = decide(&request("system:bootstrap:abcdef", CLIENT, vec![], &[]));
    assert!(matches!(step, Step::Admit(node, _) if node == "n1"));
    let step = decide(&request("system:node:n1", CLIENT, vec![], &[]));
    assert_eq!(step, Step::Review(vec!["selfnodeclient", "nodeclient"]));
    let step = decide(&request("system:node:n1", SERVING, names(), &[]));
    assert!(matches!(step, Step::Compare(node, _) if node == "n1"));
}

#[test]
fn a_serving_certificate_is_for_the_address_that_the_request_came_from_and_no_one_elses() {
    let asked = |names: &[&str]| {
        let name = |name: &&str| match name.parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName((*name).try_into().unwrap()),
        };
        let object = request("system:node:n1", SERVING, names.iter().map(name).collect(), &[]);
        Request::parse(&object.spec.request.0).unwrap()
    };
    let api_server =
        ["10.0.0.5", "10.0.0.7", "127.0.0.1", "kubernetes", "localhost"].map(str::to_owned).into();
    let nodes = [
        node("n1", &["10.0.0.1", "10.0.0.2", "10.0.0.5", "10.0.0.7", "127.0.0.1", "n1.example"], json!({})),
        node("n2", &["10.0.0.2", "10.0.0.7", "127.0.0.1"], json!({})),
    ];
    let machine = ["10.0.0.7".parse().unwrap()].into();
    let check = |names: &[&str], from: Option<&str>| {
        let from = from.map(|address| address.parse().unwrap());
        check_names(&asked(names), "n1", from, &nodes, &api_server, &machine)
    };
    assert_eq!(check(&["n1", "10.0.0.1"], Some("10.0.0.1")), Ok(()));
    assert_eq!(check(&["n1", "127.0.0.1"], Some("127.0.0.1")), Ok(()), "loopback is every process's");
    let own = check(&["n1", "10.0.0.7"], Some("10.0.0.7"));
    assert_eq!(own, Ok(()), "so is an address of the machine of the API server");
    let asked_for = "10.0.0.7".parse().unwrap();
    let refused = check(&["10.0.0.7"], Some("10.0.0.9"));
    let came_from = Some("10.0.0.9".parse().unwrap());
    assert_eq!(refused, Err(ForeignName::Elsewhere { asked: asked_for, came_from }));
    let listed = "10.0.0.1".parse().unwrap();
    let elsewhere = "10.0.0.9".parse().unwrap();
    let refused = [
        // The node lists the address itself, but its request comes from another one.
        (
            &["10.0.0.1"][..],
            Some("10.0.0.9"),
            ForeignName::Elsewhere { asked: listed, came_from: Some(elsewhere) },
        ),
        (&["10.0.0.1"], None, ForeignName::Elsewhere { asked: listed, came_from: None }),
        (&["10.0.0.9"], Some("10.0.0.9"), ForeignName::Unlisted(elsewhere)),
        // Behind the same NAT as the API server, or as another node.
        (&["10.0.0.5"], Some("10.0.0.5"), ForeignName::ApiServer("10.0.0.5".to_owned())),
        (
            &["10.0.0.2"],
            Some("10.0.0.2"),
            ForeignName::OtherNode { name: "10.0.0.2".to_owned(), node: "n2".to_owned() },
        ),
        (&["n2", "10.0.0.1"], Some("10.0.0.1"), ForeignName::Host("n2".to_owned())),
        (&["kubernetes", "10.0.0.1"], Some("10.0.0.1"), ForeignName::Host("kubernetes".to_owned())),
        (&["n1.example"], Some("10.0.0.1"), ForeignName::Host("n1.example".to_owned())),
    ];
    for (names, from, expected) in refused {
        assert_eq!(check(names, from), Err(expected), "{names:?} from {from:?}");
    }
    let missing = check_names(&asked(&["n1"]), "n1", None, &nodes[1..], &api_server, &machine);
    assert_eq!(missing, Err(ForeignName::NoNode));
}

#[test]
fn a_node_called_like_the_api_server_gets_no_serving_certificate() {
    let object = request("system:node:n1", SERVING, names(), &[]);
    let asked = Request::parse(&object.spec.request.0).unwrap();
    let nodes = [node("n1", &["10.0.0.1"], json!({}))];
    let from = Some("10.0.0.1".parse().unwrap());
    let refused = check_names(&asked, "n1", from, &nodes, &["n1".to_owned()].into(), &[].into());
    assert_eq!(refused, Err(ForeignName::ApiServer("n1".to_owned())));
}

#[test]
fn a_bootstrap_token_takes_no_name_of_a_node_without_its_key() {
    let mine = request("system:bootstrap:abcdef", CLIENT, vec![], &[]);
    let asked = Request::parse(&mine.spec.request.0).unwrap();
    let approved = |like: &CertificateSigningRequest| {
        let mut other = like.clone();
        other.status = request("x", CLIENT, vec![], &["Approved"]).status;
        other
    };
    let rival = request("system:bootstrap:fedcba", CLIENT, vec![], &[]);
    let none: [CertificateSigningRequest; 0] = [];
    assert_eq!(check_name(&asked, None, &none), Ok(()));
    assert_eq!(check_name(&asked, None, [&mine, &rival]), Ok(()), "not decided yet");
    assert_eq!(check_name(&asked, None, [&approved(&mine)]), Ok(()), "the same key asks again");
    assert_eq!(check_name(&asked, None, [&approved(&rival)]), Err(NameTaken::Request));

    let theirs = node("n1", &[], json!({ CLIENT_KEY: "MFkw" }));
    let without = node("n1", &[], json!({}));
    let own = node("n1", &[], json!({ CLIENT_KEY: encoded_key(&asked.public_key) }));
    assert_eq!(check_name(&asked, Some(&theirs), &none), Err(NameTaken::Node));
    assert_eq!(check_name(&asked, Some(&without), &none), Err(NameTaken::Node));
    assert_eq!(check_name(&asked, Some(&own), &none), Ok(()));
}

#[test]
fn only_the_node_itself_gets_a_serving_certificate_and_a_decision_stays() {
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
fn an_approved_request_is_signed_for_its_duration_or_marked_as_failed() {
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
fn old_requests_are_deleted() {
    let at =
        |hours: i64| "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_hours(hours);
    let decided = request("a", CLIENT, vec![], &["Approved"]);
    let waiting = request("a", CLIENT, vec![], &[]);
    assert!(!is_stale(&decided, at(1)) && is_stale(&decided, at(2)));
    assert!(!is_stale(&waiting, at(24)) && is_stale(&waiting, at(25)));
}

#[test]
fn tokens_are_requeued_until_they_expire_and_then_deleted() {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    for (end, wanted) in [
        (Some("2026-01-01T00:00:00Z"), tokens::TokenAction::Delete),
        (Some("2026-01-01T00:07:00Z"), tokens::TokenAction::Wait(Duration::from_mins(7))),
        (Some("2026-01-02T00:00:00Z"), tokens::TokenAction::Wait(Duration::from_mins(10))),
        (None, tokens::TokenAction::Keep),
        (Some("tomorrow"), tokens::TokenAction::Keep),
    ] {
        let mut token: Secret =
            serde_json::from_value(json!({ "metadata": { "name": "t" }, "type": tokens::TYPE })).unwrap();
        let expiration = end.map(|end| ("expiration".to_owned(), ByteString(end.as_bytes().to_vec())));
        token.data = Some(expiration.into_iter().collect());
        assert_eq!(tokens::decide(&token, now), wanted, "{end:?}");
    }
}

#[test]
fn cluster_info_is_signed_with_every_token_for_signing() {
    let token = |id: &str, signs: &str| -> Secret {
        let mut secret: Secret =
            serde_json::from_value(json!({ "metadata": { "name": id }, "type": tokens::TYPE })).unwrap();
        let data =
            [("token-id", id), ("token-secret", "0123456789abcdef"), ("usage-bootstrap-signing", signs)];
        let data = data.map(|(name, value)| (name.to_owned(), ByteString(value.as_bytes().to_vec())));
        secret.data = Some(data.into());
        secret
    };
    let data = |pairs: &[(&str, &str)]| -> std::collections::BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let all = [token("abcdef", "true"), token("fedcba", "false")];
    let before = data(&[("kubeconfig", "payload"), ("jws-kubeconfig-gone00", "x..y")]);
    let signed = signing::decide(&before, all.iter(), now).unwrap();
    // {"alg":"HS256","kid":"abcdef"}, and the output of `openssl dgst -sha256 -hmac` for it and the payload.
    assert_eq!(
        signed.get("jws-kubeconfig-abcdef").unwrap(),
        "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..pQpAf41KnbpDpf53Otu_ufAeAbWD9CSytTS_WpoG4Mc"
    );
    assert_eq!(signed.keys().collect::<Vec<_>>(), ["jws-kubeconfig-abcdef", "kubeconfig"]);
    assert_eq!(signing::decide(&signed, all.iter(), now), None);
    assert_eq!(signing::decide(&data(&[]), all.iter(), now), None);
}
