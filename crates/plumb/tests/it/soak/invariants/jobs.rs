//! Jobs: no more active pods than the parallelism, no index twice, no active pods after the end; and cron jobs: no schedule time
//! twice, and no concurrent jobs with `Forbid`.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;

use super::super::observed_pods::{
    PodChange, Pods, RecentValues, controller, has_ended, has_succeeded, is_active, is_terminating, name,
    namespaced_name, uid,
};
use super::Check;

/// The annotation of a pod with its completion index.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

#[derive(Default)]
pub(in super::super) struct Jobs {
    all: HashMap<String, Tracked>,
    /// Whether the jobs of a cron job may run concurrently, by its uid.
    concurrency_allowed: HashMap<String, bool>,
    /// The uids of all jobs that cron jobs ever created, by name.
    created: HashMap<(String, String), String>,
}

struct Tracked {
    cron_job: Option<String>,
    has_ended: bool,
    parallelism: RecentValues,
    completions: Option<i64>,
}

impl Jobs {
    pub(in super::super) fn apply_cron_job(&mut self, cron_job: CronJob, deleted: bool) {
        let uid = uid(&cron_job.metadata).to_owned();
        if deleted {
            self.concurrency_allowed.remove(&uid);
        } else {
            let policy = cron_job.spec.concurrency_policy;
            self.concurrency_allowed.insert(uid, policy.as_deref() != Some("Forbid"));
        }
    }

    pub(in super::super) fn apply(&mut self, job: Job, deleted: bool, now: Duration, pods: &Pods) -> Check {
        let (uid, at) = (uid(&job.metadata).to_owned(), namespaced_name(&job.metadata));
        if deleted {
            self.all.remove(&uid);
            return Ok(());
        }
        let cron_job = controller(&job.metadata).map(|owner| owner.uid.clone());
        if !self.all.contains_key(&uid) {
            self.check_new(&uid, &at, cron_job.as_deref())
                .map_err(|violation| format!("job {at:?}: {violation}"))?;
        }
        let spec = job.spec.unwrap_or_default();
        let tracked = self.all.entry(uid.clone()).or_insert_with(|| Tracked {
            cron_job,
            has_ended: false,
            parallelism: RecentValues::default(),
            completions: spec.completions.map(i64::from),
        });
        let parallelism = if spec.suspend == Some(true) { 0 } else { spec.parallelism.map_or(1, i64::from) };
        tracked.parallelism.record(now, parallelism);
        let status = job.status.unwrap_or_default();
        let has_condition = |type_: &str| {
            status
                .conditions
                .iter()
                .flatten()
                .any(|condition| condition.type_ == type_ && condition.status == "True")
        };
        let ended = has_condition("Complete") || has_condition("Failed");
        if tracked.has_ended && !ended {
            return Err(format!("job {at:?} had ended, and has not any more"));
        }
        if ended && !tracked.has_ended {
            tracked.has_ended = true;
            if pods.of_owner(&uid).any(|pod| !has_ended(pod)) {
                return Err(format!("job {at:?} has ended, and its pods have not"));
            }
            let succeeded = status.succeeded.map_or(0, i64::from);
            if has_condition("Complete") && tracked.completions.is_some_and(|wanted| succeeded < wanted) {
                return Err(format!("job {at:?} is complete after {succeeded} of {:?}", tracked.completions));
            }
        }
        Ok(())
    }

    fn check_new(&mut self, uid: &str, at: &(String, String), cron_job: Option<&str>) -> Check {
        let Some(cron_job) = cron_job else { return Ok(()) };
        if self.created.insert(at.clone(), uid.to_owned()).is_some() {
            return Err("it is created a second time".to_owned());
        }
        let runs = |tracked: &Tracked| tracked.cron_job.as_deref() == Some(cron_job) && !tracked.has_ended;
        if self.concurrency_allowed.get(cron_job) == Some(&false) && self.all.values().any(runs) {
            return Err("it is created while another one runs, which is forbidden".to_owned());
        }
        Ok(())
    }

    pub(in super::super) fn check(&self, change: &PodChange, pods: &Pods, now: Duration) -> Check {
        let pod = change.pod();
        let Some(owner) = controller(&pod.metadata) else { return Ok(()) };
        let Some(tracked) = self.all.get(&owner.uid).filter(|_| change.became_active()) else {
            return Ok(());
        };
        let count = |counts: fn(&Pod) -> bool| {
            i64::try_from(pods.of_owner(&owner.uid).filter(|pod| counts(pod)).count()).unwrap()
        };
        let (active, succeeded) = (count(is_active), count(|pod| has_succeeded(pod) && !is_terminating(pod)));
        let max_pods = tracked.parallelism.max(now);
        if active > max_pods {
            return Err(format!("its job has {active} active pods, and at most {max_pods} may be"));
        }
        if tracked.completions.is_some_and(|wanted| active + succeeded > wanted) {
            return Err(format!("{active} run and {succeeded} succeeded, of {:?}", tracked.completions));
        }
        if tracked.has_ended {
            return Err("it is created after its job has ended".to_owned());
        }
        let same = |other: &&Pod| {
            name(&other.metadata) != name(&pod.metadata)
                && (is_active(other) || has_succeeded(other) && !is_terminating(other))
                && index(other).is_some_and(|of| Some(of) == index(pod))
        };
        match pods.of_owner(&owner.uid).find(same) {
            Some(other) => Err(format!("{} has its index", name(&other.metadata))),
            None => Ok(()),
        }
    }
}

fn index(pod: &Pod) -> Option<&str> {
    pod.metadata.annotations.as_ref()?.get(INDEX).map(String::as_str)
}
