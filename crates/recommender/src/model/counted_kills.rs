//! The OOM kills that a checkpoint holds and that pods may still show.
//!
//! A checkpoint holds the memory peaks of windows that are over, and not those of windows that are not. So after a restart
//! of the recommender a kill that a pod still shows in `lastState` has to be counted in the one case and must not be in the
//! other, and upstream's format does not show which it is. An annotation of the checkpoint does. Upstream's
//! recommender leaves it as it is, and adding to the history removes no kill from it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::time::Time;

/// The annotation of a checkpoint that names the kills in it: a JSON object of pods and times.
pub const COUNTED_KILLS_ANNOTATION: &str = "plumb.dev/vpa-counted-oom-kills";

/// How many pods a checkpoint names at most, those with the latest kills. Kills of others may count twice.
const MAX_PODS: usize = 100;

/// The latest kill of each pod that a history holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CountedKills(BTreeMap<Box<str>, Time>);

impl CountedKills {
    /// Reads the annotation. An annotation that cannot be read names no kill.
    pub fn from_annotation(text: &str) -> Self {
        let read: BTreeMap<Box<str>, Timestamp> = serde_json::from_str(text).unwrap_or_default();
        let times = read.into_iter().filter_map(|(pod, at)| Some((pod, Time::try_from(at).ok()?)));
        Self(times.take(MAX_PODS).collect())
    }

    /// The value of the annotation; none if there is no kill to name.
    pub fn to_annotation(&self) -> Option<String> {
        let times: BTreeMap<&str, String> =
            self.0.iter().filter_map(|(pod, at)| Some((&**pod, at.timestamp()?.to_string()))).collect();
        if times.is_empty() { None } else { serde_json::to_string(&times).ok() }
    }

    /// Adds a kill of a pod.
    pub fn add(&mut self, pod: &str, at: Time) {
        // To the second, which is what pods and events show.
        let at = at.truncated_to_seconds();
        let latest = self.0.entry(pod.into()).or_insert(at);
        *latest = at.max(*latest);
    }

    /// Whether a kill of a pod is one of them, or is older than one.
    pub fn contains(&self, pod: &str, at: Time) -> bool {
        self.0.get(pod).is_some_and(|latest| at.truncated_to_seconds() <= *latest)
    }

    /// Removes the kills that are older than a time, and all but the latest if there are too many.
    pub(crate) fn limit(&mut self, oldest: Time) {
        self.0.retain(|_, at| *at >= oldest);
        if self.0.len() > MAX_PODS {
            let mut times: Vec<Time> = self.0.values().copied().collect();
            times.sort_unstable();
            let least = times[times.len() - MAX_PODS];
            self.0.retain(|_, at| *at >= least);
        }
    }
}
