//! Values that other implementations have encrypted in upstream's format.

use data_encoding::HEXLOWER;
use plumb_encryption::NoRandomBytes;

use crate::support::{PATH, parse, provider, secret};

const VALUE: &[u8] = b"{\"kind\":\"Secret\",\"apiVersion\":\"v1\"}\n";

/// Provider, length of the key, and what follows `k8s:enc:PROVIDER:v1:key1:`. Nonces are 1, 2, 3 and so on. Those of AES were
/// made by OpenSSL, that of secretbox by a program in Python that makes the vector of `NaCl` (tests/secretbox.c) too.
const STORED: [(&str, usize, &str); 7] = [
    (
        "aesgcm",
        16,
        "0102030405060708090a0b0cc55cf892f1b36efe76487d25e672238694f5a5b5db33c4b96faa00ba4e4af2c689be90f3565b5da7bba12b68f721\
         090b1dc2a874",
    ),
    (
        "aesgcm",
        24,
        "0102030405060708090a0b0c2150eadae2f10728bd87e1337151b6d0c8d810b04663b58917c20bb173420e5a7af3a0f323141000e74cd8bd18b9\
         43529d983c8e",
    ),
    (
        "aesgcm",
        32,
        "0102030405060708090a0b0cdd083e594440954f6ca4826e36fa779492163b140c81cd4ead312deefd55cd7c2ca16966411bfc576d220cb07983\
         cc515d4804d2",
    ),
    (
        "aescbc",
        16,
        "0102030405060708090a0b0c0d0e0f10d629dfb056bfe8d1c7c68931fc3a5288383d9875609149c9d7f90e67fa895b274f6d700969cc72a310b8\
         5a52291973b4",
    ),
    (
        "aescbc",
        24,
        "0102030405060708090a0b0c0d0e0f10c8dd92b18ffa1e80764800ead69dbb330237a2584accdfc0d778852958ec40eb13844bd01ce145b192f2\
         8125372a135f",
    ),
    (
        "aescbc",
        32,
        "0102030405060708090a0b0c0d0e0f103a450a6103d6bd9a97c37c66b4bb0d48f924f9aa226cb85b0944508d7268b1a3fa26b39f2d14c3cf8bdd\
         c3289ca051fe",
    ),
    (
        "secretbox",
        32,
        "0102030405060708090a0b0c0d0e0f101112131415161718bc467eb7f501ece05ac73755c63b14e06978767e200bba9bd539c9dc256e7bd5a875\
         b14e224b0d174c41bba735ad2f6d9752f8c4",
    ),
];

#[test]
fn values_of_other_implementations_are_read_and_written_alike() {
    for (name, length, hex) in STORED {
        let providers = [provider(name, &[("key1", secret(length))])];
        let counting = |bytes: &mut [u8]| -> Result<(), NoRandomBytes> {
            (1..).zip(bytes).for_each(|(n, byte)| *byte = n);
            Ok(())
        };
        let transformers = parse(&[(&["secrets"], &providers)]).unwrap().transformers(counting);
        let secrets = transformers.for_resource("", "secrets");
        let mut stored = format!("k8s:enc:{name}:v1:key1:").into_bytes();
        stored.extend(HEXLOWER.decode(hex.as_bytes()).unwrap());

        let read = secrets.transform_from_storage(&stored, PATH).unwrap();
        assert_eq!((&*read.value, read.is_stale), (VALUE, false), "{name} {length}");
        assert_eq!(read.prefix, format!("k8s:enc:{name}:v1:"));
        assert_eq!(secrets.transform_to_storage(VALUE, PATH).unwrap(), stored, "{name} {length}");
    }
}
