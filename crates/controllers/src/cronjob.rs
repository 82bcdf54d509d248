//! `CronJobs`.
//!
//! ```text
//!   due start time ──▶ too late? started already? concurrency policy? ──▶ a Job, named after the minute
//!   finished Jobs  ──▶ removed from status.active, the oldest deleted
//! ```
//!
//! [`decide`] decides about one `CronJob`. A Job is created first and added to `status.active` when it is observed: its
//! name has the scheduled time, so a controller that is killed in between does not start it twice.

mod workload;
pub mod zones;

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::PropagationPolicy;
use plumb_cron::Schedule;

use crate::job::end;
use crate::workload::{Action, Note, Ref};
use plumb_controller_runtime::controller_reference;
pub use workload::CronJobs;

/// The name of the controller's user.
pub const NAME: &str = "cronjob-controller";
/// The annotation with the scheduled time of a Job.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// The delay after a scheduled time, so that clocks agree that the time has come.
const A_MOMENT: SignedDuration = SignedDuration::from_millis(100);
/// More missed start times than this are a warning.
const MANY: u32 = 100;

/// A `CronJob` with the objects that a decision reads.
#[derive(Clone)]
pub struct State {
    /// The `CronJob`.
    pub cron: Arc<CronJob>,
    /// The Jobs that it controls.
    pub jobs: Vec<Arc<Job>>,
    /// The names of Jobs in its namespace that it does not control.
    pub taken: BTreeSet<String>,
    /// The time zone of its schedule; none if it is unknown.
    pub zone: Option<TimeZone>,
}

/// One reconcile of a `CronJob`.
struct Reconciliation<'a> {
    state: &'a State,
    now: Timestamp,
    status: CronJobStatus,
    notes: Vec<Note>,
    delete: Vec<&'a Arc<Job>>,
    create: Option<Job>,
    again: Option<Timestamp>,
}

/// Decides the actions for a `CronJob`.
pub fn decide(state: &State, now: Timestamp) -> Vec<Action> {
    let cron = &*state.cron;
    let mut reconciliation = Reconciliation {
        state,
        now,
        status: cron.status.clone().unwrap_or_default(),
        notes: Vec::new(),
        delete: Vec::new(),
        create: None,
        again: None,
    };
    // First, so that no event is emitted about a Job that is deleted at once.
    reconciliation.forget();
    reconciliation.list();
    if cron.metadata.deletion_timestamp.is_none() {
        reconciliation.start();
    }
    reconciliation.status.active.take_if(|active| active.is_empty());
    let Reconciliation { status, notes, delete, create, again, .. } = reconciliation;
    let mut actions = Vec::new();
    if status != cron.status.clone().unwrap_or_default() {
        actions.push(Action::Status(CronJob { status: Some(status), ..cron.clone() }.into()));
    }
    actions.extend(notes.into_iter().map(Action::Event));
    let background = || Some(PropagationPolicy::Background);
    actions.extend(delete.into_iter().map(|job| Action::Delete(Ref::to(&**job), background())));
    actions.extend(create.map(|job| Action::Create(job.into())));
    actions.extend(again.map(Action::RequeueAt));
    actions
}

fn name(of: &impl kube::Resource) -> &str {
    of.meta().name.as_deref().unwrap_or_default()
}

/// The time zone of a schedule: that in the schedule itself, else `timeZone`. Empty is UTC.
fn zone_name(cron: &CronJob) -> String {
    let named =
        Schedule::parse(&cron.spec.schedule).ok().and_then(|schedule| schedule.zone().map(str::to_owned));
    named.or_else(|| cron.spec.time_zone.clone()).unwrap_or_default()
}

/// The scheduled time of a Job, if it was created by a schedule.
fn scheduled_for(job: &Job) -> Option<Timestamp> {
    job.metadata.annotations.as_ref()?.get(SCHEDULED)?.parse().ok()
}

impl Reconciliation<'_> {
    fn active(&mut self) -> &mut Vec<ObjectReference> {
        self.status.active.get_or_insert_default()
    }

    fn strike(&mut self, uid: Option<&str>) {
        self.active().retain(|one| one.uid.as_deref() != uid);
    }

    /// Updates `status.active`.
    fn list(&mut self) {
        for job in &self.state.jobs {
            let uid = job.metadata.uid.as_deref();
            let is_listed = self.active().iter().any(|one| one.uid.as_deref() == uid);
            let scheduled = scheduled_for(job).map(Time);
            if scheduled > self.status.last_schedule_time {
                self.status.last_schedule_time.clone_from(&scheduled);
            }
            match end(job) {
                None if is_listed => {}
                None if scheduled.is_some() => {
                    let reference = reference(job);
                    self.active().push(reference);
                }
                None => {
                    let message =
                        format!("Saw a job that the controller did not create or forgot: {}", name(&**job));
                    self.notes.push(Note::warning("UnexpectedJob", message));
                }
                Some(ended) => {
                    if is_listed {
                        self.strike(uid);
                        let message =
                            format!("Saw completed job: {}, condition: {}", name(&**job), ended.type_);
                        self.notes.push(Note::normal("SawCompletedJob", message));
                    }
                    let completed = job.status.as_ref().and_then(|status| status.completion_time.clone());
                    if ended.type_ == "Complete" && completed > self.status.last_successful_time {
                        self.status.last_successful_time = completed;
                    }
                }
            }
        }
        let is_there = |one: &ObjectReference| {
            self.state.jobs.iter().any(|job| job.metadata.uid.is_some() && job.metadata.uid == one.uid)
        };
        let missing: Vec<ObjectReference> =
            self.status.active.iter().flatten().filter(|one| !is_there(one)).cloned().collect();
        for one in missing {
            let message = format!("Active job went missing: {}", one.name.as_deref().unwrap_or_default());
            self.notes.push(Note::normal("MissingJob", message));
            self.strike(one.uid.as_deref());
        }
    }

    /// Deletes finished Jobs beyond the history limits.
    fn forget(&mut self) {
        let spec = &self.state.cron.spec;
        let limits =
            [("Complete", spec.successful_jobs_history_limit), ("Failed", spec.failed_jobs_history_limit)];
        for (how, limit) in limits {
            let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { continue };
            let ended = self.state.jobs.iter().filter(|job| end(job).is_some_and(|end| end.type_ == how));
            let mut ended: Vec<&Arc<Job>> = ended.collect();
            ended.sort_by_key(|job| {
                let start = job.status.as_ref().and_then(|status| status.start_time.clone());
                (start.is_none(), start, job.metadata.name.clone())
            });
            let beyond = ended.len().saturating_sub(limit);
            for job in ended.into_iter().take(beyond) {
                self.strike(job.metadata.uid.as_deref());
                if job.metadata.deletion_timestamp.is_none() {
                    self.delete.push(job);
                }
            }
        }
    }

    fn warn(&mut self, reason: &'static str, message: String) {
        self.notes.push(Note::warning(reason, message));
    }

    /// Creates the Job that is due.
    fn start(&mut self) {
        let spec = &self.state.cron.spec;
        let Some(zone) = &self.state.zone else {
            let zone = zone_name(&self.state.cron);
            self.warn("UnknownTimeZone", format!("invalid timeZone: {zone:?}: unknown time zone {zone}"));
            return;
        };
        if spec.suspend == Some(true) {
            return;
        }
        let schedule = match Schedule::parse(&spec.schedule) {
            Ok(schedule) => schedule,
            Err(error) => {
                let message = format!("unparseable schedule: {:?} : {error}", spec.schedule);
                self.warn("UnparseableSchedule", message);
                return;
            }
        };
        if schedule.zone().is_some() {
            let message = format!(
                "CRON_TZ or TZ used in schedule {:?} is not officially supported, see \
                 https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details",
                spec.schedule
            );
            self.warn("UnsupportedSchedule", message);
        }
        let due = self.due(&schedule, zone);
        let after = due.map_or_else(|| self.since(false), |due| due.at);
        // The next reconcile is for a later time, even if no Job was started for this one.
        let next = schedule.next(after, zone).filter(|next| *next > self.now);
        let next = next.or_else(|| schedule.next(self.now, zone));
        self.again = next.and_then(|next| next.checked_add(A_MOMENT).ok());
        let Some(due) = due else { return };
        if due.missed > MANY {
            let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.warn("TooManyMissedTimes", message.to_owned());
        }
        let deadline = spec.starting_deadline_seconds.map(SignedDuration::from_secs);
        let too_late = deadline.and_then(|deadline| due.at.checked_add(deadline).ok());
        if too_late.is_some_and(|too_late| too_late < self.now) {
            let at = due.at.strftime("%a, %d %b %Y %H:%M:%S +0000");
            self.warn("MissSchedule", format!("Missed scheduled time to start a job: {at}"));
            return;
        }
        let job = new_job(&self.state.cron, due.at, zone);
        let is_listed = self.status.active.iter().flatten().any(|one| one.name == job.metadata.name);
        let is_done = self.status.last_schedule_time == Some(Time(due.at));
        if is_listed || is_done || self.state.taken.contains(name(&job)) {
            return;
        }
        let runs = self.status.active.as_ref().is_some_and(|active| !active.is_empty());
        match spec.concurrency_policy.as_deref() {
            Some("Forbid") if runs => {
                let message =
                    "Not starting job because prior execution is running and concurrency policy is Forbid";
                self.notes.push(Note::normal("JobAlreadyActive", message));
                return;
            }
            Some("Replace") if runs => {
                let active = std::mem::take(self.active());
                let replaced = self.state.jobs.iter().filter(|job| {
                    active.iter().any(|one| one.uid == job.metadata.uid)
                        && job.metadata.deletion_timestamp.is_none()
                });
                self.delete.extend(replaced);
            }
            _ => {}
        }
        self.create = Some(job);
    }

    /// The earliest time that counts: the last schedule time or the creation, but within the starting deadline.
    fn since(&self, within_deadline: bool) -> Timestamp {
        let created = self.state.cron.metadata.creation_timestamp.as_ref();
        let since = self.status.last_schedule_time.as_ref().or(created).map_or(self.now, |time| time.0);
        let deadline = self.state.cron.spec.starting_deadline_seconds.filter(|_| within_deadline);
        let deadline =
            deadline.and_then(|seconds| self.now.checked_sub(SignedDuration::from_secs(seconds)).ok());
        deadline.map_or(since, |deadline| deadline.max(since))
    }

    /// The most recent missed start time, and how many were missed since the last schedule time.
    ///
    /// Of many only the most recent is started. Upstream guesses where that is from the distance of the first two,
    /// which is far off for a schedule like `* 9 * * *` whose times are not evenly spread; here it is searched for.
    fn due(&self, schedule: &Schedule, zone: &TimeZone) -> Option<Due> {
        let mut at = schedule.next(self.since(true), zone).filter(|first| *first <= self.now)?;
        let mut missed = 0;
        // There may be years of missed times, so counting stops here.
        while missed <= MANY {
            let Some(next) = schedule.next(at, zone).filter(|next| *next <= self.now) else {
                return Some(Due { at, missed });
            };
            at = next;
            // The one that is started was not missed; the one before it was.
            missed += if missed == 0 { 2 } else { 1 };
        }
        Some(Due { at: schedule.last(at, self.now, zone), missed })
    }
}

/// A start time that is due.
#[derive(Clone, Copy)]
struct Due {
    at: Timestamp,
    /// The number of missed start times, if more than one; counting stops at [`MANY`].
    missed: u32,
}

fn reference(job: &Job) -> ObjectReference {
    ObjectReference {
        api_version: Some("batch/v1".to_owned()),
        kind: Some("Job".to_owned()),
        name: job.metadata.name.clone(),
        namespace: job.metadata.namespace.clone(),
        uid: job.metadata.uid.clone(),
        resource_version: job.metadata.resource_version.clone(),
        field_path: None,
    }
}

/// The Job for a scheduled time. Its name has the time, so that there is only one.
fn new_job(cron: &CronJob, at: Timestamp, zone: &TimeZone) -> Job {
    let template = &cron.spec.job_template;
    let said = template.metadata.clone().unwrap_or_default();
    let mut annotations = said.annotations.unwrap_or_default();
    let zoned = at.to_zoned(zone.clone());
    let shown =
        zoned.strftime(if zoned.offset().is_zero() { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%:z" });
    annotations.insert(SCHEDULED.to_owned(), shown.to_string());
    Job {
        metadata: ObjectMeta {
            name: Some(format!("{}-{}", name(cron), at.as_second() / 60)),
            namespace: cron.metadata.namespace.clone(),
            labels: said.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![controller_reference(cron)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

#[cfg(test)]
mod tests;
