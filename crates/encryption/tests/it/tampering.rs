//! What is encrypted and decrypted is the same, and what was changed is rejected.

use plumb_encryption::{NoRandomBytes, TransformError, Transformers};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::{OTHER, PATH, parse, provider, secret, secrets};

const AUTHENTICATED: [&str; 2] = ["aesgcm", "secretbox"];

fn with(name: &str) -> Transformers {
    secrets(&[provider(name, &[("key1", secret(32))])])
}

proptest! {
    #[test]
    fn every_provider_decrypts_what_it_has_encrypted(value in vec(any::<u8>(), 0..200)) {
        for name in ["aesgcm", "aescbc", "secretbox"] {
            let transformers = with(name);
            let secrets = transformers.for_resource("", "secrets");
            let stored = secrets.transform_to_storage(&value, PATH).unwrap();
            prop_assert!(value.len() < 8 || !stored.windows(value.len()).any(|window| window == value));
            prop_assert_eq!(&*secrets.transform_from_storage(&stored, PATH).unwrap().value, &value);
        }
    }

    #[test]
    fn no_stored_bytes_make_a_provider_panic(bytes in vec(any::<u8>(), 0..80)) {
        for name in ["aesgcm", "aescbc", "secretbox"] {
            let stored = [format!("k8s:enc:{name}:v1:key1:").as_bytes(), &bytes].concat();
            let _ = with(name).for_resource("", "secrets").transform_from_storage(&stored, PATH);
        }
    }
}

#[test]
fn a_changed_bit_and_a_missing_byte_are_rejected_by_authenticated_providers() {
    for name in AUTHENTICATED {
        let transformers = with(name);
        let secrets = transformers.for_resource("", "secrets");
        let stored = secrets.transform_to_storage(b"{\"data\":{}}", PATH).unwrap().into_owned();
        let prefix = format!("k8s:enc:{name}:v1:key1:").len();
        for at in prefix..stored.len() {
            let mut changed = stored.clone();
            changed[at] ^= 1;
            assert!(secrets.transform_from_storage(&changed, PATH).is_err(), "{name} at {at}");
            assert!(secrets.transform_from_storage(&stored[..at], PATH).is_err(), "{name} cut at {at}");
        }
    }
}

#[test]
fn aesgcm_rejects_a_value_that_was_moved_to_another_object() {
    let transformers = with("aesgcm");
    let secrets = transformers.for_resource("", "secrets");
    let stored = secrets.transform_to_storage(b"{}", PATH).unwrap();
    let error = secrets.transform_from_storage(&stored, b"core/secrets/default/other").unwrap_err();
    assert_eq!(
        error.to_string(),
        "key \"key1\" of provider aesgcm does not decrypt the value: message authentication failed"
    );
}

#[test]
fn a_value_is_encrypted_otherwise_each_time() {
    for name in ["aesgcm", "aescbc", "secretbox"] {
        let transformers = with(name);
        let secrets = transformers.for_resource("", "secrets");
        let encrypted = || secrets.transform_to_storage(b"{}", PATH).unwrap().into_owned();
        assert_ne!(encrypted(), encrypted(), "{name}");
    }
}

#[test]
fn a_value_is_not_stored_without_random_bytes() {
    for name in ["aesgcm", "aescbc", "secretbox"] {
        let providers = [provider(name, &[("key1", secret(32))])];
        let configuration = parse(&[(&["secrets"], &providers)]).unwrap();
        let transformers = configuration.transformers(|_: &mut [u8]| Err(NoRandomBytes));
        let error = transformers.for_resource("", "secrets").transform_to_storage(b"{}", PATH).unwrap_err();
        assert_eq!(error, TransformError::Random(NoRandomBytes));
    }
}

#[test]
fn a_wrong_key_of_the_right_name_decrypts_nothing() {
    for name in AUTHENTICATED {
        let stored = with(name);
        let stored = stored.for_resource("", "secrets").transform_to_storage(b"{}", PATH).unwrap();
        let wrong = secrets(&[provider(name, &[("key1", OTHER)])]);
        let error = wrong.for_resource("", "secrets").transform_from_storage(&stored, PATH).unwrap_err();
        let expected = format!(
            "key \"key1\" of provider {name} does not decrypt the value: message authentication failed"
        );
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn no_debug_output_contains_a_key() {
    let providers = [provider("aesgcm", &[("key1", secret(16))])];
    let configuration = parse(&[(&["secrets"], &providers)]).unwrap();
    let transformers = configuration.transformers(|_: &mut [u8]| Err(NoRandomBytes));
    let shown = format!("{configuration:?} {transformers:?} {:?}", transformers.for_resource("", "secrets"));
    assert_eq!(
        shown,
        "EncryptionConfiguration { .. } Transformers([\"secrets\"]) ResourceTransformer([\"k8s:enc:aesgcm:v1:\"])"
    );
}
