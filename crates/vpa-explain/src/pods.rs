//! The state of the pods of a VPA: their resources, their recommendation, and what they wait for.
//!
//! The functions of the updater compute it from the objects in the API. State that only the updater has, such as the
//! backoff after a refusal, is in its events.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::jiff::Timestamp;
use plumb_controller_runtime::ObjectRef;
use plumb_resize::resource::Declared;
use plumb_resize::status::Stage;
use plumb_updater::Options;
use plumb_updater::decide::{Plan, Policy, Standing, Subject, Surroundings, plan, triage};
use plumb_updater::in_place::{InPlace, Recreating, Wait};
use plumb_updater::mode::NoActuation;
use plumb_vpa::boost::annotation::read_boosts;
use plumb_vpa::boost::ends_at_recommendation;
use plumb_vpa_api::VerticalPodAutoscaler;

use crate::boost::BoostView;

/// How a pod stands.
#[derive(Clone, Debug, PartialEq)]
pub struct PodView {
    /// Which pod.
    pub pod: ObjectRef,
    /// How it stands.
    pub state: PodUpdateState,
    /// Since when, as far as the API has it.
    pub since: Option<Timestamp>,
    /// The reason; empty if there is none.
    pub why: String,
    /// Its containers, in the order of the spec.
    pub containers: Vec<ContainerView>,
    /// The boosts that it has.
    pub boosts: Vec<BoostView>,
    /// Whether the update mode changes running pods.
    pub managed: bool,
}

impl PodView {
    /// The state of a container: of a pod with a boost only the boosted ones are `Boosted`.
    pub fn state_of(&self, container: &ContainerView) -> PodUpdateState {
        let is_boosted = self.boosts.iter().any(|boost| boost.container == container.name);
        match (self.state, &container.target) {
            (PodUpdateState::Boosted, _) if is_boosted => PodUpdateState::Boosted,
            (PodUpdateState::Boosted, None) => PodUpdateState::NoRecommendation,
            (PodUpdateState::Boosted, Some(_)) if !self.managed => PodUpdateState::Unmanaged,
            (PodUpdateState::Boosted, Some(target)) if *target == container.current => {
                PodUpdateState::Updated
            }
            (PodUpdateState::Boosted, Some(_)) => PodUpdateState::Waiting,
            (state, _) => state,
        }
    }
}

/// How a pod stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodUpdateState {
    /// It has the recommendation, or is within its bounds.
    Updated,
    /// It is to get the recommendation.
    Waiting,
    /// Its node cannot hold the recommendation.
    Infeasible,
    /// It has a CPU start-up boost.
    Boosted,
    /// The update mode leaves running pods as they are.
    Unmanaged,
    /// There is no recommendation.
    NoRecommendation,
}

impl PodUpdateState {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Updated => "Updated",
            Self::Waiting => "Waiting",
            Self::Infeasible => "Infeasible",
            Self::Boosted => "Boosted",
            Self::Unmanaged => "Unmanaged",
            Self::NoRecommendation => "NoRecommendation",
        }
    }
}

/// The requests of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerView {
    /// Its name.
    pub name: String,
    /// Its present requests.
    pub current: Declared,
    /// Its recommended requests; none without a recommendation. Of a boosted container the CPU is that after its boost.
    pub target: Option<Declared>,
}

/// The events of the updater about pods, by their UIDs.
#[derive(Clone, Debug, Default)]
pub struct PodEvents(BTreeMap<String, OfPod>);

#[derive(Clone, Debug, Default)]
struct OfPod {
    /// When it was last resized.
    resized: Option<Timestamp>,
    /// What it waits for: since when, the last time, and the message.
    waits: Option<(Timestamp, Timestamp, String)>,
}

impl PodEvents {
    /// Reads the messages of the updater from events.
    pub fn new<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut all = Self::default();
        for event in events {
            let (Some(uid), Some(reason)) = (&event.involved_object.uid, event.reason.as_deref()) else {
                continue;
            };
            let first = event.first_timestamp.as_ref().map(|time| time.0);
            let Some(last) = event.last_timestamp.as_ref().map(|time| time.0).or(first) else { continue };
            let of_pod = all.0.entry(uid.clone()).or_default();
            match reason {
                "InPlaceResizedByVPA" => of_pod.resized = of_pod.resized.max(Some(last)),
                "VPAUpdateWaiting" | "VPAUpdateRefused"
                    if of_pod.waits.as_ref().is_none_or(|(_, known, _)| *known < last) =>
                {
                    let message = event.message.clone().unwrap_or_default();
                    of_pod.waits = Some((first.unwrap_or(last), last, message));
                }
                _ => {}
            }
        }
        all
    }
}

/// How the pods of a VPA stand. `objects` are those of the subjects, in the same order.
pub fn pods(
    vpa: &VerticalPodAutoscaler,
    subjects: &[Subject],
    objects: &[Pod],
    events: &PodEvents,
    options: &Options,
    now: Timestamp,
) -> Vec<PodView> {
    let policy = Policy::of(vpa, &options.modes, options.per_vpa_config);
    let settings = options.decisions;
    let triage = triage(subjects, &policy, &settings.priority, now);
    // As many replicas as there are; the API server and the node report the obstacles of a resize.
    let surroundings = Surroundings {
        configured: &BTreeMap::new(),
        siblings: &[],
        obstacle: &|_, _| None,
        admission_is_alive: true,
        eviction_pause: None,
        now,
    };
    let (plan, _) = plan(subjects, &triage, &policy, &settings, &surroundings);
    let mut states: BTreeMap<usize, (PodUpdateState, Option<Timestamp>, String)> = BTreeMap::new();
    for (position, standing) in &triage.others {
        let subject = &subjects[*position];
        let state = match standing {
            Standing::Updated => (PodUpdateState::Updated, None, String::new()),
            Standing::Resizing => {
                (PodUpdateState::Waiting, subject.pod.stage_condition.since, subject.pod.stage.to_string())
            }
            Standing::Boosted => (PodUpdateState::Boosted, subject.pod.started, String::new()),
            Standing::NoRecommendation => (PodUpdateState::NoRecommendation, None, String::new()),
        };
        states.insert(*position, state);
    }
    match &plan {
        Plan::None(why) => {
            let why = unmanaged(vpa, why);
            let left = triage.due.iter();
            states.extend(left.map(|at| (*at, (PodUpdateState::Unmanaged, None, why.clone()))));
        }
        Plan::InPlace(all) => {
            let decided = all.iter();
            states
                .extend(decided.map(|one| (one.position, in_place(&subjects[one.position], &one.decision))));
        }
        Plan::Recreating(all) => states.extend(all.iter().map(|one| {
            let state = match &one.decision {
                Recreating::InPlace(decision) => in_place(&subjects[one.position], decision),
                Recreating::Evict(cause) => {
                    let why = format!("the updater is to evict it: {cause}");
                    (PodUpdateState::Waiting, None, why)
                }
            };
            (one.position, state)
        })),
    }
    states
        .into_iter()
        .map(|(position, (state, since, why))| {
            let (subject, object) = (&subjects[position], &objects[position]);
            let said = events.0.get(&subject.pod.uid);
            let (mut since, mut why) = (since, why);
            // State that only the updater has.
            if let Some((first, _, message)) = said.and_then(|said| said.waits.as_ref())
                && state == PodUpdateState::Waiting
                && subject.pod.stage == Stage::Applied
            {
                (since, why) = (Some(*first), message.clone());
            }
            if state == PodUpdateState::Updated {
                since = said.and_then(|said| said.resized).or(subject.pod.started);
            }
            let boosts = BoostView::all(object, Some(vpa));
            PodView {
                pod: subject.pod.object.clone(),
                state,
                since,
                why,
                containers: containers(vpa, subject, object, &boosts),
                boosts,
                managed: vpa.spec.updates_running_pods(),
            }
        })
        .collect()
}

fn in_place(subject: &Subject, decision: &InPlace) -> (PodUpdateState, Option<Timestamp>, String) {
    let since = subject.pod.stage_condition.since;
    match decision {
        InPlace::Updated => (PodUpdateState::Updated, None, String::new()),
        InPlace::Resize { .. } => {
            (PodUpdateState::Waiting, None, "the updater is to resize it in place".to_owned())
        }
        InPlace::Wait(wait) => {
            let since = match wait {
                Wait::Deferred { since, .. } | Wait::InProgress { since, .. } => Some(*since),
                _ => since,
            };
            (PodUpdateState::Waiting, since, format!("{}: {wait}", wait.reason()))
        }
        InPlace::Infeasible { .. } => {
            let why = match &subject.pod.stage {
                Stage::Infeasible { message } => message.clone(),
                _ => "its node cannot hold what is recommended".to_owned(),
            };
            (PodUpdateState::Infeasible, since, why)
        }
    }
}

fn unmanaged(vpa: &VerticalPodAutoscaler, why: &NoActuation) -> String {
    match why {
        NoActuation::Mode => {
            format!("the update mode {} leaves running pods as they are", vpa.spec.update_mode().as_str())
        }
        NoActuation::GateOff => "the feature gate InPlace is disabled".to_owned(),
        NoActuation::ResizeNotServed => "the API server does not serve pods/resize".to_owned(),
        NoActuation::Unknown(mode) => format!("the update mode {mode} is unknown"),
    }
}

fn containers(
    vpa: &VerticalPodAutoscaler,
    subject: &Subject,
    object: &Pod,
    boosts: &[BoostView],
) -> Vec<ContainerView> {
    let pod = &subject.pod;
    let recommendation = subject.recommendation.as_deref();
    let recorded = read_boosts(object);
    let view = |container: &plumb_updater::state::ContainerState| {
        let name = &container.name;
        let wanted = recommendation.and_then(|all| all.get(name));
        let wanted = wanted.filter(|wanted| !wanted.target.is_none());
        let current = container.current(&pod.stage).requests;
        let mut target = wanted.map(|wanted| wanted.change_of(container.desired).requests);
        let gets_recommendation = wanted.is_some_and(|wanted| wanted.target.cpu.is_some())
            && ends_at_recommendation(&vpa.spec.update_mode(), recorded.get(name));
        let boost = boosts.iter().find(|boost| boost.container == *name);
        let own = boost.and_then(|boost| boost.unboosted?.request).filter(|_| !gets_recommendation);
        if let Some(own) = own {
            target.get_or_insert(current).cpu = Some(own.saturating_milli());
        }
        ContainerView { name: name.clone(), current, target }
    };
    pod.containers.iter().map(view).collect()
}
