//! Objects from JSON.

/// An object by its JSON.
///
/// # Panics
/// If the JSON is not an object of the kind.
#[expect(clippy::expect_used, reason = "a test that cannot be set up has failed")]
pub fn object<K: serde::de::DeserializeOwned>(json: serde_json::Value) -> K {
    serde_json::from_value(json).expect("an object of the kind")
}
