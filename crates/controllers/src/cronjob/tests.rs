//! Tables of decisions about `CronJobs`.

use serde_json::{Value, json};

use super::*;
use crate::workload::Object;

/// Half past noon of a Thursday.
const NOW: &str = "2026-01-01T12:30:00Z";

fn mk_state(spec: Value, status: Value, jobs: &[(&str, &str)]) -> State {
    let template = json!({ "spec": { "template": { "spec": { "containers": [] } } } });
    let mut whole = json!({
        "schedule": "0 * * * *", "concurrencyPolicy": "Allow", "jobTemplate": template,
        "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
    });
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    let metadata =
        json!({ "name": "c", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T11:30:00Z" });
    State {
        cron: Arc::new(
            serde_json::from_value(json!({ "metadata": metadata, "spec": whole, "status": status })).unwrap(),
        ),
        jobs: jobs.iter().map(|(name, description)| mk_job(name, description)).collect(),
        taken: BTreeSet::new(),
        zone: Some(TimeZone::UTC),
    }
}

/// A Job by its name and its description: `for=` which time, `Complete` or `Failed`, `manual`, `start=5`.
fn mk_job(name: &str, description: &str) -> Arc<Job> {
    let mut job = json!({ "metadata": { "name": name, "namespace": "n", "uid": name }, "status": {} });
    for word in description.split_whitespace() {
        match word.split_once('=') {
            Some(("for", time)) => {
                job["metadata"]["annotations"][SCHEDULED] = json!(format!("2026-01-01T{time}:00Z"));
            }
            Some(("start", time)) => job["status"]["startTime"] = json!(format!("2026-01-01T{time}:00Z")),
            _ if word == "manual" => {}
            _ => {
                job["status"]["conditions"] = json!([{ "type": word, "status": "True" }]);
                job["status"]["completionTime"] = json!("2026-01-01T12:10:00Z");
            }
        }
    }
    Arc::new(serde_json::from_value(job).unwrap())
}

fn active(names: &[&str]) -> Value {
    let one = |name: &&str| json!({ "name": name, "namespace": "n", "uid": name });
    json!(names.iter().map(one).collect::<Vec<_>>())
}

fn describe(state: &State) -> Vec<String> {
    let line = |action: &Action| match action {
        Action::Create(Object::Job(job)) => format!("create {}", name(&**job)),
        Action::Delete(of, Some(PropagationPolicy::Background)) => format!("delete {}", of.name),
        Action::Event(note) => format!("say {}", note.reason),
        Action::RequeueAt(when) => format!("again at {}", &when.to_string()[11..16]),
        Action::Status(Object::CronJob(cron)) => {
            let status = cron.status.clone().unwrap();
            let active: Vec<String> =
                status.active.into_iter().flatten().filter_map(|one| one.name).collect();
            let last = status.last_schedule_time.map(|time| time.0.to_string()[11..16].to_owned());
            format!("active {active:?} last {last:?}").replace('"', "")
        }
        other => format!("{other:?}"),
    };
    decide(state, NOW.parse().unwrap()).iter().map(line).collect()
}

#[test]
fn a_due_job_is_created_once() {
    let mut new = mk_state(json!({}), json!({}), &[]);
    assert_eq!(describe(&new), ["create c-29454480", "again at 13:00"]);
    // The informer has observed it, and the status lists it.
    let made = mk_state(json!({}), json!({}), &[("c-29454480", "for=12:00")]);
    assert_eq!(describe(&made), ["active [c-29454480] last Some(12:00)", "again at 13:00"]);
    let done = json!({ "active": active(&["c-29454480"]), "lastScheduleTime": "2026-01-01T12:00:00Z" });
    assert_eq!(describe(&mk_state(json!({}), done, &[("c-29454480", "for=12:00")])), ["again at 13:00"]);
    // The controller does not create it again after a user deleted it.
    let last = json!({ "lastScheduleTime": "2026-01-01T12:00:00Z" });
    assert_eq!(describe(&mk_state(json!({}), last, &[])), ["again at 13:00"]);
    // Nor if another Job has the name.
    new.taken.insert("c-29454480".to_owned());
    assert_eq!(describe(&new), ["again at 13:00"]);
    assert_eq!(describe(&mk_state(json!({ "suspend": true }), json!({}), &[])), [""; 0]);
    assert_eq!(describe(&mk_state(json!({ "schedule": "0 13 * * *" }), json!({}), &[])), ["again at 13:00"]);
}

#[test]
fn a_missed_run_is_started_once_and_within_its_deadline() {
    let long_ago = || json!({ "lastScheduleTime": "2025-12-01T00:00:00Z" });
    assert_eq!(
        describe(&mk_state(json!({}), long_ago(), &[])),
        ["say TooManyMissedTimes", "create c-29454480", "again at 13:00"]
    );
    let few = json!({ "lastScheduleTime": "2026-01-01T04:00:00Z" });
    assert_eq!(describe(&mk_state(json!({}), few, &[])), ["create c-29454480", "again at 13:00"]);
    // Half an hour is too late, but by then nothing is due any more.
    let deadline = |seconds: i64| json!({ "startingDeadlineSeconds": seconds });
    assert_eq!(describe(&mk_state(deadline(1000), long_ago(), &[])), ["again at 13:00"]);
    assert_eq!(describe(&mk_state(deadline(1900), long_ago(), &[])), ["create c-29454480", "again at 13:00"]);
}

/// Decides repeatedly, as the controller does while there are actions, and returns the Jobs that it creates.
fn made_until_quiet(state: &mut State) -> Vec<String> {
    let mut made = Vec::new();
    for _ in 0..1000 {
        let actions = decide(state, NOW.parse().unwrap());
        let job = actions.iter().find_map(|action| match action {
            Action::Create(Object::Job(job)) => Some(job.clone()),
            _ => None,
        });
        let status = actions.iter().find_map(|action| match action {
            Action::Status(Object::CronJob(cron)) => cron.status.clone(),
            _ => None,
        });
        if job.is_none() && status.is_none() {
            break;
        }
        if let Some(mut job) = job {
            made.push(job.metadata.annotations.as_ref().unwrap()[SCHEDULED].clone());
            job.metadata.uid = job.metadata.name.clone();
            state.jobs.push(Arc::new(*job));
        }
        if status.is_some() {
            Arc::make_mut(&mut state.cron).status = status;
        }
    }
    made
}

#[test]
fn a_cron_job_that_is_resumed_after_a_month_starts_the_most_recent_missed_job_alone() {
    let suspended = || json!({ "lastScheduleTime": "2025-12-01T00:00:00Z" });
    let table = [
        ("* * * * *", "2026-01-01T12:30:00Z"),
        ("* 9 * * *", "2026-01-01T09:59:00Z"),
        ("*/5 9-10 * * 1-5", "2026-01-01T10:55:00Z"),
        ("0,1 9 * * 6", "2025-12-27T09:01:00Z"),
        ("0 0 2 12 *", "2025-12-02T00:00:00Z"),
        ("@every 7m", "2026-01-01T12:28:00Z"),
    ];
    for (schedule, most_recent) in table {
        let mut state = mk_state(json!({ "schedule": schedule }), suspended(), &[]);
        assert_eq!(made_until_quiet(&mut state), [most_recent], "{schedule}");
    }
}

#[test]
fn more_than_a_hundred_missed_start_times_are_a_warning() {
    let hourly_since = |last: &str| mk_state(json!({}), json!({ "lastScheduleTime": last }), &[]);
    let warns = |state: &State| describe(state).contains(&"say TooManyMissedTimes".to_owned());
    // At 12:00 the hundredth, or the hundred and first.
    assert!(!warns(&hourly_since("2025-12-28T08:00:00Z")));
    assert!(warns(&hourly_since("2025-12-28T07:00:00Z")));
    // Twice a week for a month is not many, though the two are a minute apart.
    let weekly = json!({ "schedule": "0,1 9 * * 6" });
    assert!(!warns(&mk_state(weekly, json!({ "lastScheduleTime": "2025-12-01T00:00:00Z" }), &[])));
}

#[test]
fn a_running_job_forbids_the_next_or_is_replaced() {
    let runs = || json!({ "active": active(&["old"]), "lastScheduleTime": "2026-01-01T11:00:00Z" });
    let old: &[(&str, &str)] = &[("old", "for=11:00")];
    let policy = |policy: &str| json!({ "concurrencyPolicy": policy });
    assert_eq!(describe(&mk_state(policy("Allow"), runs(), old)), ["create c-29454480", "again at 13:00"]);
    assert_eq!(
        describe(&mk_state(policy("Forbid"), runs(), old)),
        ["say JobAlreadyActive", "again at 13:00"]
    );
    assert_eq!(
        describe(&mk_state(policy("Replace"), runs(), old)),
        ["active [] last Some(11:00)", "delete old", "create c-29454480", "again at 13:00"]
    );
}

#[test]
fn finished_jobs_leave_the_status_and_the_oldest_are_deleted() {
    let last = |active: Value| json!({ "active": active, "lastScheduleTime": "2026-01-01T12:00:00Z" });
    let ended = mk_state(json!({}), last(active(&["a", "b"])), &[("a", "for=12:00 Complete")]);
    assert_eq!(
        describe(&ended),
        ["active [] last Some(12:00)", "say SawCompletedJob", "say MissingJob", "again at 13:00"]
    );
    let status = decide(&ended, NOW.parse().unwrap()).into_iter().find_map(|action| match action {
        Action::Status(Object::CronJob(cron)) => cron.status,
        _ => None,
    });
    assert_eq!(status.unwrap().last_successful_time.unwrap().0.to_string(), "2026-01-01T12:10:00Z");
    let jobs: &[(&str, &str)] = &[
        ("a", "for=09:00 start=09:00 Complete"),
        ("b", "for=10:00 start=10:00 Complete"),
        ("c", "for=08:00 start=08:00 Complete"),
        ("d", "for=07:00 start=07:00 Failed"),
        ("e", "for=11:00 start=11:00 Failed"),
    ];
    let two =
        json!({ "lastScheduleTime": "2026-01-01T12:00:00Z", "lastSuccessfulTime": "2026-01-01T12:10:00Z" });
    let state = mk_state(json!({ "successfulJobsHistoryLimit": 1 }), two, jobs);
    assert_eq!(describe(&state), ["delete c", "delete a", "delete d", "again at 13:00"]);
    // A Job that is deleted at once gets no event about its end.
    let none = json!({ "successfulJobsHistoryLimit": 0 });
    let at_once = mk_state(none, last(active(&["a"])), &[("a", "for=12:00 Complete")]);
    assert_eq!(describe(&at_once), ["active [] last Some(12:00)", "delete a", "again at 13:00"]);
    // A Job that a user created is not one of the CronJob's.
    let manual =
        mk_state(json!({}), json!({ "lastScheduleTime": "2026-01-01T12:00:00Z" }), &[("m", "manual")]);
    assert_eq!(describe(&manual), ["say UnexpectedJob", "again at 13:00"]);
}

#[test]
fn an_unknown_time_zone_starts_no_job_and_a_known_one_decides_when() {
    let mut state = mk_state(json!({ "timeZone": "Mars/Olympus" }), json!({}), &[]);
    state.zone = None;
    assert_eq!(describe(&state), ["say UnknownTimeZone"]);
    let mut state = mk_state(json!({ "schedule": "0 7 * * *" }), json!({}), &[]);
    state.zone = Some(TimeZone::posix("EST5").unwrap());
    let actions = decide(&state, NOW.parse().unwrap());
    let Action::Create(Object::Job(job)) = &actions[0] else { panic!("{actions:?}") };
    assert_eq!(job.metadata.annotations.as_ref().unwrap()[SCHEDULED], "2026-01-01T07:00:00-05:00");
    assert_eq!(describe(&mk_state(json!({ "schedule": "x" }), json!({}), &[])), ["say UnparseableSchedule"]);
}

#[test]
fn a_zone_in_the_schedule_takes_precedence_and_is_warned_of() {
    let spec = json!({ "schedule": "TZ=Europe/Zurich 0 13 * * *", "timeZone": "Asia/Tokyo" });
    let state = mk_state(spec, json!({}), &[]);
    assert_eq!(zone_name(&state.cron), "Europe/Zurich");
    assert_eq!(describe(&state), ["say UnsupportedSchedule", "again at 13:00"]);
}

#[test]
fn the_controller_runs_the_schedules_that_the_api_server_accepts() {
    // The table of `plumb-cron`, to which the API server's validation is held too.
    let table =
        include_str!("../../../cron/tests/schedules.txt").lines().filter(|line| !line.starts_with('#'));
    for line in table {
        let (schedule, refusal) = line
            .split_once("=>")
            .map_or((line, None), |(schedule, refusal)| (schedule.trim_end(), Some(refusal.trim())));
        let state = mk_state(json!({ "schedule": schedule }), json!({}), &[]);
        let messages: Vec<String> = decide(&state, NOW.parse().unwrap())
            .into_iter()
            .filter_map(|action| match action {
                Action::Event(note) if note.reason == "UnparseableSchedule" => Some(note.message),
                _ => None,
            })
            .collect();
        let expected = refusal.map(|refusal| format!("unparseable schedule: {schedule:?} : {refusal}"));
        assert_eq!(messages, Vec::from_iter(expected), "{schedule}");
    }
}
