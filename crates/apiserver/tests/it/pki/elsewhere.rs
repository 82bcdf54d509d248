//! An authority from elsewhere.

use std::time::SystemTime;

use plumb_apiserver::pki::{Clock as _, Renewed};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, DnValue, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P384_SHA384,
};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use super::Place;

/// Puts an authority there that holds for two years, with a key and a name unlike ours.
fn bring(place: &Place) {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CountryName, DnValue::PrintableString("CH".try_into().unwrap()));
    params.distinguished_name.push(DnType::OrganizationName, "Example AG");
    // The same attribute twice: a name that cannot be composed from single values.
    params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 10]), "Another Example AG");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let now = SystemTime::from(place.clock.now());
    params.not_before = now.into();
    params.not_after = (now + std::time::Duration::from_hours(2 * 365 * 24)).into();
    std::fs::create_dir(place.path("")).unwrap();
    for name in ["ca", "client-ca"] {
        place.write(&format!("{name}.crt"), &params.self_signed(&key).unwrap().pem());
        place.write(&format!("{name}.key"), &key.serialize_pem());
    }
}

#[test]
fn an_authority_signs_certificates_with_its_name() {
    let place = Place::new();
    bring(&place);
    let pki = place.open().unwrap();
    let issued = pki.issue_client("someone", &["a", "b"]).unwrap();
    assert!(place.is_client(&pki, issued.certificate()));
    place.open().unwrap();
}

#[test]
fn it_is_used_until_it_ends_and_never_replaced() {
    let place = Place::new();
    bring(&place);
    let brought = place.read("ca.crt");
    let pki = place.open().unwrap();
    place.clock.forward_days(700);
    assert_eq!(pki.renew().unwrap(), Renewed { serving: true, admin: true, authority: false });
    assert!(pki.admin().expires() < place.clock.now() + jiff::SignedDuration::from_hours(31 * 24));

    place.clock.forward_days(31);
    for error in [pki.renew().map(drop).unwrap_err(), place.open().map(drop).unwrap_err()] {
        let error = error.to_string();
        assert!(error.contains(&place.path("ca.crt").display().to_string()), "{error}");
        assert!(error.contains("renewed certificate for the same name and key"), "{error}");
    }
    assert_eq!(place.read("ca.crt"), brought);
    assert!(CertificateDer::from_pem_slice(brought.as_bytes()).is_ok());
}
