//! Making room for a pod of higher priority by having others evicted.
//!
//! On each node that could do if others left, all pods of lower priority are taken away in thought; if the pod then
//! fits, as many of them as possible are brought back, the most important first and those first that a disruption
//! budget protects. Of the nodes the one is taken whose loss is smallest.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use plumb_placement::Selector;

use crate::choose::Diagnosis;
use crate::cluster::{Cluster, Guest, Host};
use crate::filter::{Questions, Refusal, Situation};
use crate::shape::Shape;

/// How many nodes are tried: a tenth of those that could do, but not fewer than this.
const TRIED_AT_LEAST: usize = 100;

/// A disruption budget.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    namespace: String,
    selector: Selector,
    allowed: i64,
    /// Those that were evicted already and are on their way out.
    disrupted: BTreeSet<String>,
}

impl Budget {
    pub(crate) fn read(budget: &PodDisruptionBudget) -> Self {
        let status = budget.status.as_ref();
        let disrupted = status.and_then(|status| status.disrupted_pods.as_ref());
        Self {
            namespace: budget.metadata.namespace.clone().unwrap_or_default(),
            selector: Selector::read(budget.spec.as_ref().and_then(|spec| spec.selector.as_ref())),
            allowed: status.and_then(|status| status.disruptions_allowed).map_or(0, i64::from),
            disrupted: disrupted.into_iter().flatten().map(|(name, _)| name.clone()).collect(),
        }
    }

    fn protects(&self, pod: &Guest) -> bool {
        self.namespace == pod.namespace
            && !pod.class.labels.is_empty()
            && !self.selector.is_empty()
            && self.selector.matches(&pod.class.labels)
            && !self.disrupted.contains(&pod.name)
    }
}

/// Who has to leave which node.
#[derive(Clone, Debug)]
pub(crate) struct Victims {
    pub(crate) slot: usize,
    /// The most important first.
    pub(crate) pods: Vec<Arc<Guest>>,
    /// How many of them a budget protects.
    violations: usize,
}

impl Victims {
    /// The smaller, the smaller the loss.
    fn loss(&self) -> impl Ord + use<> {
        let priorities = || self.pods.iter().map(|pod| i64::from(pod.class.priority));
        let highest = priorities().max().unwrap_or(i64::MIN);
        // So that a negative priority does not make many pods cheaper than few.
        let sum: i64 = priorities().map(|priority| priority + i64::from(i32::MAX) + 1).sum();
        let foremost = self.pods.iter().filter(|pod| i64::from(pod.class.priority) == highest);
        let started = foremost.map(|pod| since(pod)).min();
        (self.violations, highest, sum, self.pods.len(), Reverse(started))
    }
}

/// Who has not started yet starts last.
fn since(pod: &Guest) -> Timestamp {
    pod.started.unwrap_or(Timestamp::MAX)
}

fn importance(pod: &Guest) -> impl Ord + use<> {
    (Reverse(pod.class.priority), since(pod), pod.uid.clone())
}

/// Who asks for room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preemptor<'a> {
    pub(crate) shape: &'a Shape,
    pub(crate) uid: &'a str,
    /// The node that others were asked to leave for it.
    pub(crate) nominated: Option<&'a str>,
}

/// Why nobody is to leave for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoVictims {
    /// Those that are to leave have not left yet.
    Leaving,
    /// It must not ask others to leave, or gains nothing by it; in upstream's words.
    Useless(String),
}

impl NoVictims {
    pub(crate) fn words(&self) -> &str {
        match self {
            Self::Leaving => "not eligible due to a terminating pod on the nominated node.",
            Self::Useless(words) => words,
        }
    }
}

/// Finds who has to leave for a pod, or says why nobody does.
pub(crate) fn preempt(
    cluster: &mut Cluster,
    asks: Preemptor<'_>,
    diagnosis: &Diagnosis,
    budgets: &[&Budget],
    offset: usize,
) -> Result<Victims, NoVictims> {
    if !asks.shape.preempts {
        return Err(NoVictims::Useless("not eligible due to preemptionPolicy=Never.".to_owned()));
    }
    let nominated = asks.nominated.and_then(|name| cluster.node(name));
    let still_hopeful = nominated.filter(|slot| diagnosis.curable.contains(slot));
    if still_hopeful.is_some_and(|slot| is_being_left(cluster.host(slot), asks.shape.priority)) {
        return Err(NoVictims::Leaving);
    }
    let curable = &diagnosis.curable;
    let enough = (cluster.len() / 10).max(TRIED_AT_LEAST);
    let (mut candidates, mut unhelpful) = (Vec::<Victims>::new(), Diagnosis::of(cluster.len()));
    let mut explained = 0;
    let start = offset % curable.len().max(1);
    for slot in curable[start..].iter().chain(&curable[..start]) {
        match clear(cluster, *slot, asks.shape.priority, budgets, |cluster| refusal(cluster, asks, *slot)) {
            Ok(victims) => candidates.push(victims),
            Err(Useless::Nobody) => {
                unhelpful.count("No preemption victims found for incoming pod", 1);
                explained += 1;
            }
            Err(Useless::Still(refusal)) => {
                unhelpful.add(&refusal);
                explained += 1;
            }
        }
        if candidates.len() >= enough && candidates.iter().any(|one| one.violations == 0) {
            break;
        }
    }
    if let Some(best) = candidates.into_iter().min_by_key(Victims::loss) {
        return Ok(best);
    }
    unhelpful.count("Preemption is not helpful for scheduling", cluster.len() - explained);
    Err(NoVictims::Useless(unhelpful.message()))
}

/// Finds who has to leave a node so that what its pods were promised or want to grow to is no more than it has.
pub(crate) fn make_room(
    cluster: &mut Cluster,
    slot: usize,
    priority: i32,
    budgets: &[&Budget],
) -> Option<Victims> {
    let fits = |cluster: &Cluster| {
        let host = cluster.host(slot);
        let info = host.info.as_ref()?;
        let over =
            host.requested.cpu > info.allocatable.cpu || host.requested.memory > info.allocatable.memory;
        over.then_some(Refusal::Short { of: Vec::new(), always: false })
    };
    // Those who leave already may be enough.
    if fits(cluster).is_none() || is_being_left(cluster.host(slot), priority) {
        return None;
    }
    clear(cluster, slot, priority, budgets, |cluster| fits(cluster)).ok()
}

/// Whether pods of lower priority are on their way out because a scheduler said so.
fn is_being_left(host: &Host, priority: i32) -> bool {
    host.pods.values().any(|pod| pod.class.priority < priority && pod.terminating && pod.preempted)
}

/// Why it does not help to clear a node.
enum Useless {
    /// There is nobody of lower priority.
    Nobody,
    /// It will not do even then.
    Still(Refusal),
}

fn refusal(cluster: &mut Cluster, asks: Preemptor<'_>, slot: usize) -> Option<Refusal> {
    let questions = Questions::ask_hard(asks.shape, cluster);
    Situation::of(asks.shape, &questions, cluster).refusal(slot, asks.uid)
}

/// Finds the fewest pods that have to leave a node; the cluster is left as it was.
fn clear(
    cluster: &mut Cluster,
    slot: usize,
    priority: i32,
    budgets: &[&Budget],
    mut refused: impl FnMut(&mut Cluster) -> Option<Refusal>,
) -> Result<Victims, Useless> {
    let news = cluster.news.clone();
    let pods = cluster.host(slot).pods.values();
    let mut lower: Vec<Arc<Guest>> = pods.filter(|pod| pod.class.priority < priority).cloned().collect();
    if lower.is_empty() {
        return Err(Useless::Nobody);
    }
    lower.sort_by_cached_key(|pod| importance(pod));
    for pod in &lower {
        cluster.lift(slot, &pod.uid);
    }
    let outcome = match refused(cluster) {
        Some(refusal) => Err((lower, Useless::Still(refusal))),
        None => Ok(reprieve(cluster, slot, &lower, budgets, refused)),
    };
    let (leaving, outcome) = match outcome {
        Ok(victims) if victims.pods.is_empty() => (Vec::new(), Err(Useless::Nobody)),
        Ok(victims) => (victims.pods.clone(), Ok(victims)),
        Err((lower, useless)) => (lower, Err(useless)),
    };
    for pod in leaving {
        cluster.seat(slot, pod);
    }
    cluster.news = news;
    outcome
}

/// Brings back as many of the pods that were taken away as possible; those who cannot stay are off the node still.
fn reprieve(
    cluster: &mut Cluster,
    slot: usize,
    lifted: &[Arc<Guest>],
    budgets: &[&Budget],
    mut refused: impl FnMut(&mut Cluster) -> Option<Refusal>,
) -> Victims {
    let (protected, others) = protected(lifted, budgets);
    let mut victims = Victims { slot, pods: Vec::new(), violations: 0 };
    let protected = protected.into_iter().map(|pod| (pod, 1));
    for (pod, violations) in protected.chain(others.into_iter().map(|pod| (pod, 0))) {
        cluster.seat(slot, pod.clone());
        if refused(cluster).is_some() {
            cluster.lift(slot, &pod.uid);
            victims.pods.push(pod);
            victims.violations += violations;
        }
    }
    victims.pods.sort_by_cached_key(|pod| importance(pod));
    victims
}

/// Divides pods into those whose eviction a budget forbids and the others, the most important first.
fn protected(pods: &[Arc<Guest>], budgets: &[&Budget]) -> (Vec<Arc<Guest>>, Vec<Arc<Guest>>) {
    let mut left: Vec<i64> = budgets.iter().map(|budget| budget.allowed).collect();
    pods.iter().cloned().partition(|pod| {
        let mut forbidden = false;
        for (_, left) in budgets.iter().zip(&mut left).filter(|(budget, _)| budget.protects(pod)) {
            *left -= 1;
            forbidden |= *left < 0;
        }
        forbidden
    })
}
