//! Damaged files.

use std::os::unix::fs::PermissionsExt as _;

use plumb_apiserver::pki::SigningKey;

use super::Place;

/// Opens the directory and expects an error about `file`. No file may change.
fn refused(place: &Place, file: &str, about: &str) {
    let all = || {
        let mut files: Vec<_> = std::fs::read_dir(place.path(""))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.clone(), std::fs::read(path).unwrap()))
            .collect();
        files.sort();
        files
    };
    let before = all();
    let error = place.open().map(drop).unwrap_err().to_string();
    assert!(error.contains(&place.path(file).display().to_string()), "{error}");
    assert!(error.contains(about), "{error}");
    assert!(error.contains("remove") || error.contains("restore"), "says what to do: {error}");
    assert!(!error.contains("PRIVATE KEY"), "{error}");
    assert_eq!(all(), before, "nothing is replaced");
}

#[test]
fn a_damaged_file_is_reported_by_name_and_never_replaced() {
    for file in [
        "ca.crt",
        "ca.key",
        "client-ca.crt",
        "client-ca.key",
        "kubelet-serving-ca.crt",
        "kubelet-serving-ca.key",
        "front-proxy-ca.crt",
        "front-proxy-ca.key",
        "serving.pem",
        "admin.pem",
        "sa.key",
        "sa.pub",
    ] {
        let place = Place::new();
        drop(place.open().unwrap());
        let whole = place.read(file);
        let middle = whole.len() / 2;
        let flipped = format!("{}!{}", &whole[..middle], &whole[middle + 1..]);
        for damaged in ["", "hello", &whole[..middle], &flipped] {
            place.write(file, damaged);
            refused(&place, file, "");
        }
        std::fs::write(place.path(file), [0xff, 0xfe, 0x00]).unwrap();
        refused(&place, file, "");
        place.write(file, &whole);
        place.open().unwrap();
    }
}

#[test]
fn a_foreign_file_is_reported_by_name_and_never_replaced() {
    let other = Place::new();
    drop(other.open().unwrap());
    let cases = [
        ("ca.crt", "does not belong to ca.key"),
        ("ca.key", "does not belong to ca.key"),
        ("client-ca.crt", "does not belong to client-ca.key"),
        ("kubelet-serving-ca.crt", "does not belong to kubelet-serving-ca.key"),
        ("serving.pem", "not issued by the authority"),
        ("admin.pem", "not issued by the authority"),
        ("sa.pub", "does not belong to sa.key"),
    ];
    for (file, about) in cases {
        let place = Place::new();
        drop(place.open().unwrap());
        place.write(file, &other.read(file));
        let named = if file == "ca.key" { "ca.crt" } else { file };
        refused(&place, named, about);
    }
}

#[test]
fn a_leaf_certificate_in_place_of_the_authority_is_rejected() {
    let place = Place::new();
    drop(place.open().unwrap());
    let leaf = place.read("admin.pem");
    let (certificate, key) = leaf.split_at(leaf.find("-----BEGIN PRIVATE").unwrap());
    place.write("ca.crt", certificate);
    place.write("ca.key", key);
    refused(&place, "ca.crt", "is not the certificate of an authority");
}

#[test]
fn a_certificate_without_its_key_is_refused() {
    for (file, about) in [
        ("ca.key", "is missing, though ca.crt is there"),
        ("client-ca.key", "is missing, though client-ca.crt is there"),
        ("sa.key", "is missing, though sa.pub is there"),
    ] {
        let place = Place::new();
        drop(place.open().unwrap());
        std::fs::remove_file(place.path(file)).unwrap();
        refused(&place, file, about);
    }
}

#[test]
fn a_first_start_that_was_cut_short_is_completed() {
    let order = [
        "ca.key",
        "ca.crt",
        "serving.pem",
        "client-ca.key",
        "client-ca.crt",
        "kubelet-serving-ca.key",
        "kubelet-serving-ca.crt",
        "admin.pem",
        "front-proxy-ca.key",
        "front-proxy-ca.crt",
        "sa.key",
        "sa.pub",
    ];
    for (done, next) in order.iter().enumerate() {
        let place = Place::new();
        drop(place.open().unwrap());
        let kept: Vec<_> = order[..done].iter().map(|file| place.read(file)).collect();
        for file in &order[done..] {
            std::fs::remove_file(place.path(file)).unwrap();
        }
        place.write(&format!("{next}.new"), "half a fi");

        place.open().unwrap();
        let found: Vec<_> = order[..done].iter().map(|file| place.read(file)).collect();
        assert_eq!(found, kept, "{next}");
        assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), order.len(), "{next}");
    }
}

#[test]
fn a_leaf_that_was_removed_is_issued_again() {
    for file in ["serving.pem", "admin.pem"] {
        let place = Place::new();
        drop(place.open().unwrap());
        let before = place.read(file);
        std::fs::remove_file(place.path(file)).unwrap();
        place.open().unwrap();
        assert_ne!(place.read(file), before);
    }
}

#[test]
fn a_key_that_others_could_read_no_longer_can_be() {
    let place = Place::new();
    drop(place.open().unwrap());
    for file in ["ca.key", "client-ca.key", "kubelet-serving-ca.key", "serving.pem", "admin.pem", "sa.key"] {
        std::fs::set_permissions(place.path(file), std::fs::Permissions::from_mode(0o644)).unwrap();
        place.open().unwrap();
        assert_eq!(
            std::fs::metadata(place.path(file)).unwrap().permissions().mode() & 0o777,
            0o600,
            "{file}"
        );
    }
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let place = Place::new();
    std::fs::write(place.directory.path().join("pki"), "a file").unwrap();
    let error = place.open().map(drop).unwrap_err().to_string();
    assert!(error.contains(&place.directory.path().join("pki").display().to_string()), "{error}");
}

#[test]
fn damaged_previous_keys_are_reported_and_an_interrupted_rotation_is_completed() {
    let place = Place::new();
    drop(place.open().unwrap());
    place.write("sa-previous.pub", "nonsense");
    refused(&place, "sa-previous.pub", "something else than public keys");
    std::fs::remove_file(place.path("sa-previous.pub")).unwrap();

    let (old_key, old_public) = (place.read("sa.key"), place.read("sa.pub"));
    let rotated = SigningKey::rotate(&place.path("")).unwrap();
    // Before the public key was replaced.
    place.write("sa.pub", &old_public);
    let pki = place.open().unwrap();
    assert_eq!(place.read("sa.pub"), rotated.public_pem());
    assert_eq!(pki.service_account_key().previous_pems().collect::<Vec<_>>(), [old_public.as_str()]);
    // Before the private key was replaced.
    place.write("sa.key", &old_key);
    place.write("sa.pub", &old_public);
    let pki = place.open().unwrap();
    assert_eq!(pki.service_account_key().public_pem(), old_public);
    assert_eq!(pki.service_account_key().previous_pems().count(), 0);
}
