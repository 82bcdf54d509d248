//! Several keys and providers: the first one writes, all of them read.

use plumb_encryption::Transformers;

use crate::support::{IDENTITY, OTHER, PATH, parse, provider, secret, secrets};

/// The value of stored bytes, and whether it is stale.
fn read(transformers: &Transformers, stored: &[u8]) -> Result<(Vec<u8>, bool), String> {
    let read = transformers.for_resource("", "secrets").transform_from_storage(stored, PATH);
    read.map(|read| (read.value.into_owned(), read.is_stale)).map_err(|error| error.to_string())
}

fn write(transformers: &Transformers) -> Vec<u8> {
    transformers.for_resource("", "secrets").transform_to_storage(b"{}", PATH).unwrap().into_owned()
}

#[test]
fn a_value_is_stale_unless_the_first_key_of_the_first_provider_wrote_it() {
    let (one, two) = (("one", secret(32)), ("two", OTHER));
    let identity = || IDENTITY.to_owned();
    let old = [
        secrets(&[identity()]),
        secrets(&[provider("aescbc", &[one])]),
        secrets(&[provider("aesgcm", &[one])]),
        secrets(&[provider("aesgcm", &[two])]),
    ];
    let now = secrets(&[
        provider("aesgcm", &[two, one]),
        provider("secretbox", &[one]),
        identity(),
        provider("aescbc", &[one]),
    ]);
    let is_stale = old.map(|old| {
        let (value, is_stale) = read(&now, &write(&old)).unwrap();
        assert_eq!(value, b"{}");
        is_stale
    });
    assert_eq!(is_stale, [true, true, true, false]);
    assert!(write(&now).starts_with(b"k8s:enc:aesgcm:v1:two:"));
}

#[test]
fn identity_first_decrypts_what_is_encrypted_and_writes_it_plain() {
    let old = secrets(&[provider("secretbox", &[("one", secret(32))])]);
    let now = secrets(&[IDENTITY.to_owned(), provider("secretbox", &[("one", secret(32))])]);
    assert_eq!(read(&now, &write(&old)), Ok((b"{}".to_vec(), true)));
    assert_eq!(read(&now, b"{}"), Ok((b"{}".to_vec(), false)));
    assert_eq!(write(&now), b"{}");
}

#[test]
fn keys_of_one_name_are_tried_in_turn_in_one_provider_and_in_several() {
    let old = secrets(&[provider("aesgcm", &[("key", OTHER)])]);
    let stored = write(&old);
    let in_one = secrets(&[provider("aesgcm", &[("key", secret(32)), ("key", OTHER)])]);
    let in_two =
        secrets(&[provider("aesgcm", &[("key", secret(32))]), provider("aesgcm", &[("key", OTHER)])]);
    for now in [in_one, in_two] {
        assert_eq!(read(&now, &stored), Ok((b"{}".to_vec(), true)));
    }
}

#[test]
fn a_value_without_its_key_names_the_provider_and_the_key() {
    let with_key = |name| secrets(&[provider(name, &[("old", secret(32))])]);
    let newer = secrets(&[provider("aesgcm", &[("new", OTHER)]), provider("secretbox", &[("new", OTHER)])]);
    let cases = [
        (
            "aesgcm",
            "no matching key was found for the provided AES transformer: the value was written with key \"old\" of \
             provider aesgcm",
        ),
        (
            "secretbox",
            "no matching key was found for the provided Secretbox transformer: the value was written with key \"old\" of \
             provider secretbox",
        ),
        (
            "aescbc",
            "no matching prefix found: the value was written with key \"old\" of provider aescbc, which is no provider of \
             the resource",
        ),
    ];
    for (name, message) in cases {
        assert_eq!(read(&newer, &write(&with_key(name))).unwrap_err(), message);
    }
    assert_eq!(
        read(&newer, b"{}").unwrap_err(),
        "no matching prefix found: the value was written by provider identity, which is no provider of the resource"
    );
    let none = Transformers::identity();
    assert_eq!(
        read(&none, b"k8s:enc:kms:v2:vault:\x00\x01").unwrap_err(),
        "identity transformer tried to read encrypted data: the value was written with key \"vault\" of provider kms, and \
         the configuration has no key for the resource"
    );
    assert_eq!(read(&none, b"{}"), Ok((b"{}".to_vec(), false)));
}

#[test]
fn a_message_has_no_bytes_after_the_prefix() {
    let none = Transformers::identity();
    for stored in [&b"k8s:enc:\xff\xfe"[..], b"k8s:enc:a\x1b[2J:v1:b\n:", b"k8s:enc:"] {
        let message = read(&none, stored).unwrap_err();
        assert!(message.is_ascii() && !message.contains(char::is_control), "{message:?}");
    }
}

#[test]
fn a_resource_has_the_providers_of_its_own_rule_else_of_its_group_else_of_everything() {
    let only = |key| [provider("secretbox", &[(key, secret(32))])];
    let [own, core, apps, all] = [only("own"), only("core"), only("apps"), only("all")];
    let transformers = parse(&[
        (&["secrets", "deployments.apps"], &own),
        (&["*."], &core),
        (&["*.apps"], &apps),
        (&["*.*"], &all),
    ]);
    let transformers = transformers.unwrap().transformers(|bytes: &mut [u8]| {
        bytes.fill(0);
        Ok(())
    });
    let cases = [
        ("", "secrets", "own"),
        ("", "pods", "core"),
        ("apps", "deployments", "own"),
        ("apps", "daemonsets", "apps"),
        ("example.com", "secrets", "all"),
    ];
    for (group, resource, key) in cases {
        let stored = transformers.for_resource(group, resource).transform_to_storage(b"{}", PATH).unwrap();
        assert!(stored.starts_with(format!("k8s:enc:secretbox:v1:{key}:").as_bytes()), "{resource} {group}");
    }
}

#[test]
fn several_rules_for_a_resource_add_up() {
    let [one, two] = ["one", "two"].map(|key| [provider("secretbox", &[(key, secret(32))])]);
    let both = parse(&[(&["secrets"], &one), (&["secrets"], &two)]).unwrap();
    let both = both.transformers(|bytes: &mut [u8]| {
        bytes.fill(0);
        Ok(())
    });
    assert!(write(&both).starts_with(b"k8s:enc:secretbox:v1:one:"));
    assert_eq!(read(&both, &write(&secrets(&two))), Ok((b"{}".to_vec(), true)));
    assert!(!both.for_resource("", "configmaps").is_configured());
}
