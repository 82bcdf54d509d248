//! How figures are printed.

use std::time::Duration;

/// Prints how long something took: for people, or with `--json` for `bench/autoscaler`, which knows the figure by its key.
pub(crate) fn figure(key: &str, what: &str, took: Duration) {
    if std::env::args().any(|argument| argument == "--json") {
        let line = serde_json::json!({ "figure": key, "what": what, "seconds": took.as_secs_f64() });
        println!("{line}");
    } else {
        println!("{what}: {took:?}");
    }
}
