//! The explanation of a VPA: all its containers, from its checkpoints or from the running recommender.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use jiff::Timestamp;
use kube::ResourceExt as _;
use plumb_recommender::model::estimate;
use plumb_recommender::{
    Aggregate, AggregationConfig, CheckpointError, CheckpointStatus, ContainerExplanation,
    ContainerRecommendation, DEFAULT_NAME, EstimationSettings, Time, VpaKey, VpaSettings,
    WINDOW_PEAK_ANNOTATION, WindowPeak,
};
use plumb_resize::resource::Resource;
use plumb_vpa_api::{
    ConditionStatus, ConditionType, VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint,
    VerticalPodAutoscalerCondition,
};
use serde_json::{Value, json};

use crate::container::{self, other_in_status};
use crate::printable;

/// The explanation of the recommendation of a VPA.
#[derive(Clone, Debug, PartialEq)]
pub struct VpaExplanation {
    /// Which VPA.
    pub key: VpaKey,
    /// Where its history comes from.
    pub source: HistorySource,
    /// Its containers, in the order of their names.
    pub containers: Vec<ExplainedContainer>,
    /// Further notes.
    pub notes: Vec<String>,
}

/// Where the history that is explained comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistorySource {
    /// The checkpoints of the VPA, which are up to a minute old. Of the memory peaks of windows that are not over they have the
    /// highest, in an annotation that only the recommender of Plumb writes.
    Checkpoints,
    /// The memory of the recommender.
    Recommender,
}

/// One container of a VPA.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainedContainer {
    /// Its name.
    pub name: String,
    /// The recommendation in the status of the VPA; none if it has none.
    pub status: Option<ContainerRecommendation>,
    /// When its checkpoint was written.
    pub checkpoint_written: Option<Timestamp>,
    /// Where the recommendation comes from, or why that is not known.
    pub explanation: Result<ContainerExplanation, Unexplained>,
}

/// Why a container has no explanation.
#[derive(Clone, Debug, PartialEq)]
pub enum Unexplained {
    /// It has no checkpoint.
    NoCheckpoint,
    /// Its checkpoint cannot be read.
    Checkpoint(CheckpointError),
    /// Its policy has mode Off.
    Off,
}

impl fmt::Display for Unexplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCheckpoint => {
                f.write_str("there is no checkpoint of it, so its history is not known here")
            }
            Self::Checkpoint(error) => write!(f, "its checkpoint cannot be read: {error}"),
            Self::Off => f.write_str("its policy has mode Off: nothing is recommended for it"),
        }
    }
}

/// The state of one container before it is explained.
#[derive(Default)]
struct Known<'a> {
    checkpoint: Option<&'a VerticalPodAutoscalerCheckpoint>,
    status: Option<ContainerRecommendation>,
}

impl VpaExplanation {
    /// Explains a VPA from those of the checkpoints that are of it. Whether a recommender of upstream or of Plumb wrote them
    /// makes no difference.
    ///
    /// The flags of the recommender are in no object of the API: `config` and `settings` must be the same as its own.
    pub fn from_checkpoints(
        config: &AggregationConfig,
        settings: &EstimationSettings,
        vpa: &VerticalPodAutoscaler,
        checkpoints: &[VerticalPodAutoscalerCheckpoint],
    ) -> Self {
        let key = VpaKey::new(&vpa.namespace().unwrap_or_default(), &vpa.name_any());
        let mut notes = Vec::new();
        let mut known = known(vpa, &key, checkpoints, &mut notes);
        let asked = VpaSettings::from_api(&vpa.spec, vpa.annotations(), true);
        if let Some(why) = no_recommendation(vpa) {
            notes.insert(0, format!("there is no recommendation yet: {why}"));
        } else if known.values().all(|container| container.checkpoint.is_none()) {
            notes.push(NO_CHECKPOINTS.to_owned());
        }
        let restored: BTreeMap<&str, Result<Aggregate, Unexplained>> =
            known.iter().map(|(name, of)| (*name, restore(config, &asked, name, of.checkpoint))).collect();
        // A container whose history is not known still has its share of the pod's minimum.
        let unknown = Aggregate::new(config);
        let aggregates =
            restored.iter().map(|(name, restored)| (*name, restored.as_ref().unwrap_or(&unknown)));
        let mut explained = estimate::explain(config, settings, &asked, aggregates).into_iter().peekable();
        let containers = restored.iter().map(|(name, restored)| {
            let explanation = explained.next_if(|explained| explained.container == *name);
            let of = known.remove(name).unwrap_or_default();
            let written = of.checkpoint.and_then(|object| object.status.as_ref()?.last_update_time.clone());
            ExplainedContainer {
                name: (*name).to_owned(),
                status: of.status,
                checkpoint_written: written.map(|time| time.0),
                explanation: match (restored, explanation) {
                    (Err(why), _) => Err(why.clone()),
                    (Ok(_), Some(explanation)) => Ok(explanation),
                    (Ok(_), None) => Err(Unexplained::Off),
                },
            }
        });
        Self { containers: containers.collect(), source: HistorySource::Checkpoints, key, notes }
    }

    /// Explains a VPA from the state of the running recommender.
    pub fn of_recommender(key: VpaKey, containers: Vec<ContainerExplanation>) -> Self {
        let containers = containers.into_iter().map(|explanation| ExplainedContainer {
            name: explanation.container.clone(),
            status: None,
            checkpoint_written: None,
            explanation: Ok(explanation),
        });
        let containers = containers.collect();
        Self { key, source: HistorySource::Recommender, containers, notes: Vec::new() }
    }

    /// The explanation as text.
    pub fn text(&self) -> String {
        let from = match self.source {
            HistorySource::Checkpoints => "from its checkpoints",
            HistorySource::Recommender => "from the memory of the recommender",
        };
        let mut text = format!("vpa {}, {from}\n", printable(&self.key.to_string()));
        // Writing to a string does not fail.
        for note in &self.notes {
            let _ = writeln!(text, "note: {}", printable(note));
        }
        for container in &self.containers {
            text.push('\n');
            match &container.explanation {
                Ok(explanation) => {
                    text.push_str(&container::text(explanation, container.status.as_ref()));
                    if let Some(note) = container.difference() {
                        let _ = writeln!(text, "\n  note: {note}");
                    }
                }
                Err(why) => {
                    let (name, why) = (printable(&container.name), why.to_string());
                    let _ = writeln!(text, "container {name}\n  {}", printable(&why));
                }
            }
        }
        text
    }

    /// The explanation for programs.
    pub fn json(&self) -> Value {
        let containers = self.containers.iter().map(|container| {
            let mut value = match &container.explanation {
                Ok(explanation) => container::json(explanation),
                Err(why) => json!({ "containerName": container.name, "error": why.to_string() }),
            };
            value["checkpointWritten"] = json!(container.checkpoint_written.map(|time| time.to_string()));
            value["note"] = json!(container.difference());
            value
        });
        json!({
            "namespace": self.key.namespace,
            "name": self.key.name,
            "source": match self.source {
                HistorySource::Checkpoints => "checkpoints",
                HistorySource::Recommender => "recommender",
            },
            "notes": self.notes,
            "containers": containers.collect::<Vec<_>>(),
        })
    }
}

const NO_CHECKPOINTS: &str = "the VPA has no VerticalPodAutoscalerCheckpoint; a recommender writes them within a minute or \
     two, but none with --storage=prometheus";

/// Why a VPA has no recommendation, by the conditions that recommenders write; none if it has one.
fn no_recommendation(vpa: &VerticalPodAutoscaler) -> Option<String> {
    let recommended = vpa.status.iter().flat_map(|status| &status.recommendation);
    if recommended.flat_map(|recommended| &recommended.container_recommendations).next().is_some() {
        return None;
    }
    let conditions = || vpa.status.iter().flat_map(|status| &status.conditions);
    let find = |type_: &ConditionType, status: &ConditionStatus| {
        conditions().find(|condition| condition.type_ == *type_ && condition.status == *status)
    };
    let holds = |type_: ConditionType| find(&type_, &ConditionStatus::True);
    let provided = find(&ConditionType::RecommendationProvided, &ConditionStatus::False);
    let message = |condition: &VerticalPodAutoscalerCondition| {
        condition.message.clone().filter(|message| !message.is_empty())
    };
    let target = format!("{} {}", vpa.spec.target_ref.kind, vpa.spec.target_ref.name);
    if let Some(unsupported) = holds(ConditionType::ConfigUnsupported) {
        return Some(message(unsupported).unwrap_or_else(|| "its configuration is not supported".to_owned()));
    }
    if holds(ConditionType::NoPodsMatched).is_some() {
        return Some(format!("{target} has no pod that was started"));
    }
    if holds(ConditionType::FetchingHistory).is_some() {
        return Some("the recommender is still reading the history".to_owned());
    }
    if let Some(provided) = provided {
        let why =
            message(provided).unwrap_or_else(|| format!("no usage of the pods of {target} was measured"));
        return Some(format!(
            "{why}. The first sample comes within a minute or two of the start of a pod; if it does not, `kubectl top pods` \
             shows whether metrics.k8s.io has any"
        ));
    }
    let recommender = vpa.spec.recommenders.first().map(|selected| &selected.name);
    let named = recommender.map_or_else(|| DEFAULT_NAME.to_owned(), Clone::clone);
    Some(format!(
        "no recommender has written its status; the one named {named:?} is responsible for it: does it run, and may it read the \
         VPA?"
    ))
}

impl ExplainedContainer {
    /// Why the status may have another amount than the explanation, where it has.
    fn difference(&self) -> Option<String> {
        let explanation = self.explanation.as_ref().ok()?;
        let differs = Resource::ALL.into_iter().any(|resource| {
            let bounds = explanation.resources[resource].iter().flat_map(|explained| &explained.bounds);
            bounds.into_iter().any(|bound| other_in_status(resource, bound, self.status.as_ref()).is_some())
        });
        let since = self.checkpoint_written.map_or_else(String::new, |time| format!(" ({time})"));
        differs.then(|| {
            format!(
                "the status counts, too, what was measured after the checkpoint was written{since}, and the memory peak of the \
                 day of every pod, of which the checkpoint has the highest; if it differs for long, the recommender runs with \
                 other flags"
            )
        })
    }
}

/// The containers that the status or a checkpoint names.
fn known<'a>(
    vpa: &'a VerticalPodAutoscaler,
    key: &VpaKey,
    checkpoints: &'a [VerticalPodAutoscalerCheckpoint],
    notes: &mut Vec<String>,
) -> BTreeMap<&'a str, Known<'a>> {
    let mut known: BTreeMap<&str, Known<'_>> = BTreeMap::new();
    let recommended = vpa.status.iter().flat_map(|status| &status.recommendation);
    for container in recommended.flat_map(|recommended| &recommended.container_recommendations) {
        let status = Some(ContainerRecommendation::from_api(container));
        known.insert(&container.container_name, Known { status, checkpoint: None });
    }
    let of_vpa = |checkpoint: &&VerticalPodAutoscalerCheckpoint| {
        checkpoint.spec.vpa_object_name == key.name
            && checkpoint.namespace().unwrap_or_default() == key.namespace
    };
    for checkpoint in checkpoints.iter().filter(of_vpa) {
        let container = checkpoint.spec.container_name.as_str();
        let entry = known.entry(container).or_default();
        // The name of a checkpoint is that of its VPA and its container.
        let is_named = |object: &VerticalPodAutoscalerCheckpoint| {
            object.name_any().strip_prefix(&key.name).and_then(|rest| rest.strip_prefix('-'))
                == Some(container)
        };
        let second = match entry.checkpoint {
            Some(first) if is_named(first) || !is_named(checkpoint) => Some(checkpoint),
            first => {
                entry.checkpoint = Some(checkpoint);
                first
            }
        };
        if let Some(second) = second {
            let name = second.name_any();
            notes.push(format!("checkpoint {name} is a second one of container {container} and is not read"));
        }
    }
    known
}

fn restore(
    config: &AggregationConfig,
    asked: &VpaSettings,
    container: &str,
    checkpoint: Option<&VerticalPodAutoscalerCheckpoint>,
) -> Result<Aggregate, Unexplained> {
    if !asked.policy.scales(container) {
        return Err(Unexplained::Off);
    }
    let checkpoint = checkpoint.ok_or(Unexplained::NoCheckpoint)?;
    let status = checkpoint.status.clone().unwrap_or_default();
    let restored = CheckpointStatus::from_api(&status).and_then(|status| status.restore(config));
    let mut restored = restored.map_err(Unexplained::Checkpoint)?;
    if let Some(peak) = open_window_peak(checkpoint) {
        peak.count_in(config, &mut restored);
    }
    Ok(restored)
}

/// The memory peak of the window that was not over when a checkpoint was written, so that the histogram does not have it.
fn open_window_peak(checkpoint: &VerticalPodAutoscalerCheckpoint) -> Option<WindowPeak> {
    let peak = WindowPeak::from_annotation(checkpoint.annotations().get(WINDOW_PEAK_ANNOTATION)?)?;
    let written = checkpoint.status.as_ref().and_then(|status| status.last_update_time.as_ref());
    let written = written.and_then(|written| Time::try_from(written.0).ok());
    // The recommender of upstream leaves the annotation as it is.
    written.is_none_or(|written| written < peak.until).then_some(peak)
}
