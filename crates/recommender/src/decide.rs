//! The status of a VPA, and whether it has to be written. Pure.
//!
//! The recommender is the one writer of the recommendation and of its types of conditions. Should another recommender
//! replace the status of a VPA, it is put back once. If it is replaced again, two recommenders are responsible for one
//! VPA: then it is left alone until the recommendation changes, so that they do not write in a loop.

use jiff::Timestamp;
use plumb_controller_runtime::object_ref::resource_version;
use plumb_vpa_api::{
    RecommendedPodResources, UpdateMode, VerticalPodAutoscaler, VerticalPodAutoscalerCondition,
    VerticalPodAutoscalerSpec, VerticalPodAutoscalerStatus,
};

use crate::conditions::{Facts, conditions, is_foreign};
use crate::model::estimate::ContainerRecommendation;

/// The message about a VPA with the deprecated mode `Auto`.
const AUTO_IS_DEPRECATED: &str = "The update mode Auto is deprecated. Use an explicit mode: Off, Initial, Recreate, \
    InPlaceOrRecreate or InPlace. See https://github.com/kubernetes/autoscaler/issues/8424";

/// The inputs for the status of a VPA.
#[derive(Clone, Copy, Debug)]
pub struct Knowledge<'a> {
    /// The object as it was observed last.
    pub object: &'a VerticalPodAutoscaler,
    /// The recommendation; none while the history is not read, and the status keeps the old one.
    pub recommendation: Option<&'a [ContainerRecommendation]>,
    /// The containers with less history than the confidence interval.
    pub low_confidence: &'a [&'a str],
    /// Whether a pod matches.
    pub pods_matched: bool,
    /// Whether history is being read.
    pub fetching_history: bool,
    /// The error of the target, or of another field that cannot be acted on.
    pub unsupported: Option<&'a str>,
    /// The latest OOM kill that this process has counted.
    pub kills_counted_until: Option<Timestamp>,
}

/// The status that was written last.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// The status.
    pub status: VerticalPodAutoscalerStatus,
    /// The resource version of the object with it.
    pub resource_version: u64,
    /// Whether it was written because another writer had replaced it.
    pub put_back: bool,
}

/// The decision about a status.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// It is as it should be.
    Unchanged,
    /// The last write is not observed yet.
    Wait,
    /// Another writer replaces it again and again.
    Contested,
    /// It is to be written.
    Write {
        /// The status.
        status: VerticalPodAutoscalerStatus,
        /// Whether only another writer's change makes it necessary.
        put_back: bool,
    },
}

/// Decides about the status of a VPA.
pub fn decide(knowledge: &Knowledge<'_>, written: Option<&Written>, now: Timestamp) -> Decision {
    let object = knowledge.object;
    if written.is_some_and(|written| is_behind(object, written)) {
        return Decision::Wait;
    }
    let current = object.status.clone().unwrap_or_default();
    let status = status(knowledge, &current, written, now);
    if says_the_same(&status, &current) {
        return Decision::Unchanged;
    }
    match written {
        Some(written) if says_the_same(&status, &written.status) => {
            if written.put_back {
                Decision::Contested
            } else {
                Decision::Write { status, put_back: true }
            }
        }
        _ => Decision::Write { status, put_back: false },
    }
}

/// The error in the spec of a VPA, apart from its target.
pub fn unsupported(spec: &VerticalPodAutoscalerSpec) -> Option<String> {
    match spec.update_mode() {
        UpdateMode::Other(mode) => Some(format!("Unknown update mode {mode:?}")),
        _ if spec.recommenders.len() > 1 => {
            Some("The current version of VPA object shouldn't specify more than one recommenders.".to_owned())
        }
        _ => None,
    }
}

fn is_behind(object: &VerticalPodAutoscaler, written: &Written) -> bool {
    // A version that is no number compares as observed.
    let observed = resource_version(&object.metadata);
    observed != 0 && observed < written.resource_version
}

fn status(
    knowledge: &Knowledge<'_>,
    current: &VerticalPodAutoscalerStatus,
    written: Option<&Written>,
    now: Timestamp,
) -> VerticalPodAutoscalerStatus {
    let recommendation = match knowledge.recommendation {
        None => current.recommendation.clone(),
        Some([]) => None,
        Some(containers) => Some(RecommendedPodResources {
            container_recommendations: containers.iter().map(Into::into).collect(),
        }),
    };
    let spec = &knowledge.object.spec;
    let own = unsupported(spec);
    let unsupported: Vec<&str> = knowledge.unsupported.into_iter().chain(own.as_deref()).collect();
    let unsupported = unsupported.join("; ");
    let facts = Facts {
        pods_matched: knowledge.pods_matched,
        has_recommendation: recommendation.is_some(),
        low_confidence: knowledge.low_confidence,
        fetching_history: knowledge.fetching_history,
        deprecated: (spec.update_mode() == UpdateMode::Auto).then_some(AUTO_IS_DEPRECATED),
        unsupported: Some(&*unsupported).filter(|text| !text.is_empty()),
        // Those that another process has counted are in the checkpoints, or pods show them still.
        // The clock of a node may be ahead: up to a time to come no kill can be counted.
        kills_counted_until: knowledge
            .kills_counted_until
            .max(current.kills_counted_until())
            .map(|until| until.min(now)),
    };
    // Changes of our conditions by another writer do not change since when they hold.
    let ours = ours(written.map_or(current, |written| &written.status));
    let foreign = current.conditions.iter().filter(|condition| is_foreign(condition));
    let before: Vec<_> = ours.chain(foreign).cloned().collect();
    VerticalPodAutoscalerStatus {
        recommendation,
        conditions: conditions(&before, facts, now),
        observed_generation: knowledge.object.metadata.generation,
    }
}

/// The conditions of the types that the recommender writes.
fn ours(status: &VerticalPodAutoscalerStatus) -> impl Iterator<Item = &VerticalPodAutoscalerCondition> {
    status.conditions.iter().filter(|condition| !is_foreign(condition))
}

/// Whether two statuses differ only in the transition times of conditions, and in conditions of other writers.
fn says_the_same(one: &VerticalPodAutoscalerStatus, other: &VerticalPodAutoscalerStatus) -> bool {
    let says = |status: &VerticalPodAutoscalerStatus| -> Vec<_> {
        let conditions = ours(status).cloned().map(|mut condition| {
            condition.last_transition_time = None;
            condition
        });
        conditions.collect()
    };
    one.recommendation == other.recommendation
        && one.observed_generation == other.observed_generation
        && says(one) == says(other)
}
