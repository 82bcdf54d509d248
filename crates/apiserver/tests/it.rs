//! The API, seen by its clients.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up has failed")]

mod it {
    mod absurd;
    mod access;
    mod admission;
    mod aggregation;
    mod apply;
    mod audit;
    mod authn;
    mod auto_register;
    mod backward;
    mod bindings;
    mod cancelled;
    mod clients;
    mod custom;
    mod deletions;
    mod discovery;
    mod emptiness;
    mod ephemeral;
    mod evictions;
    mod exhaustion;
    mod expressions;
    mod field_validation;
    mod fields;
    mod formats;
    mod lists;
    mod logs;
    mod objects;
    mod observed;
    mod pki;
    mod pod_security;
    mod policies;
    mod quotas;
    mod resizes;
    mod scenarios;
    mod serve;
    mod shared_storage;
    mod swagger;
    mod tables;
    mod test_api_server;
    mod usage;
    mod verbs;
    mod watches;
    mod webhook_configurations;
    mod webhooks;

    use serde_json::Value;

    /// Where two values differ, for the reader of a failed test.
    fn difference(ours: &Value, theirs: &Value, path: &str) -> String {
        match (ours, theirs) {
            (Value::Object(ours), Value::Object(theirs)) => {
                let mut names: Vec<&String> = ours.keys().chain(theirs.keys()).collect();
                names.sort();
                names.dedup();
                let inside = names.into_iter().map(|name| match (ours.get(name), theirs.get(name)) {
                    (Some(ours), Some(theirs)) => difference(ours, theirs, &format!("{path}.{name}")),
                    (ours, theirs) => format!("{path}.{name}: {ours:?} instead of {theirs:?}; "),
                });
                inside.collect()
            }
            (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
                let both = ours.iter().zip(theirs).enumerate();
                both.map(|(place, (ours, theirs))| difference(ours, theirs, &format!("{path}[{place}]")))
                    .collect()
            }
            _ if ours == theirs => String::new(),
            _ => format!("{path}: {ours} instead of {theirs}; "),
        }
    }
}
