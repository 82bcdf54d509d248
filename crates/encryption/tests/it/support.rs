//! Configurations for tests.

use std::sync::atomic::{AtomicU8, Ordering};

use plumb_encryption::{ConfigurationError, EncryptionConfiguration, NoRandomBytes, Transformers};

/// The path of the object in most tests.
pub(crate) const PATH: &[u8] = b"core/secrets/default/db";

/// Keys of 16, 24 and 32 bytes: 0x40, 0x41 and so on.
pub(crate) fn secret(bytes: usize) -> &'static str {
    match bytes {
        16 => "QEFCQ0RFRkdISUpLTE1OTw==",
        24 => "QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZX",
        _ => "QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=",
    }
}

/// Another key of 32 bytes.
pub(crate) const OTHER: &str = "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY=";

/// A provider with keys, as an item of the list `providers`.
pub(crate) fn provider(name: &str, keys: &[(&str, &str)]) -> String {
    let keys: Vec<String> =
        keys.iter().map(|(name, secret)| format!("{{name: {name}, secret: {secret:?}}}")).collect();
    format!("{name}: {{keys: [{}]}}", keys.join(", "))
}

pub(crate) const IDENTITY: &str = "identity: {}";

/// A configuration of the resources of each entry and their providers.
pub(crate) fn parse(entries: &[(&[&str], &[String])]) -> Result<EncryptionConfiguration, ConfigurationError> {
    let entries: Vec<String> = entries
        .iter()
        .map(|(resources, providers)| {
            let providers: Vec<String> = providers.iter().map(|provider| format!("{{{provider}}}")).collect();
            format!("{{resources: {resources:?}, providers: [{}]}}", providers.join(", "))
        })
        .collect();
    EncryptionConfiguration::parse(&document(&format!("[{}]", entries.join(", "))))
}

/// A document with a list of resources.
pub(crate) fn document(resources: &str) -> String {
    format!("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: {resources}\n")
}

/// The transformers for secrets with some providers, with different bytes for each value.
pub(crate) fn secrets(providers: &[String]) -> Transformers {
    parse(&[(&["secrets"], providers)]).unwrap().transformers(counting())
}

/// "Random" bytes that are different each time.
fn counting() -> impl Fn(&mut [u8]) -> Result<(), NoRandomBytes> {
    let count = AtomicU8::new(0);
    move |bytes: &mut [u8]| {
        bytes.fill(count.fetch_add(1, Ordering::Relaxed));
        Ok(())
    }
}
