//! What a plan depends on, read, and the plan. Nothing is written here.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use plumb_controller_runtime::ObjectRef;
use plumb_resize::resource::PerResource;
use plumb_vpa::boost::is_left_out;
use plumb_vpa::recommendation::LimitRanges;
use plumb_vpa::target::ControllerRef;
use plumb_vpa_api::VerticalPodAutoscaler;
use tokio::time::Instant;

use super::{Inner, kills_counted_until, recommendation_of};
use crate::decide::{Plan, Policy, Subject, Surroundings, Triage, owners_to_read, plan, triage};
use crate::index::Gathered;
use crate::metrics::Step;
use crate::mode::Actuation;
use crate::obstacle::{self, Obstacle, obstacle, resized};
use crate::pace::Pause;
use crate::peaks::peaks;
use crate::priority::{self, Verdict, verdict};
use crate::shrink_first::{NodeDecision, lowering};
use crate::state::{Owner, PodState, Recommendation};
use crate::{memory_guard, oom_hold};

/// The plan for the pods of a VPA.
pub(super) struct Prepared {
    pub(super) gathered: Gathered,
    pub(super) triage: Triage,
    pub(super) plan: Plan,
    /// When to decide again without an event.
    pub(super) next: Option<Timestamp>,
    /// Until when no pod is evicted, because new ones come up without the recommendation.
    pub(super) pause: Option<Pause>,
    pub(super) triaged_at: Instant,
}

/// What was read for a plan.
struct Facts {
    /// How many pods owners are configured for, by the UID of the owner.
    configured: BTreeMap<String, Option<i64>>,
    admission_is_alive: bool,
    pause: Option<Pause>,
    now: Timestamp,
}

impl Inner {
    /// Reads what the plan for the pods of a VPA depends on, and plans; none if the VPA does not exist. It writes nothing and
    /// keeps nothing, so that it may be repeated.
    pub(super) async fn prepare(&self, key: &ObjectRef) -> Option<Prepared> {
        let mut gathered = self.gather(key)?;
        let policy = self.policy(&gathered.vpa);
        self.guard_memory(key, &mut gathered).await;
        let now = self.config.clock.now();
        oom_hold::hold(&mut gathered.subjects, kills_counted_until(&gathered.vpa), now);
        let may_lower = self.may_lower(&gathered.vpa);
        shrink_first(
            &mut gathered.subjects,
            may_lower,
            &policy,
            &self.config.options.decisions.priority,
            now,
        );
        let triage = triage(&gathered.subjects, &policy, &self.config.options.decisions.priority, now);
        let triaged_at = self.config.clock.monotonic();
        let facts = Facts {
            configured: self.read_owners(&gathered, &triage, &policy).await,
            admission_is_alive: self.admission_is_alive(&triage, &policy).await,
            pause: self.pause(key, &gathered, &triage),
            now,
        };
        let (plan, next) = self.plan(key, &gathered, &triage, &policy, &facts);
        Some(Prepared { gathered, triage, plan, next, pause: facts.pause, triaged_at })
    }

    /// The pods of a VPA, with what the plans of their nodes say about them.
    fn gather(&self, key: &ObjectRef) -> Option<Gathered> {
        let mut index = self.index.lock();
        let mut gathered = index.gather(key)?;
        index.plan_nodes(&mut gathered.subjects, &|vpa| self.may_lower(vpa));
        Some(gathered)
    }

    /// What pods of a VPA may lower so that others fit: nothing in a mode that does not resize, and no memory with the memory
    /// decrease guard, whose peaks are read only for the VPA that is reconciled.
    fn may_lower(&self, vpa: &VerticalPodAutoscaler) -> PerResource<bool> {
        let actuation = self.policy(vpa).actuation;
        let resizes = matches!(actuation, Actuation::InPlace | Actuation::InPlaceOrRecreate);
        PerResource::new(resizes, resizes && !self.is_guarded(vpa))
    }

    fn is_guarded(&self, vpa: &VerticalPodAutoscaler) -> bool {
        let annotation = vpa.annotations().get(memory_guard::ANNOTATION).map(String::as_str);
        memory_guard::is_on(annotation, self.config.options.memory_decrease_guard)
    }

    /// Plans for the pods of a VPA from what was read. Returns when to decide again without an event, too.
    fn plan(
        &self,
        key: &ObjectRef,
        gathered: &Gathered,
        triage: &Triage,
        policy: &Policy,
        facts: &Facts,
    ) -> (Plan, Option<Timestamp>) {
        let quotas = self.quotas.in_namespace(&key.namespace);
        let ranges = self.limit_ranges.in_namespace(&key.namespace);
        let ranges = LimitRanges::merge(ranges.iter().map(|range| &**range));
        let by_uid: BTreeMap<&str, &Arc<Pod>> =
            gathered.pods.iter().map(|pod| (pod.metadata.uid.as_deref().unwrap_or_default(), pod)).collect();
        let obstacle_of = |pod: &PodState, recommendation: &Recommendation| {
            let object = by_uid.get(&*pod.uid)?;
            let resized = resized(object, recommendation);
            let specs = object.spec.as_ref().zip(resized.spec.as_ref());
            if specs.is_some_and(|(own, recommended)| is_left_out(own, recommended, ranges)) {
                return Some(Obstacle::NotAllowed);
            }
            let surroundings = obstacle::Surroundings {
                allocatable: self.index.lock().allocatable(pod.node.as_deref()),
                quotas: &quotas,
                rules: &self.config.rules,
                now: facts.now,
            };
            known_obstacle(pod, recommendation, &surroundings)
                .or_else(|| obstacle(object, &resized, &surroundings).unwrap_or_default())
        };
        let surroundings = Surroundings {
            configured: &facts.configured,
            siblings: &gathered.siblings,
            obstacle: &obstacle_of,
            admission_is_alive: facts.admission_is_alive,
            eviction_pause: facts.pause.map(|pause| pause.until),
            now: facts.now,
        };
        plan(&gathered.subjects, triage, policy, &self.config.options.decisions, &surroundings)
    }

    /// Holds memory above the recent usage, if configured.
    async fn guard_memory(&self, key: &ObjectRef, gathered: &mut Gathered) {
        if !self.is_guarded(&gathered.vpa) {
            return;
        }
        let recommended = recommendation_of(&gathered.vpa).into_iter();
        let containers = recommended.flat_map(|all| &all.container_recommendations);
        let names = containers.map(|container| container.container_name.as_str());
        let peaks = peaks(&self.config.client, key, names, self.config.clock.now()).await;
        for subject in &mut gathered.subjects {
            if let Some(recommendation) = &mut subject.recommendation {
                let guarded = memory_guard::guard(
                    &subject.pod,
                    (**recommendation).clone(),
                    self.config.options.memory_guard_margin_percent,
                    |container| peaks.get(container).copied(),
                );
                *recommendation = Arc::new(guarded);
            }
        }
    }

    /// How many pods the owners are configured for of which it has to be known.
    async fn read_owners(
        &self,
        gathered: &Gathered,
        triage: &Triage,
        policy: &Policy,
    ) -> BTreeMap<String, Option<i64>> {
        let Gathered { subjects, siblings, .. } = gathered;
        let owners = owners_to_read(subjects, triage, policy, &self.config.options.decisions);
        if owners.is_empty() {
            return BTreeMap::new();
        }
        let namespace = subjects.first().map_or("", |subject| &*subject.pod.object.namespace);
        let read = stream::iter(owners).map(|owner| async move {
            let Owner { api_version, kind, name, uid } = &owner;
            let controller = ControllerRef::new(namespace, api_version, kind, name);
            let live = || {
                let pods = subjects.iter().map(|subject| &subject.pod).chain(siblings);
                let live = pods.filter(|pod| pod.is_live());
                let of_owner = live.filter(|pod| pod.owner.as_ref() == Some(&owner)).count();
                i64::try_from(of_owner).unwrap_or(i64::MAX)
            };
            let configured = match self.config.targets.replicas(&controller).await {
                Ok(replicas) => Some(replicas.unwrap_or_else(live)),
                Err(error) => {
                    tracing::debug!(%controller, %error, "cannot read how many pods a controller is configured for");
                    None
                }
            };
            (uid.clone(), configured)
        });
        read.buffer_unordered(self.config.options.concurrent_updates.max(1)).collect().await
    }

    async fn admission_is_alive(&self, triage: &Triage, policy: &Policy) -> bool {
        let may_evict = matches!(policy.actuation, Actuation::Recreate | Actuation::InPlaceOrRecreate);
        if !may_evict || triage.due.is_empty() {
            return true;
        }
        let began = self.config.clock.monotonic();
        let is_alive = self.admission.is_alive().await;
        self.config.updater_metrics.step(Step::AdmissionInit, self.since(began));
        is_alive
    }

    /// Whether and until when evictions wait, because new pods come up without the recommendation.
    fn pause(&self, key: &ObjectRef, gathered: &Gathered, triage: &Triage) -> Option<Pause> {
        let interval = SignedDuration::try_from(self.config.options.interval).unwrap_or(SignedDuration::MAX);
        let history = self.history.lock();
        let last = history.get(key)?.evictions.as_ref()?;
        last.pause(&gathered.subjects, triage, recommendation_of(&gathered.vpa), interval)
    }
}

/// Reduces the recommendations of the pods that shrink so that others fit to what is lower. A pod that is due anyway is updated as
/// ever, and so is one for which nothing is left to lower.
fn shrink_first(
    subjects: &mut [Subject],
    may_lower: PerResource<bool>,
    policy: &Policy,
    settings: &priority::Settings,
    now: Timestamp,
) {
    for subject in subjects.iter_mut().filter(|one| one.node_decision == NodeDecision::ShrinkFirst) {
        let Subject { pod, recommendation, .. } = &subject;
        let lower = recommendation.as_deref().and_then(|recommendation| {
            let verdict = verdict(pod, recommendation, settings, policy.evict_after_oom, now);
            let lower = lowering(pod, recommendation, may_lower);
            (matches!(verdict, Verdict::Leave(_)) && !lower.is_empty()).then_some(lower)
        });
        match lower {
            Some(lower) => subject.recommendation = Some(Arc::new(lower)),
            None => subject.node_decision = NodeDecision::None,
        }
    }
}

/// Why a resize cannot succeed, by the record of an earlier attempt.
fn known_obstacle(
    pod: &PodState,
    recommendation: &Recommendation,
    surroundings: &obstacle::Surroundings<'_>,
) -> Option<Obstacle> {
    let rejected = pod.record.rejected.as_ref();
    let rejected = rejected.filter(|rejected| rejected.applies_to(&pod.with(recommendation), pod.generation));
    if let Some(rejected) = rejected {
        return Some(Obstacle::Rejected(rejected.message.clone()));
    }
    let infeasible = pod.infeasible()?;
    let still = !infeasible.is_void(&recommendation.targets(), surroundings.allocatable);
    still.then(|| Obstacle::Rejected("the node of the pod cannot hold it".to_owned()))
}
