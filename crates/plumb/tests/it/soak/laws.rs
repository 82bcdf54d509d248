//! What must hold at every moment, whatever is asked for and whoever is cut off.

mod daemons;
mod deployments;
mod jobs;
mod stateful;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use plumb_resize::Quantity;

use self::daemons::Daemons;
use self::deployments::Deployments;
use self::jobs::Jobs;
use self::stateful::StatefulSets;
use super::ledger::{ByHand, Pods, Turn, cpu, has_ended, name, place};
use super::witness::{Happening, Seen};
use super::zoo::{TIGHT, TIGHT_CPU, TIGHT_PODS};

/// What was broken, in words.
pub(super) type Verdict = Result<(), String>;

/// All that is known, and what must hold of it.
pub(super) struct Laws {
    pub(super) pods: Pods,
    pub(super) deployments: Deployments,
    pub(super) sets: StatefulSets,
    pub(super) daemons: Daemons,
    pub(super) jobs: Jobs,
    nodes: Vec<Node>,
    /// How much was judged.
    pub(super) judged: u64,
}

impl Laws {
    pub(super) fn new(by_hand: ByHand) -> Self {
        Self {
            pods: Pods::new(by_hand),
            deployments: Deployments::default(),
            sets: StatefulSets::default(),
            daemons: Daemons::default(),
            jobs: Jobs::default(),
            nodes: Vec::new(),
            judged: 0,
        }
    }

    /// Takes in what happened, and judges it.
    pub(super) fn take(&mut self, happening: Happening, now: Duration) -> Verdict {
        self.judged += 1;
        let gone = happening.gone;
        match happening.object {
            Seen::Pod(pod) => {
                let turn = self.pods.take(*pod, gone, now);
                self.judge(&turn, now)
            }
            Seen::ReplicaSet(set) => self.deployments.take_set(*set, gone, now),
            Seen::Deployment(deployment) => {
                self.deployments.take(*deployment, gone, now);
                Ok(())
            }
            Seen::StatefulSet(set) => {
                self.sets.take(*set, gone, now);
                Ok(())
            }
            Seen::DaemonSet(set) => {
                self.daemons.take(*set, gone);
                Ok(())
            }
            Seen::Job(job) => self.jobs.take(*job, gone, now, &self.pods),
            Seen::CronJob(cron) => {
                self.jobs.take_cron(*cron, gone);
                Ok(())
            }
            Seen::Node(node) => {
                self.nodes.retain(|known| known.metadata.name != node.metadata.name);
                self.nodes.push(*node);
                Ok(())
            }
        }
    }

    fn judge(&mut self, turn: &Turn, now: Duration) -> Verdict {
        let (namespace, name) = place(&turn.pod().metadata);
        let judged = never_back(turn)
            .and_then(|()| self.within_quota(turn))
            .and_then(|()| self.fits_its_node(turn))
            .and_then(|()| self.deployments.judge(turn, &self.pods, now))
            .and_then(|()| self.sets.judge(turn, &self.pods, now))
            .and_then(|()| self.daemons.judge(turn, &self.pods))
            .and_then(|()| self.jobs.judge(turn, &self.pods, now));
        judged.map_err(|broken| format!("pod {namespace}/{name}: {broken}"))
    }

    /// No namespace has more than its quota.
    fn within_quota(&self, turn: &Turn) -> Verdict {
        if turn.pod().metadata.namespace.as_deref() != Some(TIGHT) || turn.now.is_none() {
            return Ok(());
        }
        let counted = || self.pods.within(TIGHT).filter(|pod| !has_ended(pod));
        let (pods, cores) = (counted().count(), counted().map(cpu).sum::<i64>());
        let most = TIGHT_CPU.parse().map(Quantity::saturating_milli).unwrap();
        if i64::try_from(pods).unwrap() > TIGHT_PODS || cores > most {
            return Err(format!("the namespace has {pods} pods that ask for {cores}m, more than its quota"));
        }
        Ok(())
    }

    /// No node is asked for more than it has.
    fn fits_its_node(&self, turn: &Turn) -> Verdict {
        let Some(node) = node_of(turn.pod()) else { return Ok(()) };
        if turn.before.as_ref().and_then(node_of) == Some(node) || turn.now.is_none() {
            return Ok(());
        }
        let Some(known) = self.nodes.iter().find(|known| name(&known.metadata) == node) else {
            return Err(format!("it is bound to {node}, which there is not"));
        };
        let allocatable = known.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let room = |resource: &str| {
            allocatable
                .and_then(|all| all.get(resource)?.0.parse().ok())
                .map_or(0, Quantity::saturating_milli)
        };
        let there = || self.pods.iter().filter(|pod| node_of(pod) == Some(node) && !has_ended(pod));
        let (pods, cores) = (i64::try_from(there().count()).unwrap(), there().map(cpu).sum::<i64>());
        if cores > room("cpu") || pods * 1000 > room("pods") {
            return Err(format!("{node} has {pods} pods that ask for {cores}m, more than it has"));
        }
        Ok(())
    }
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// A pod that has ended stays ended, one that is bound stays where it is, one that is to go is to go.
fn never_back(turn: &Turn) -> Verdict {
    let (Some(before), Some(now)) = (&turn.before, &turn.now) else { return Ok(()) };
    if has_ended(before) && !has_ended(now) {
        return Err("it had ended, and runs again".to_owned());
    }
    if node_of(before).is_some() && node_of(before) != node_of(now) {
        return Err(format!("it went from {:?} to {:?}", node_of(before), node_of(now)));
    }
    if before.metadata.deletion_timestamp.is_some() && now.metadata.deletion_timestamp.is_none() {
        return Err("it was to go, and is not any more".to_owned());
    }
    Ok(())
}
