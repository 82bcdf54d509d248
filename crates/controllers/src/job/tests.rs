//! Tables of decisions about Jobs.

use serde_json::{Value, json};

use super::*;
use crate::workload::Object;

const NOW: i64 = 1_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn mk_job(spec: Value, status: Value) -> Job {
    let mut whole = json!({
        "backoffLimit": 6, "parallelism": 1, "completionMode": "NonIndexed", "podReplacementPolicy": "TerminatingOrFailed",
        "selector": { "matchLabels": { "job": "j" } },
        "template": {
            "metadata": { "labels": { "job": "j" } },
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "c" }] },
        },
    });
    merge(&mut whole, spec);
    let mut started =
        json!({ "startTime": at(NOW - 100), "uncountedTerminatedPods": {}, "ready": 0, "terminating": 0 });
    merge(&mut started, status);
    let metadata = json!({ "name": "j", "namespace": "n", "uid": "job" });
    serde_json::from_value(json!({ "metadata": metadata, "spec": whole, "status": started })).unwrap()
}

fn merge(into: &mut Value, more: Value) {
    for (key, value) in more.as_object().unwrap() {
        into[key] = value.clone();
    }
}

/// A pod, by its description: a phase, `kept`, `deleted`, `#2` for its index, `x3` for failures before it, `@7` for
/// the second at which it finished, `exit=3`.
fn mk_pod(name: &str, description: &str) -> Arc<Pod> {
    let mut pod = json!({ "metadata": { "name": name, "namespace": "n", "uid": name }, "status": { "phase": "Pending" } });
    for word in description.split_whitespace() {
        match word {
            "kept" => pod["metadata"]["finalizers"] = json!([FINALIZER]),
            "deleted" => {
                pod["metadata"]["deletionTimestamp"] = json!(at(NOW));
                pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
            }
            "ready" => pod["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]),
            _ if word.starts_with('#') => {
                pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = json!(word[1..]);
            }
            _ if word.starts_with('x') => {
                pod["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] =
                    json!(word[1..]);
            }
            _ if word.starts_with('@') => {
                let second: i64 = word[1..].parse().unwrap();
                let state = json!({ "terminated": { "exitCode": 1, "finishedAt": at(second) } });
                pod["status"]["containerStatuses"] = containers(state, 0);
            }
            _ if word.starts_with("exit=") => {
                let code: i32 = word[5..].parse().unwrap();
                let state = json!({ "terminated": { "exitCode": code, "finishedAt": at(NOW) } });
                pod["status"]["containerStatuses"] = containers(state, 0);
            }
            _ if word.starts_with("restarts=") => {
                pod["status"]["containerStatuses"] = containers(json!({}), word[9..].parse().unwrap());
            }
            phase => pod["status"]["phase"] = json!(phase),
        }
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn containers(state: Value, restarts: i32) -> Value {
    json!([{ "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": restarts, "state": state }])
}

/// The decided actions, a line each.
fn describe(job: &Job, pods: &[(&str, &str)]) -> Vec<String> {
    let pods: Vec<Arc<Pod>> = pods.iter().map(|(name, description)| mk_pod(name, description)).collect();
    let actions = decide(JobState { job, pods: &pods, now: at(NOW) });
    actions.iter().map(|action| line(job, action)).collect()
}

fn line(job: &Job, action: &Action) -> String {
    match action {
        Action::Patch(of, _) => format!("release {}", of.name),
        Action::Delete(of, None) => format!("delete {}", of.name),
        Action::Create(Object::Pod(pod)) => match index_of(pod) {
            Some(index) => format!("create #{index} x{}", failures_before(pod).0),
            None => "create".to_owned(),
        },
        Action::Status(Object::Job(changed)) => {
            let fields = |job: &Job| serde_json::to_value(job.status.clone().unwrap_or_default()).unwrap();
            let before = fields(job);
            let after = fields(changed);
            let mut changed: Vec<String> = Vec::new();
            let empty = serde_json::Map::new();
            let before = before.as_object().unwrap_or(&empty);
            let after = after.as_object().unwrap_or(&empty);
            for (field, value) in after.iter().filter(|(field, value)| before.get(*field) != Some(value)) {
                changed.push(match &**field {
                    "conditions" => {
                        let short = |one: &Value| {
                            format!("{}={} {}", text(one, "type"), text(one, "status"), text(one, "reason"))
                        };
                        value.as_array().unwrap().iter().map(short).collect::<Vec<_>>().join("+")
                    }
                    "startTime" | "completionTime" => field.clone(),
                    _ => format!("{field}={value}").replace('"', ""),
                });
            }
            changed.extend(
                before.keys().filter(|field| !after.contains_key(*field)).map(|field| format!("-{field}")),
            );
            format!("status {}", changed.join(" "))
        }
        Action::Event(note) => format!("say {}", note.reason),
        Action::RequeueAt(when) => format!("again in {}", when.as_second() - NOW),
        other => format!("{other:?}"),
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap()
}

/// A status, pods, and the decided actions.
type Row<'a> = (Value, &'a [(&'a str, &'a str)], &'a [&'a str]);

#[track_caller]
fn table(spec: Value, rows: &[Row<'_>]) {
    for (status, pods, wanted) in rows {
        let job = mk_job(spec.clone(), status.clone());
        assert_eq!(describe(&job, pods), *wanted, "{status} {pods:?}");
    }
}

#[test]
fn a_new_job_starts_its_pods() {
    let mut job =
        mk_job(json!({ "completions": 3, "parallelism": 2, "activeDeadlineSeconds": 60 }), json!({}));
    job.status = None;
    let wanted = [
        "status ready=0 startTime terminating=0 uncountedTerminatedPods={}",
        "create",
        "create",
        "again in 60",
    ];
    assert_eq!(describe(&job, &[]), wanted);
    let state = JobState { job: &job, pods: &[], now: at(NOW) };
    let Action::Create(Object::Pod(pod)) = &decide(state)[1] else { panic!("no pod") };
    assert_eq!(pod.metadata.generate_name.as_deref(), Some("j-"));
    assert_eq!(pod.metadata.finalizers.as_ref().unwrap(), &[FINALIZER]);
    assert_eq!(pod.metadata.owner_references.as_ref().unwrap()[0].uid, "job");
}

#[test]
fn a_success_is_named_then_released_then_counted() {
    let met = json!([{ "type": "SuccessCriteriaMet", "status": "True", "reason": "CompletionsReached", "message": "" }]);
    let named = json!({ "uncountedTerminatedPods": { "succeeded": ["a"] }, "conditions": met });
    table(
        json!({ "completions": 1 }),
        &[
            (json!({ "active": 1 }), &[("a", "kept Running")], &[]),
            (
                json!({ "active": 1 }),
                &[("a", "kept Succeeded")],
                &[
                    "status SuccessCriteriaMet=True CompletionsReached uncountedTerminatedPods={succeeded:[a]} -active",
                ],
            ),
            (named.clone(), &[("a", "kept Succeeded")], &["release a"]),
            (
                named.clone(),
                &[("a", "Succeeded")],
                &[
                    "status completionTime SuccessCriteriaMet=True CompletionsReached+Complete=True CompletionsReached \
                 succeeded=1 uncountedTerminatedPods={}",
                    "say Completed",
                ],
            ),
            // The pod is deleted: its finalizer was removed nevertheless.
            (
                named,
                &[],
                &[
                    "status completionTime SuccessCriteriaMet=True CompletionsReached+Complete=True CompletionsReached \
                 succeeded=1 uncountedTerminatedPods={}",
                    "say Completed",
                ],
            ),
        ],
    );
}

#[test]
fn parallelism_and_missing_completions_bound_the_active_pods() {
    let three = [("a", "kept Running"), ("b", "kept Running ready"), ("c", "kept Pending")];
    table(
        json!({ "completions": 5, "parallelism": 2 }),
        &[
            (json!({ "active": 1 }), &[("a", "kept Running")], &["create"]),
            // The pod that has not started is deleted, and does not count as failed.
            (
                json!({ "active": 3 }),
                &three,
                &["release c", "delete c", "status active=2 ready=1 terminating=1"],
            ),
            // A terminating pod is replaced at once.
            (
                json!({ "active": 2 }),
                &[("a", "kept Running"), ("b", "Running deleted")],
                &["status active=1 terminating=1", "create"],
            ),
            (json!({ "succeeded": 4, "active": 1 }), &[("a", "kept Running")], &[]),
        ],
    );
    // Without a number of completions one success is enough, and the others may finish.
    table(
        json!({ "parallelism": 2 }),
        &[
            (json!({}), &[], &["create", "create"]),
            (json!({ "succeeded": 1, "active": 1 }), &[("a", "kept Running")], &[]),
        ],
    );
}

#[test]
fn failures_cause_a_backoff_and_count_until_the_limit() {
    let failed = |uid: &str| json!({ "uncountedTerminatedPods": { "failed": [uid] } });
    table(
        json!({ "completions": 1, "backoffLimit": 1 }),
        &[
            (
                json!({ "active": 1 }),
                &[("a", "kept Failed @999995")],
                &["status uncountedTerminatedPods={failed:[a]} -active", "again in 5"],
            ),
            (failed("a"), &[("a", "kept Failed @999995")], &["release a", "again in 5"]),
            (
                failed("a"),
                &[("a", "Failed @999995")],
                &["status failed=1 uncountedTerminatedPods={}", "again in 5"],
            ),
            (json!({ "failed": 1 }), &[("a", "Failed @999989")], &["create"]),
            // One more than the limit: the Job has failed, and its running pods are deleted.
            (
                json!({ "failed": 1, "active": 1 }),
                &[("a", "Failed @999900"), ("b", "kept Failed @999999"), ("c", "kept Running")],
                &[
                    "delete c",
                    "status FailureTarget=True BackoffLimitExceeded terminating=1 uncountedTerminatedPods={failed:[b,c]} -active",
                ],
            ),
        ],
    );
}

/// Deleted while it ran, it is counted as a failure; its last phase does not change that, nor keep its finalizer.
#[test]
fn a_pod_that_succeeds_after_it_was_deleted_is_released_as_a_failure() {
    let named = json!({ "uncountedTerminatedPods": { "failed": ["a"] } });
    let wanted: &[&str] = &["release a", "create"];
    let row: Row<'_> = (named.clone(), &[("a", "kept Succeeded deleted")], wanted);
    table(json!({ "completions": 1 }), &[row]);
    let job = mk_job(json!({ "completions": 1, "completionMode": "Indexed" }), named);
    let lines = describe(&job, &[("a", "kept Succeeded deleted #0")]);
    assert!(lines.iter().any(|line| line == "release a"), "{lines:?}");
}

#[test]
fn a_job_has_failed_when_all_its_pods_are_deleted_and_counted() {
    let target =
        json!([{ "type": "FailureTarget", "status": "True", "reason": "DeadlineExceeded", "message": "m" }]);
    let named =
        json!({ "conditions": target, "uncountedTerminatedPods": { "failed": ["a"] }, "terminating": 1 });
    let over = json!({ "conditions": target, "failed": 1, "terminating": 1 });
    table(
        json!({ "completions": 1, "activeDeadlineSeconds": 100 }),
        &[
            (
                json!({ "active": 1 }),
                &[("a", "kept Running")],
                &[
                    "delete a",
                    "status FailureTarget=True DeadlineExceeded terminating=1 uncountedTerminatedPods={failed:[a]} -active",
                ],
            ),
            (named.clone(), &[("a", "kept Running deleted")], &["release a"]),
            (named, &[("a", "Running deleted")], &["status failed=1 uncountedTerminatedPods={}"]),
            (
                over,
                &[],
                &[
                    "status FailureTarget=True DeadlineExceeded+Failed=True DeadlineExceeded terminating=0",
                    "say DeadlineExceeded",
                ],
            ),
        ],
    );
}

#[test]
fn the_deadline_and_restarts_end_a_job() {
    table(
        json!({ "completions": 1, "activeDeadlineSeconds": 130 }),
        &[(json!({ "active": 1 }), &[("a", "kept Running")], &["again in 30"])],
    );
    let template = json!({ "spec": { "restartPolicy": "OnFailure", "containers": [{ "name": "c" }] } });
    table(
        json!({ "completions": 1, "backoffLimit": 2, "template": template }),
        &[
            (json!({ "active": 1 }), &[("a", "kept Running restarts=1")], &[]),
            (
                json!({ "active": 1 }),
                &[("a", "kept Running restarts=2")],
                &[
                    "delete a",
                    "status FailureTarget=True BackoffLimitExceeded terminating=1 uncountedTerminatedPods={failed:[a]} -active",
                ],
            ),
        ],
    );
}

#[test]
fn a_suspended_job_has_no_pods_and_restarts_when_it_is_resumed() {
    table(
        json!({ "completions": 2, "suspend": true }),
        &[
            (
                json!({ "active": 1 }),
                &[("a", "kept Running ready")],
                &[
                    "release a",
                    "delete a",
                    "status Suspended=True JobSuspended terminating=1 -active -startTime",
                    "say Suspended",
                ],
            ),
            (
                json!({ "startTime": null, "conditions": [{ "type": "Suspended", "status": "True", "reason": "JobSuspended" }] }),
                &[],
                &[],
            ),
        ],
    );
    table(
        json!({ "completions": 2 }),
        &[(
            json!({ "startTime": null, "conditions": [{ "type": "Suspended", "status": "True", "reason": "JobSuspended" }] }),
            &[],
            &["status Suspended=False JobResumed startTime", "say Resumed", "create"],
        )],
    );
}

#[test]
fn missing_indexes_are_created_from_the_lowest_and_duplicates_are_deleted() {
    let spec = json!({ "completions": 4, "parallelism": 3, "completionMode": "Indexed" });
    table(
        spec,
        &[
            (json!({}), &[], &["create #0 x0", "create #1 x0", "create #2 x0"]),
            (
                json!({ "completedIndexes": "0", "succeeded": 1, "active": 1 }),
                &[("a", "kept Running #2")],
                &["create #1 x0", "create #3 x0"],
            ),
            (
                json!({ "active": 3 }),
                &[("a", "kept Running #1"), ("b", "kept Pending #1"), ("c", "kept Running #9")],
                &["release b", "release c", "delete b", "delete c", "status active=1 terminating=2"],
            ),
            // An index is known to have succeeded before the finalizer of its pod is removed.
            (
                json!({ "active": 1 }),
                &[
                    ("a", "kept Succeeded #1"),
                    ("b", "kept Running #0"),
                    ("c", "kept Running #2"),
                    ("d", "kept Running #3"),
                ],
                &["status active=3 completedIndexes=1 succeeded=1"],
            ),
            (
                json!({ "active": 3, "completedIndexes": "1", "succeeded": 1 }),
                &[
                    ("a", "kept Succeeded #1"),
                    ("b", "kept Running #0"),
                    ("c", "kept Running #2"),
                    ("d", "kept Running #3"),
                ],
                &["release a"],
            ),
        ],
    );
}

#[test]
fn the_pod_of_an_index_knows_it() {
    let job = mk_job(json!({ "completions": 2, "completionMode": "Indexed" }), json!({}));
    let Action::Create(Object::Pod(pod)) = &decide(JobState { job: &job, pods: &[], now: at(NOW) })[0] else {
        panic!("no pod")
    };
    assert_eq!(pod.metadata.generate_name.as_deref(), Some("j-0-"));
    let label = "batch.kubernetes.io/job-completion-index";
    assert_eq!(pod.metadata.labels.as_ref().unwrap()[label], "0");
    let spec = pod.spec.as_ref().unwrap();
    assert_eq!(spec.hostname.as_deref(), Some("j-0"));
    let variable = &spec.containers[0].env.as_ref().unwrap()[0];
    assert_eq!(variable.name, "JOB_COMPLETION_INDEX");
    let field = variable.value_from.as_ref().unwrap().field_ref.as_ref().unwrap();
    assert_eq!(field.field_path, format!("metadata.labels['{label}']"));
}

#[test]
fn each_index_has_failures_of_its_own() {
    let spec = json!({
        "completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimit": i32::MAX,
        "backoffLimitPerIndex": 1, "maxFailedIndexes": 5,
    });
    table(
        spec,
        &[
            // The failed pod is kept until its successor is there, which learns from it.
            (
                json!({ "active": 1, "failedIndexes": "" }),
                &[("a", "kept Failed #0 x0 @999980"), ("b", "kept Running #1 x0")],
                &["create #0 x1"],
            ),
            (
                json!({ "active": 2, "failedIndexes": "" }),
                &[
                    ("a", "kept Failed #0 x0 @999980"),
                    ("c", "kept Running #0 x1"),
                    ("b", "kept Running #1 x0"),
                ],
                &["status uncountedTerminatedPods={failed:[a]}"],
            ),
            (
                json!({ "active": 1, "failedIndexes": "" }),
                &[("a", "kept Failed #0 x0 @999997"), ("b", "kept Running #1 x0")],
                &["again in 7"],
            ),
            // The limit of the index is reached: the index has failed, and the Job fails once the others are done.
            (
                json!({ "active": 1, "failed": 1, "failedIndexes": "" }),
                &[("c", "kept Failed #0 x1 @999980"), ("b", "kept Running #1 x0")],
                &["status failedIndexes=0 uncountedTerminatedPods={failed:[c]}"],
            ),
            (
                json!({ "failed": 2, "failedIndexes": "0", "completedIndexes": "1", "succeeded": 1 }),
                &[],
                &["status FailureTarget=True FailedIndexes+Failed=True FailedIndexes", "say FailedIndexes"],
            ),
        ],
    );
}

#[test]
fn policies_say_what_failures_and_successes_mean() {
    let rule = |action: &str| json!({ "completions": 1, "podFailurePolicy": { "rules": [{ "action": action, "onExitCodes": { "operator": "In", "values": [3] } }] } });
    let failed: &[(&str, &str)] = &[("a", "kept Failed exit=3")];
    table(
        rule("FailJob"),
        &[(
            json!({}),
            failed,
            &["status FailureTarget=True PodFailurePolicy uncountedTerminatedPods={failed:[a]}"],
        )],
    );
    // The failure does not count, but the backoff applies.
    table(rule("Ignore"), &[(json!({}), failed, &["release a", "again in 10"])]);
    // A terminating pod may still succeed: only failed pods are replaced.
    table(rule("Ignore"), &[(json!({ "terminating": 1 }), &[("a", "kept Running deleted")], &[])]);
    let success = json!({
        "completions": 3, "parallelism": 3, "completionMode": "Indexed",
        "successPolicy": { "rules": [{ "succeededIndexes": "0" }] },
    });
    let met =
        json!([{ "type": "SuccessCriteriaMet", "status": "True", "reason": "SuccessPolicy", "message": "" }]);
    table(
        success,
        &[
            (
                json!({ "active": 2 }),
                &[("a", "kept Succeeded #0"), ("b", "kept Running #1")],
                &[
                    "delete b",
                    "status completedIndexes=0 SuccessCriteriaMet=True SuccessPolicy succeeded=1 terminating=1 -active",
                ],
            ),
            // Pods that are deleted because of it have not failed.
            (
                json!({ "conditions": met, "completedIndexes": "0", "succeeded": 1, "terminating": 1 }),
                &[("a", "kept Succeeded #0"), ("b", "kept Running #1 deleted")],
                &["release a", "release b"],
            ),
        ],
    );
}

#[test]
fn finished_jobs_and_jobs_of_other_controllers_are_not_reconciled() {
    let over = json!({ "conditions": [{ "type": "Complete", "status": "True" }] });
    table(json!({ "completions": 2 }), &[(over, &[("a", "kept Running"), ("b", "Failed")], &["release a"])]);
    table(json!({ "managedBy": "example.com/mine" }), &[(json!({}), &[("a", "kept Failed")], &[])]);
    let mut job = mk_job(json!({ "completions": 2 }), json!({ "active": 1 }));
    job.metadata.deletion_timestamp = Some(Time(at(NOW)));
    assert_eq!(describe(&job, &[("a", "kept Running")]), ["release a"]);
}

#[test]
fn a_job_expires_some_time_after_its_end() {
    let ended =
        json!({ "conditions": [{ "type": "Failed", "status": "True", "lastTransitionTime": at(NOW) }] });
    assert_eq!(
        expires_at(&mk_job(json!({ "ttlSecondsAfterFinished": 30 }), ended.clone())),
        Some(at(NOW + 30))
    );
    assert_eq!(expires_at(&mk_job(json!({}), ended)), None);
    assert_eq!(expires_at(&mk_job(json!({ "ttlSecondsAfterFinished": 30 }), json!({}))), None);
}
