//! The `CronJob` controller as a [`Workload`](crate::workload::Workload).

use std::sync::Arc;

use k8s_openapi::api::batch::v1::{CronJob, Job};

use super::zones::Zones;
use super::{NAME, State, decide, name, zone_name};
use crate::workload::{Action, Context, Informers, Kind, Note, Verb, Watches, Workload, WriteOutcome};

/// The `CronJob` controller.
pub struct CronJobs {
    zones: Zones,
}

impl CronJobs {
    /// Creates the controller with the time zones that schedules may use.
    pub fn new(zones: Zones) -> Self {
        Self { zones }
    }
}

impl Workload for CronJobs {
    const NAME: &'static str = NAME;
    type Kind = CronJob;
    type State = State;

    fn watch(&self, watches: &Watches<CronJob>) {
        // There is no selector of Jobs: they are created, and never adopted.
        watches.owned::<Job>(|_| None);
    }

    fn claims(&self, _: &CronJob, _: &Informers) -> Vec<Action> {
        Vec::new()
    }

    fn gather(&self, cron: &Arc<CronJob>, informers: &Informers) -> State {
        let uid = cron.metadata.uid.as_deref().unwrap_or_default();
        let namespace = cron.metadata.namespace.as_deref().unwrap_or_default();
        let jobs = informers.jobs.controlled_by(uid);
        let others = informers.jobs.in_namespace(namespace);
        let is_own = |job: &Arc<Job>| jobs.iter().any(|own| Arc::ptr_eq(own, job));
        let prefix = format!("{}-", name(&**cron));
        let taken = others.iter().filter(|job| name(&***job).starts_with(&prefix) && !is_own(job));
        let taken = taken.map(|job| name(&**job).to_owned()).collect();
        let zone = self.zones.get(&zone_name(cron));
        State { cron: cron.clone(), taken, zone, jobs }
    }

    fn decide(&self, state: &State, context: &Context) -> Vec<Action> {
        decide(state, context.now)
    }

    fn event_for(&self, _: &CronJob, outcome: &WriteOutcome<'_>) -> Option<Note> {
        let WriteOutcome { verb, object, error } = outcome;
        if object.kind != Kind::Job {
            return None;
        }
        let name = &object.name;
        match (verb, error) {
            (Verb::Create, None) => Some(Note::normal("SuccessfulCreate", format!("Created job {name}"))),
            (Verb::Create, Some(error)) => {
                Some(Note::warning("FailedCreate", format!("Error creating job: {error}")))
            }
            (Verb::Delete, None) => Some(Note::normal("SuccessfulDelete", format!("Deleted job {name}"))),
            (Verb::Delete, Some(error)) => {
                Some(Note::warning("FailedDelete", format!("Deleted job: {error}")))
            }
            (Verb::Change, _) => None,
        }
    }
}
