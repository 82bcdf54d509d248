//! Creation and renewal of certificates.

use std::{collections::BTreeSet, net::IpAddr, os::unix::fs::PermissionsExt as _, sync::Arc, time::Duration};

use plumb_apiserver::{
    authn::CertificateIdentity,
    pki::{Clock as _, Pki, Renewed, keep_fresh},
    serve::shutdown,
};
use tokio::sync::mpsc;
use x509_parser::extensions::GeneralName;

use super::Place;

const FILES: [(&str, u32); 12] = [
    ("ca.crt", 0o644),
    ("ca.key", 0o600),
    ("client-ca.crt", 0o644),
    ("client-ca.key", 0o600),
    ("kubelet-serving-ca.crt", 0o644),
    ("kubelet-serving-ca.key", 0o600),
    ("front-proxy-ca.crt", 0o644),
    ("front-proxy-ca.key", 0o600),
    ("serving.pem", 0o600),
    ("admin.pem", 0o600),
    ("sa.key", 0o600),
    ("sa.pub", 0o644),
];

fn contents(place: &Place) -> Vec<String> {
    FILES.iter().map(|(name, _)| place.read(name)).collect()
}

#[test]
fn the_first_start_creates_all_files_and_the_next_reads_them() {
    let place = Place::new();
    let pki = place.open().unwrap();
    let made = contents(&place);
    for (name, mode) in FILES {
        assert_eq!(std::fs::metadata(place.path(name)).unwrap().permissions().mode() & 0o777, mode, "{name}");
    }
    assert_eq!(
        std::fs::read_dir(place.path("")).unwrap().count(),
        FILES.len(),
        "nothing else is left behind"
    );
    assert_eq!(std::fs::metadata(place.path("")).unwrap().permissions().mode() & 0o777, 0o700);

    let again = place.open().unwrap();
    assert_eq!(contents(&place), made);
    assert_eq!(again.admin().certificate(), pki.admin().certificate());
    assert_eq!(again.service_account_key().public_pem(), pki.service_account_key().public_pem());
    assert_eq!(pki.renew().unwrap(), Renewed::default());
}

#[test]
fn the_serving_certificate_names_the_cluster_and_where_it_listens() {
    let place = Place::new();
    let names = |pki: &Pki| {
        let file = std::fs::read(pki.directory().join("serving.pem")).unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(&file).unwrap();
        let certificate = pem.parse_x509().unwrap();
        let names = &certificate.subject_alternative_name().unwrap().unwrap().value.general_names;
        let text = |name: &GeneralName<'_>| match name {
            GeneralName::DNSName(name) => (*name).to_owned(),
            GeneralName::IPAddress(bytes) => match <[u8; 4]>::try_from(*bytes) {
                Ok(four) => IpAddr::from(four).to_string(),
                Err(_) => IpAddr::from(<[u8; 16]>::try_from(*bytes).unwrap()).to_string(),
            },
            other => panic!("{other}"),
        };
        names.iter().map(text).collect::<BTreeSet<_>>()
    };
    let usual = [
        "localhost",
        "127.0.0.1",
        "::1",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "10.96.0.1",
    ];
    let with = |more: &str| usual.iter().copied().chain([more]).map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(names(&place.open_for(&["0.0.0.0", "192.0.2.7"]).unwrap()), with("192.0.2.7"));

    let ca = place.read("ca.crt");
    assert_eq!(names(&place.open_for(&["plumb.example"]).unwrap()), with("plumb.example"));
    assert_eq!(place.read("ca.crt"), ca);
    assert!(place.open_for(&["not a host"]).is_err());
}

#[test]
fn a_client_certificate_holds_any_user_and_any_number_of_groups() {
    let pki = Place::new().open().unwrap();
    let long = "x".repeat(300);
    let cases: [(&str, &[&str]); 5] = [
        ("kubernetes-admin", &["system:masters"]),
        ("system:node:worker-1", &["system:nodes"]),
        ("user-without-groups", &[]),
        ("zoë, née \"x\"=+y", &["a", "b", "c", "group, with comma"]),
        (&long, &["g"]),
    ];
    for (user, groups) in cases {
        let issued = pki.issue_client(user, groups).unwrap();
        let identity = CertificateIdentity::read(issued.certificate()).unwrap();
        assert_eq!(identity.user().name(), user);
        assert_eq!(identity.user().groups(), [groups, &["system:authenticated"]].concat());
        assert_eq!(identity.expires(), issued.expires());
    }
    for (user, groups) in [("", &["a"][..]), ("a", &["b", ""])] {
        assert!(pki.issue_client(user, groups).is_err());
    }
}

#[test]
fn leaves_are_renewed_after_two_thirds_of_a_year_and_the_authority_after_two_thirds_of_ten() {
    let place = Place::new();
    let pki = place.open().unwrap();
    let (ca, key) = (place.read("ca.crt"), place.read("ca.key"));
    let leaves = Renewed { serving: true, admin: true, authority: false };
    let all = Renewed { authority: true, ..leaves };

    place.clock.forward_days(243);
    assert_eq!(pki.renew().unwrap(), Renewed::default());
    place.clock.forward_days(1);
    let before = pki.admin();
    assert_eq!(pki.renew().unwrap(), leaves);
    assert_ne!(pki.admin().certificate(), before.certificate());
    assert_ne!(pki.admin().key_pem(), before.key_pem(), "a renewed certificate has a new key");
    assert_eq!(pki.renew().unwrap(), Renewed::default());
    assert_eq!(place.read("ca.crt"), ca);

    place.clock.forward_days(2_433 - 243 - 1);
    assert_eq!(pki.renew().unwrap(), leaves);
    place.clock.forward_days(1);
    let issued_before = pki.admin();
    assert!(issued_before.expires() > place.clock.now());
    assert_eq!(pki.renew().unwrap(), Renewed { authority: true, ..Renewed::default() });
    assert_ne!(place.read("ca.crt"), ca);
    assert_eq!(place.read("ca.key"), key, "the key stays, so that clients that trust it still do");

    // Off for twenty years: all of it has expired, and still the same authority starts.
    place.clock.forward_days(20 * 365);
    assert_eq!(pki.renew().unwrap(), all);
    assert_eq!(place.open().unwrap().renew().unwrap(), Renewed::default());
    assert_eq!(place.read("ca.key"), key);
}

#[test]
fn no_certificate_outlives_its_authority() {
    let place = Place::new();
    let pki = place.open().unwrap();
    // No renewal for nine years and a half.
    place.clock.forward_days(3_500);
    let issued = pki.issue_client("late", &[]).unwrap();
    assert!(issued.expires() < place.clock.now() + jiff::SignedDuration::from_hours(151 * 24));
}

#[test]
fn a_clock_that_was_ahead_does_not_leave_certificates_that_hold_only_later() {
    let place = Place::new();
    place.clock.forward_days(5_000);
    drop(place.open().unwrap());
    place.clock.forward_days(-5_000);
    let pki = place.open().unwrap();
    assert!(pki.admin().expires() < place.clock.now() + jiff::SignedDuration::from_hours(366 * 24));
    assert_eq!(pki.renew().unwrap(), Renewed::default());
}

#[tokio::test]
async fn a_running_server_renews_its_certificates_and_logs_it() {
    let place = Place::new();
    let pki = Arc::new(place.open().unwrap());
    let (trigger, end) = shutdown();
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let rotation =
        tokio::spawn(keep_fresh(Arc::clone(&pki), Duration::from_millis(1), end, move |pki, renewed| {
            sender.send((pki.admin().expires(), renewed)).unwrap();
        }));
    let before = pki.admin().expires();
    place.clock.forward_days(300);
    let (expires, renewed) =
        tokio::time::timeout(Duration::from_mins(3), receiver.recv()).await.unwrap().unwrap();
    assert_eq!(renewed, Renewed { serving: true, admin: true, authority: false });
    assert!(expires > before);
    trigger.pull();
    tokio::time::timeout(Duration::from_mins(3), rotation).await.unwrap().unwrap();
}

#[test]
fn keys_do_not_appear_in_debug_output() {
    let pki = Place::new().open().unwrap();
    let shown = format!("{:?} {:?} {:?}", pki, pki.admin(), pki.service_account_key());
    assert!(!shown.contains("PRIVATE"), "{shown}");
    assert!(shown.contains("[secret]"), "{shown}");
}

#[test]
fn each_kind_of_certificate_has_an_authority_of_its_own() {
    let place = Place::new();
    let pki = place.open().unwrap();
    let [ca, clients, nodes] =
        ["ca.crt", "client-ca.crt", "kubelet-serving-ca.crt"].map(|name| place.read(name));
    assert!(ca != clients && clients != nodes && nodes != ca);
    assert!(place.is_client(&pki, pki.admin().certificate()));
    assert_eq!(pki.client_authorities().len(), 1, "the authority of servers vouches for no client");
    // A node's certificate is not one of the API server's: what clients trust did not sign it.
    let node = pki.issue_serving(["127.0.0.1".to_owned()]).unwrap();
    let ca = pki.authority_der();
    let (_, ca) = x509_parser::parse_x509_certificate(&ca).unwrap();
    let (_, node) = x509_parser::parse_x509_certificate(node.certificate()).unwrap();
    assert!(node.verify_signature(Some(ca.public_key())).is_err());
}

#[test]
fn client_certificates_of_the_former_single_authority_are_accepted_for_a_year() {
    // A data directory of that time: `ca` signed everything.
    let old = Place::new();
    let pki = old.open().unwrap();
    let node = pki.issue_client("system:node:n1", &["system:nodes"]).unwrap();
    drop(pki);
    for (new, name) in [("client-ca.crt", "ca.crt"), ("client-ca.key", "ca.key")] {
        old.write(name, &old.read(new));
        std::fs::remove_file(old.path(new)).unwrap();
    }
    for name in ["serving.pem", "kubelet-serving-ca.crt", "kubelet-serving-ca.key"] {
        std::fs::remove_file(old.path(name)).unwrap();
    }
    let admin_then = old.read("admin.pem");

    let pki = old.open().unwrap();
    assert_ne!(old.read("admin.pem"), admin_then, "the administrator has a certificate of the new authority");
    assert!(old.is_client(&pki, pki.admin().certificate()));
    assert!(old.is_client(&pki, node.certificate()));
    assert!(old.is_client(&old.open().unwrap(), node.certificate()), "also at the next start");
    assert_eq!(pki.client_authorities_pem().matches("BEGIN CERTIFICATE").count(), 2);

    old.clock.forward_days(366);
    let later = old.open().unwrap();
    assert_eq!(later.client_authorities().len(), 1, "no certificate of it can be left");
}
