//! Work that ends.

use serde_json::{Value, json};

use super::column::{AGE, CONTAINERS, Column, IMAGES, NAME};
use super::duration::human_duration;
use super::labels::selector;
use super::layout::Layout;
use super::view::View;

const SELECTOR: Column = Column::text("Selector", "the labels of the pods that work");

pub(super) const LAYOUTS: &[Layout] = &[
    Layout::new(
        "batch",
        "Job",
        &[
            NAME,
            Column::text("Status", "how far the job is"),
            Column::text("Completions", "how many pods have succeeded, of how many there are to be"),
            Column::text("Duration", "how long the job has run, or ran"),
            AGE,
            CONTAINERS.wide(),
            IMAGES.wide(),
            SELECTOR.wide(),
        ],
        job,
    ),
    Layout::new(
        "batch",
        "CronJob",
        &[
            NAME,
            Column::text("Schedule", "when jobs are started"),
            Column::text("Timezone", "where the schedule's hours are those of the clock"),
            Column::boolean("Suspend", "whether no jobs are started for now"),
            Column::integer("Active", "how many of its jobs run"),
            Column::text("Last Schedule", "how long ago a job was last started"),
            AGE,
            CONTAINERS.wide(),
            IMAGES.wide(),
            SELECTOR.wide(),
        ],
        cron_job,
    ),
];

fn job(job: View<'_>) -> Value {
    let (names, images) = job.containers("/spec/template/spec/containers");
    json!([
        job.name(),
        status(job),
        completions(job),
        run_time(job),
        job.age(),
        names,
        images,
        selector(job, "/spec/selector"),
    ])
}

fn status(job: View<'_>) -> &'static str {
    let first = |conditions: &[&'static str]| conditions.iter().copied().find(|one| job.is_true(one));
    if let Some(end) = first(&["Complete", "Failed"]) {
        return end;
    }
    if job.is_deleting() {
        return "Terminating";
    }
    first(&["Suspended", "FailureTarget", "SuccessCriteriaMet"]).unwrap_or("Running")
}

fn completions(job: View<'_>) -> String {
    let succeeded = job.number("/status/succeeded");
    if job.has("/spec/completions") {
        return format!("{succeeded}/{}", job.number("/spec/completions"));
    }
    // Any one success will do, of as many pods as may run at once.
    match job.number("/spec/parallelism") {
        parallelism @ 2.. => format!("{succeeded}/1 of {parallelism}"),
        _ => format!("{succeeded}/1"),
    }
}

fn run_time(job: View<'_>) -> String {
    match (job.time("/status/startTime"), job.time("/status/completionTime")) {
        (None, _) => String::new(),
        (started, None) => job.ago(started),
        (Some(started), Some(ended)) => human_duration(ended.duration_since(started).as_secs()),
    }
}

fn cron_job(cron_job: View<'_>) -> Value {
    let (names, images) = cron_job.containers("/spec/jobTemplate/spec/template/spec/containers");
    let last = cron_job.at("/status/lastScheduleTime");
    let last = last.map_or_else(|| "<none>".to_owned(), |last| last.since(""));
    json!([
        cron_job.name(),
        cron_job.text("/spec/schedule"),
        cron_job.text_or("/spec/timeZone", "<none>"),
        if cron_job.flag("/spec/suspend") { "True" } else { "False" },
        cron_job.count("/status/active"),
        last,
        cron_job.age(),
        names,
        images,
        selector(cron_job, "/spec/jobTemplate/spec/selector"),
    ])
}
