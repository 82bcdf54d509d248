//! Tests of requests and signers.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod it {
    mod insecure;
}

use plumb_certificates::{Request, Signer, Unreadable, Usage};
use rcgen::{CertificateParams, DnType, KeyPair, SanType};

/// A certificate signing request of a user with subject alternative names.
fn request(user: &str, group: &str, alternatives: Vec<SanType>) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, group);
    params.distinguished_name.push(DnType::CommonName, user);
    params.subject_alt_names = alternatives;
    params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
}

fn usages(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_request_is_parsed_with_its_subject_and_alternative_names() {
    let alternatives = vec![
        SanType::DnsName("n1".try_into().unwrap()),
        SanType::IpAddress("10.0.0.1".parse().unwrap()),
        SanType::IpAddress("fd00::1".parse().unwrap()),
    ];
    let parsed = Request::parse(request("system:node:n1", "system:nodes", alternatives).as_bytes()).unwrap();
    assert_eq!(parsed.common_name, "system:node:n1");
    assert_eq!(parsed.organizations, ["system:nodes"]);
    assert_eq!(parsed.hosts, ["n1"]);
    assert_eq!(parsed.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.1", "fd00::1"]);
}

#[test]
fn an_invalid_certificate_signing_request_is_rejected() {
    let certificate = CertificateParams::default().self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
    for (text, why) in [
        (String::new(), Unreadable::Block),
        (certificate.clone(), Unreadable::Block),
        (certificate.replace("CERTIFICATE", "CERTIFICATE REQUEST"), Unreadable::Malformed),
    ] {
        assert_eq!(Request::parse(text.as_bytes()), Err(why), "{text}");
    }
}

#[test]
fn a_modified_request_has_an_invalid_signature() {
    use x509_parser::prelude::FromDer as _;
    let pem = request("system:node:n1", "system:nodes", Vec::new());
    let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
    let mut bytes = block.contents;
    let position = bytes.windows(2).position(|two| two == b"n1").unwrap();
    bytes[position + 1] = b'2';
    assert!(x509_parser::certification_request::X509CertificationRequest::from_der(&bytes).is_ok());
    let text = pem_of(&bytes);
    assert_eq!(Request::parse(text.as_bytes()), Err(Unreadable::Signature));
}

/// Encodes a request as PEM.
fn pem_of(bytes: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::prelude::BASE64_STANDARD.encode(bytes);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n", lines.join("\n"))
}

#[test]
fn each_signer_has_the_rules_of_kubernetes() {
    let host = || vec![SanType::DnsName("n1".try_into().unwrap())];
    let uri = || vec![SanType::URI("spiffe://n1".try_into().unwrap())];
    let node = |alternatives| request("system:node:n1", "system:nodes", alternatives);
    let client = ["digital signature", "client auth"];
    let serving = ["digital signature", "server auth"];
    let table: [(Signer, String, &[&str], &str); 11] = [
        (Signer::NodeClient, node(vec![]), &client, ""),
        (Signer::NodeClient, node(vec![]), &["digital signature", "key encipherment", "client auth"], ""),
        (
            Signer::NodeClient,
            node(vec![]),
            &serving,
            "usages did not match [client auth digital signature key encipherment]",
        ),
        (Signer::NodeClient, node(host()), &client, "DNS subjectAltNames are not allowed"),
        (
            Signer::NodeClient,
            request("system:node:n1", "system:masters", vec![]),
            &client,
            "subject organization is not system:nodes",
        ),
        (
            Signer::NodeClient,
            request("n1", "system:nodes", vec![]),
            &client,
            "subject common name does not begin with system:node:",
        ),
        (Signer::NodeServing, node(host()), &serving, ""),
        (Signer::NodeServing, node(vec![]), &serving, "DNS or IP subjectAltName is required"),
        (
            Signer::NodeServing,
            node([host(), uri()].concat()),
            &serving,
            "URI subjectAltNames are not allowed",
        ),
        (Signer::Client, request("jane", "team", vec![]), &client, ""),
        (
            Signer::Client,
            request("jane", "team", vec![]),
            &["server auth"],
            "invalid usage for client certificate: server auth",
        ),
    ];
    for (signer, pem, requested, expected) in table {
        let parsed = Request::parse(pem.as_bytes()).unwrap();
        let result = signer.check(&parsed, &usages(requested)).map(drop).map_err(|unfit| unfit.to_string());
        assert_eq!(result.err().unwrap_or_default(), expected, "{} {requested:?}", signer.name());
    }
    let parsed = Request::parse(node(vec![]).as_bytes()).unwrap();
    assert_eq!(
        Signer::NodeClient.check(&parsed, &usages(&client)).unwrap(),
        [Usage::DigitalSignature, Usage::ClientAuth]
    );
    assert_eq!(Signer::named("kubernetes.io/kubelet-serving"), Some(Signer::NodeServing));
    assert_eq!(Signer::named("kubernetes.io/legacy-unknown"), None);
}
