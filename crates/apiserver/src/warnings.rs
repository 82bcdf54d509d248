//! The warnings of a response, and those that several kinds share, with the messages of kube-apiserver 1.36.

mod recorder;

pub use recorder::Warnings;

use serde_json::Value;

use crate::validation::dns_label_errors;

/// Warns of a name that is not a DNS label. `used_in` says what the name is used in.
pub fn of_name(object: &Value, used_in: &str) -> Vec<String> {
    let messages = dns_label_errors(object["metadata"]["name"].as_str().unwrap_or_default());
    if messages.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: this is used in {used_in}, which can result in surprising behavior; a DNS label is recommended: \
         [{}]",
        messages.join(" ")
    )]
}

/// Whether an update changes the desired state.
pub fn is_changed(old: &Value, new: &Value) -> bool {
    old["metadata"]["generation"] != new["metadata"]["generation"]
}
