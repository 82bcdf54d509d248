//! The decision about the pods of one VPA: which are due, in which order, and the action for each.
//!
//! ```text
//!   pods ──triage──▶ due, most urgent first ──plan (budgets, node, quota)──▶ resize / evict / wait, and when to look again
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use plumb_resize::resource::Declared;
use plumb_vpa_api::{EvictionRequirement, VerticalPodAutoscaler};

use crate::budget::{self, Group};
use crate::in_place::{
    Backoff, EvictionQuestion, InPlace, Question, Recreating, Timeouts, Wait, deadline, decide_in_place,
    decide_in_place_or_recreate, decide_recreate,
};
use crate::mode::{Actuation, Modes, NoActuation};
use crate::obstacle::Obstacle;
use crate::oom_hold::OomHold;
use crate::priority::{self, Priority, Verdict, lacks_memory, verdict};
use crate::shrink_first::NodeDecision;
use crate::state::{Owner, PodState, Recommendation};

/// After which time something is read again that no watch reports.
const READ_AGAIN: SignedDuration = SignedDuration::from_secs(10);

/// The settings of decisions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Of disruption budgets.
    pub budget: budget::Settings,
    /// Of priorities.
    pub priority: priority::Settings,
    /// How long resizes may take before a pod is evicted.
    pub timeouts: Timeouts,
    /// Whether a resize that restarts no container costs no disruption budget.
    pub skip_budget: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            budget: budget::Settings::default(),
            priority: priority::Settings::default(),
            timeouts: Timeouts::default(),
            skip_budget: true,
        }
    }
}

/// The update settings of a VPA.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The permitted actions of the updater.
    pub actuation: Actuation,
    /// `minReplicas`.
    pub min_replicas: Option<i32>,
    /// `evictionRequirements`.
    pub requirements: Vec<EvictionRequirement>,
    /// `evictAfterOOMSeconds`.
    pub evict_after_oom: Option<SignedDuration>,
}

impl Policy {
    /// The settings of a VPA. With `per_vpa_config`, the gate `PerVPAConfig`, it may have an `evictAfterOOMSeconds`
    /// of its own.
    pub fn of(vpa: &VerticalPodAutoscaler, modes: &Modes, per_vpa_config: bool) -> Self {
        let update = vpa.spec.update_policy.as_ref();
        let oom = update.and_then(|update| update.evict_after_oom_seconds);
        Self {
            actuation: modes.actuation(&vpa.spec.update_mode()),
            min_replicas: update.and_then(|update| update.min_replicas),
            requirements: update.map(|update| update.eviction_requirements.clone()).unwrap_or_default(),
            evict_after_oom: oom
                .filter(|_| per_vpa_config)
                .map(|seconds| SignedDuration::from_secs(seconds.into())),
        }
    }
}

/// A pod of a VPA, with state beyond its object.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The pod.
    pub pod: Arc<PodState>,
    /// The recommendation for its containers; none if there is none.
    pub recommendation: Option<Arc<Recommendation>>,
    /// The allocatable resources of its node, if they are known.
    pub allocatable: Declared,
    /// When this updater first observed the pod's generation.
    pub observed: Timestamp,
    /// When it may be attempted again after a refusal.
    pub backoff: Option<Backoff>,
    /// Its place in the order in which this updater first observed pods.
    pub arrival: u64,
    /// What recent OOM kills hold back for it, see [`oom_hold`](super::oom_hold).
    pub oom_hold: Option<OomHold>,
    /// What the plan of its node says about it, see [`shrink_first`](super::shrink_first).
    pub node_decision: NodeDecision,
}

/// The state of a pod that is not due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has the recommendation, or is within its bounds.
    Updated,
    /// Its actual resources and those of its spec are within the bounds, but a resize is in progress.
    Resizing,
    /// It has a CPU start-up boost, whose end is awaited.
    Boosted,
    /// There is no recommendation.
    NoRecommendation,
}

/// The pods of a VPA by whether they are due.
#[derive(Clone, Debug, Default)]
pub struct Triage {
    /// The live pods that are due, by position: those that shrink so that others fit, then the most urgent first.
    pub due: Vec<usize>,
    /// The live pods that are not due, by position.
    pub others: Vec<(usize, Standing)>,
    /// When another pod becomes due without an event.
    pub next: Option<Timestamp>,
}

/// Finds the pods that are due.
pub fn triage(
    subjects: &[Subject],
    policy: &Policy,
    settings: &priority::Settings,
    now: Timestamp,
) -> Triage {
    let mut triage = Triage::default();
    let mut shrinks: Vec<usize> = Vec::new();
    let mut due: Vec<(Priority, usize)> = Vec::new();
    for (position, subject) in subjects.iter().enumerate().filter(|(_, subject)| subject.pod.is_live()) {
        if subject.pod.boosted {
            triage.others.push((position, Standing::Boosted));
            continue;
        }
        let recommendation = subject.recommendation.as_deref().filter(|one| !one.is_empty());
        let Some(recommendation) = recommendation else {
            triage.others.push((position, Standing::NoRecommendation));
            continue;
        };
        if subject.node_decision == NodeDecision::ShrinkFirst {
            shrinks.push(position);
            continue;
        }
        match verdict(&subject.pod, recommendation, settings, policy.evict_after_oom, now) {
            Verdict::Update(priority) => due.push((priority, position)),
            Verdict::Leave(at) => {
                triage.next = earlier(triage.next, at);
                let standing = if subject.pod.is_resizing() { Standing::Resizing } else { Standing::Updated };
                triage.others.push((position, standing));
            }
        }
    }
    // Pods of the same priority are updated in the order of their names, whatever the order of the watch.
    due.sort_by(|(a, at), (b, bt)| {
        b.cmp(a).then_with(|| subjects[*at].pod.object.cmp(&subjects[*bt].pod.object))
    });
    triage.due = shrinks.into_iter().chain(due.into_iter().map(|(_, position)| position)).collect();
    triage
}

/// The owners of which it has to be known how many pods they are configured for.
pub fn owners_to_read(
    subjects: &[Subject],
    triage: &Triage,
    policy: &Policy,
    settings: &Settings,
) -> BTreeSet<Owner> {
    let costs_budget = |subject: &Subject| match policy.actuation {
        Actuation::None(_) => false,
        // A resize that is under way, or is rejected, may lead to an eviction.
        Actuation::Recreate | Actuation::InPlaceOrRecreate => true,
        Actuation::InPlace => !settings.skip_budget || restarts(subject),
    };
    let due = triage.due.iter().map(|position| &subjects[*position]);
    due.filter(|subject| costs_budget(subject)).filter_map(|subject| subject.pod.owner.clone()).collect()
}

fn restarts(subject: &Subject) -> bool {
    subject.recommendation.as_ref().is_some_and(|recommendation| subject.pod.restarts_for(recommendation))
}

/// The environment of the pods of a VPA.
pub struct Surroundings<'a> {
    /// How many pods owners are configured for, by their UID; none for an owner that could not be read. An owner that
    /// was not read, because no pod needs budget, is missing.
    pub configured: &'a BTreeMap<String, Option<i64>>,
    /// Pods of the same owners that are not decided about, but count in the budgets.
    pub siblings: &'a [Arc<PodState>],
    /// Why a pod cannot be resized, if that is known before an attempt. Computed only for pods that may be evicted.
    pub obstacle: &'a (dyn Fn(&PodState, &Recommendation) -> Option<Obstacle> + Sync),
    /// Whether pods that are created get the recommendation.
    pub admission_is_alive: bool,
    /// Until when no pod is evicted, because new ones come up without the recommendation.
    pub eviction_pause: Option<Timestamp>,
    /// The time.
    pub now: Timestamp,
}

/// A pod that is due, and what becomes of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided<D> {
    /// The position of the pod.
    pub position: usize,
    /// The action.
    pub decision: D,
}

/// The actions for the pods of a VPA that are due.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// They are left as they are.
    None(NoActuation),
    /// The update mode is `InPlace`: no decision evicts.
    InPlace(Vec<Decided<InPlace>>),
    /// The update mode may evict.
    Recreating(Vec<Decided<Recreating>>),
}

impl Plan {
    /// Whether it evicts pods.
    pub fn evicts(&self) -> bool {
        let Self::Recreating(all) = self else { return false };
        all.iter().any(|one| matches!(one.decision, Recreating::Evict(_)))
    }

    /// Whether it disrupts pods.
    pub fn spends_budget(&self) -> bool {
        let spends = |decision: &InPlace| matches!(decision, InPlace::Resize { costs_budget: true });
        match self {
            Self::None(_) => false,
            Self::InPlace(all) => all.iter().any(|one| spends(&one.decision)),
            Self::Recreating(all) => all.iter().any(|one| match &one.decision {
                Recreating::InPlace(decision) => spends(decision),
                Recreating::Evict(_) => true,
            }),
        }
    }
}

/// Decides what becomes of the pods that are due, within the budgets, and when to decide again without an event.
pub fn plan(
    subjects: &[Subject],
    triage: &Triage,
    policy: &Policy,
    settings: &Settings,
    surroundings: &Surroundings<'_>,
) -> (Plan, Option<Timestamp>) {
    let mut groups = groups(subjects, policy, settings, surroundings);
    let mut next = triage.next;
    let decided = match &policy.actuation {
        Actuation::None(why) => return (Plan::None(why.clone()), None),
        Actuation::InPlace => {
            let decide = |position: &usize| {
                let subject = &subjects[*position];
                let decision = ask(subject, &mut groups, settings, surroundings, |question| {
                    let decision = decide_in_place(question);
                    next = earlier(next, again(question, &decision));
                    decision
                })?;
                if let InPlace::Resize { costs_budget: true } = decision {
                    spend(&mut groups, subject, |group| group.resize(&subject.pod, restarts(subject)));
                }
                Some(Decided { position: *position, decision })
            };
            Plan::InPlace(triage.due.iter().filter_map(decide).collect())
        }
        actuation @ (Actuation::Recreate | Actuation::InPlaceOrRecreate) => {
            let in_place_first = *actuation == Actuation::InPlaceOrRecreate;
            let decide = |position: &usize| {
                let subject = &subjects[*position];
                let decision = ask(subject, &mut groups, settings, surroundings, |question| {
                    if subject.node_decision == NodeDecision::ShrinkFirst {
                        // Not evicted for another pod.
                        return Recreating::InPlace(decide_in_place(question));
                    }
                    let decision =
                        decide_recreating(question, in_place_first, policy, settings, surroundings);
                    if in_place_first {
                        next = earlier(
                            next,
                            deadline(question, &settings.timeouts).filter(|at| *at > question.now),
                        );
                    }
                    if let Recreating::InPlace(decision) = &decision {
                        next = earlier(next, again(question, decision));
                    }
                    decision
                })?;
                match &decision {
                    Recreating::InPlace(InPlace::Resize { costs_budget: true }) => {
                        spend(&mut groups, subject, |group| group.resize(&subject.pod, restarts(subject)));
                    }
                    Recreating::Evict(_) => spend(&mut groups, subject, |group| group.evict(&subject.pod)),
                    Recreating::InPlace(_) => {}
                }
                Some(Decided { position: *position, decision })
            };
            Plan::Recreating(triage.due.iter().filter_map(decide).collect())
        }
    };
    (decided, next)
}

fn decide_recreating(
    question: &Question<'_>,
    in_place_first: bool,
    policy: &Policy,
    settings: &Settings,
    surroundings: &Surroundings<'_>,
) -> Recreating {
    let Question { pod, recommendation, .. } = *question;
    let asks = !pod.has(recommendation);
    let obstacle = asks.then(|| (surroundings.obstacle)(pod, recommendation)).flatten();
    let eviction = EvictionQuestion {
        obstacle: obstacle.as_ref(),
        lacks_memory: lacks_memory(
            pod,
            recommendation,
            &settings.priority,
            policy.evict_after_oom,
            question.now,
        ),
        requirements: &policy.requirements,
        timeouts: settings.timeouts,
        admission_is_alive: surroundings.admission_is_alive,
        paused_until: surroundings.eviction_pause,
    };
    if in_place_first {
        decide_in_place_or_recreate(question, &eviction)
    } else {
        decide_recreate(question, &eviction)
    }
}

type Groups = BTreeMap<String, Group>;

/// The budgets of all groups whose owner's configured number of pods is known. A group whose owner was not read has
/// its present size: no pod needs budget.
fn groups(
    subjects: &[Subject],
    policy: &Policy,
    settings: &Settings,
    surroundings: &Surroundings<'_>,
) -> Groups {
    let mut members: BTreeMap<&str, Vec<&PodState>> = BTreeMap::new();
    let pods = subjects.iter().map(|subject| &subject.pod).chain(surroundings.siblings);
    for pod in pods.filter(|pod| pod.is_live()) {
        if let Some(owner) = &pod.owner {
            members.entry(&owner.uid).or_default().push(pod);
        }
    }
    let group = |(uid, pods): (&str, Vec<&PodState>)| {
        let live = i64::try_from(pods.len()).unwrap_or(i64::MAX);
        let configured = surroundings.configured.get(uid).copied().unwrap_or(Some(live))?;
        let group = Group::new(configured, pods, policy.min_replicas, &settings.budget, surroundings.now);
        Some((uid.to_owned(), group))
    };
    members.into_iter().filter_map(group).collect()
}

fn ask<D>(
    subject: &Subject,
    groups: &mut Groups,
    settings: &Settings,
    surroundings: &Surroundings<'_>,
    decide: impl FnOnce(&Question<'_>) -> D,
) -> Option<D> {
    let group = subject.pod.owner.as_ref().and_then(|owner| groups.get(&owner.uid));
    Some(decide(&Question {
        pod: &subject.pod,
        recommendation: subject.recommendation.as_deref()?,
        group,
        allocatable: subject.allocatable,
        observed: subject.observed,
        not_before: subject.backoff.as_ref(),
        oom_hold: subject.oom_hold,
        node_decision: subject.node_decision,
        skip_budget: settings.skip_budget,
        now: surroundings.now,
    }))
}

fn spend(groups: &mut Groups, subject: &Subject, spend: impl FnOnce(&mut Group)) {
    let owner = subject.pod.owner.as_ref();
    if let Some(group) = owner.and_then(|owner| groups.get_mut(&owner.uid)) {
        spend(group);
    }
}

/// When a pod that waits is to be decided about again without an event.
fn again(question: &Question<'_>, decision: &InPlace) -> Option<Timestamp> {
    match decision {
        InPlace::Wait(Wait::Backoff(backoff)) => Some(backoff.until),
        InPlace::Wait(
            Wait::Replacements { until }
            | Wait::Report { until }
            | Wait::UncountedKill { until }
            | Wait::OomKilled { until },
        ) => Some(*until),
        InPlace::Wait(Wait::Budget) => question.group.and_then(|group| group.settled_at),
        InPlace::Wait(Wait::Group | Wait::AdmissionController) => question.now.checked_add(READ_AGAIN).ok(),
        _ => None,
    }
}

/// The earlier of two times, as far as there are any.
pub fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
