//! The backoff for failed daemon pods, per node.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

const FIRST: SignedDuration = SignedDuration::from_secs(1);
const LONGEST: SignedDuration = SignedDuration::from_mins(15);
/// The maximum number of backoff entries; beyond that all are dropped, and pods are recreated sooner.
const REMEMBERED: usize = 65_536;

/// The failures by set, generation and node.
#[derive(Debug, Default)]
pub(super) struct Failures(HashMap<(String, i64, String), Failed>);

#[derive(Debug)]
struct Failed {
    /// The last pod that failed.
    pod: String,
    times: u32,
    at: Timestamp,
}

impl Failures {
    /// Records a failed pod, and returns when it may be recreated: the first one at once, each further one after twice
    /// the time. The backoff is reset after a long enough time without failures.
    pub(super) fn note(
        &mut self,
        (set, generation): (&str, i64),
        node: &str,
        pod: &Pod,
        now: Timestamp,
    ) -> Timestamp {
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let entry = self.0.entry((set.to_owned(), generation, node.to_owned()));
        let failed = entry.or_insert_with(|| Failed { pod: String::new(), times: 0, at: now });
        if failed.pod != uid {
            let since = now.duration_since(failed.at);
            failed.times = if since > LONGEST * 2 { 1 } else { failed.times + 1 };
            (failed.pod, failed.at) = (uid, now);
        }
        match failed.times.checked_sub(2) {
            None => failed.at,
            Some(doublings) => failed.at + (FIRST * 2_i32.pow(doublings.min(16))).min(LONGEST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_failed_pod_is_recreated_at_once_and_further_ones_after_a_backoff() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let pod =
            |uid: &str| -> Pod { serde_json::from_value(json!({ "metadata": { "uid": uid } })).unwrap() };
        let mut failures = Failures::default();
        let mut note = |generation: i64, uid: &str, second: i64| {
            let again = failures.note(("set", generation), "node", &pod(uid), at(second));
            again.as_second() - second
        };
        assert_eq!([note(1, "a", 0), note(1, "b", 1), note(1, "c", 5), note(1, "d", 9)], [0, 1, 2, 4]);
        // The same pod counts as one failure in all reconciles.
        assert_eq!([note(1, "d", 10), note(1, "d", 11)], [3, 2]);
        assert_eq!(note(2, "e", 12), 0);
        assert_eq!(note(1, "f", 10_000), 0);
    }
}
