//! Jobs: never more at a time than asked for, never an index twice, nothing left when it has ended; and cron jobs: no
//! time twice, and no two at a time where that is forbidden.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;

use super::super::ledger::{
    Pods, Recent, Turn, controller, has_ended, has_succeeded, is_active, is_going, name, place, uid,
};
use super::Verdict;

/// The annotation of a pod that says its index.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

#[derive(Default)]
pub(in super::super) struct Jobs {
    all: HashMap<String, Kept>,
    /// Whether two of a cron job may run at a time.
    crons: HashMap<String, bool>,
    /// The uids of all jobs that cron jobs ever made, by where they were.
    made: HashMap<(String, String), String>,
}

struct Kept {
    cron: Option<String>,
    has_ended: bool,
    parallelism: Recent,
    completions: Option<i64>,
}

impl Jobs {
    pub(in super::super) fn take_cron(&mut self, cron: CronJob, gone: bool) {
        let uid = uid(&cron.metadata).to_owned();
        if gone {
            self.crons.remove(&uid);
        } else {
            let policy = cron.spec.concurrency_policy;
            self.crons.insert(uid, policy.as_deref() != Some("Forbid"));
        }
    }

    pub(in super::super) fn take(&mut self, job: Job, gone: bool, now: Duration, pods: &Pods) -> Verdict {
        let (uid, at) = (uid(&job.metadata).to_owned(), place(&job.metadata));
        if gone {
            self.all.remove(&uid);
            return Ok(());
        }
        let cron = controller(&job.metadata).map(|owner| owner.uid.clone());
        if !self.all.contains_key(&uid) {
            self.judge_new(&uid, &at, cron.as_deref()).map_err(|broken| format!("job {at:?}: {broken}"))?;
        }
        let spec = job.spec.unwrap_or_default();
        let kept = self.all.entry(uid.clone()).or_insert_with(|| Kept {
            cron,
            has_ended: false,
            parallelism: Recent::default(),
            completions: spec.completions.map(i64::from),
        });
        let parallelism = if spec.suspend == Some(true) { 0 } else { spec.parallelism.map_or(1, i64::from) };
        kept.parallelism.tell(now, parallelism);
        let status = job.status.unwrap_or_default();
        let says = |type_: &str| {
            status.conditions.iter().flatten().any(|said| said.type_ == type_ && said.status == "True")
        };
        let ended = says("Complete") || says("Failed");
        if kept.has_ended && !ended {
            return Err(format!("job {at:?} had ended, and has not any more"));
        }
        if ended && !kept.has_ended {
            kept.has_ended = true;
            if pods.of(&uid).any(|pod| !has_ended(pod)) {
                return Err(format!("job {at:?} has ended, and its pods have not"));
            }
            let succeeded = status.succeeded.map_or(0, i64::from);
            if says("Complete") && kept.completions.is_some_and(|wanted| succeeded < wanted) {
                return Err(format!("job {at:?} is complete after {succeeded} of {:?}", kept.completions));
            }
        }
        Ok(())
    }

    fn judge_new(&mut self, uid: &str, at: &(String, String), cron: Option<&str>) -> Verdict {
        let Some(cron) = cron else { return Ok(()) };
        if self.made.insert(at.clone(), uid.to_owned()).is_some() {
            return Err("it is made a second time".to_owned());
        }
        let runs = |kept: &Kept| kept.cron.as_deref() == Some(cron) && !kept.has_ended;
        if self.crons.get(cron) == Some(&false) && self.all.values().any(runs) {
            return Err("it is made while another one runs, which is forbidden".to_owned());
        }
        Ok(())
    }

    pub(in super::super) fn judge(&self, turn: &Turn, pods: &Pods, now: Duration) -> Verdict {
        let pod = turn.pod();
        let Some(owner) = controller(&pod.metadata) else { return Ok(()) };
        let Some(kept) = self.all.get(&owner.uid).filter(|_| turn.came()) else { return Ok(()) };
        let count = |counts: fn(&Pod) -> bool| {
            i64::try_from(pods.of(&owner.uid).filter(|pod| counts(pod)).count()).unwrap()
        };
        let (active, succeeded) = (count(is_active), count(|pod| has_succeeded(pod) && !is_going(pod)));
        let most = kept.parallelism.most(now);
        if active > most {
            return Err(format!("{active} of its job run at a time, and {most} may"));
        }
        if kept.completions.is_some_and(|wanted| active + succeeded > wanted) {
            return Err(format!("{active} run and {succeeded} succeeded, of {:?}", kept.completions));
        }
        if kept.has_ended {
            return Err("it is made after its job has ended".to_owned());
        }
        let same = |other: &&Pod| {
            name(&other.metadata) != name(&pod.metadata)
                && (is_active(other) || has_succeeded(other) && !is_going(other))
                && index(other).is_some_and(|of| Some(of) == index(pod))
        };
        match pods.of(&owner.uid).find(same) {
            Some(other) => Err(format!("{} has its index", name(&other.metadata))),
            None => Ok(()),
        }
    }
}

fn index(pod: &Pod) -> Option<&str> {
    pod.metadata.annotations.as_ref()?.get(INDEX).map(String::as_str)
}
