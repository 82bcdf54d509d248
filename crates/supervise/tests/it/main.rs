//! Tests of restarts, counters and health, with virtual time.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use plumb_metrics::Text;
use plumb_supervise::{Exponential, Health, Policy, Supervisor};

fn health(supervisor: &Supervisor, name: &str) -> Option<Health> {
    supervisor.tasks().into_iter().find(|task| task.name == name).map(|task| task.health)
}

fn rendered(supervisor: &Supervisor) -> String {
    let mut text = Text::default();
    supervisor.render(&mut text);
    text.finish()
}

/// A task that counts its runs. The letters of `script` are the outcomes of the first runs: `p` panics, `e` ends; later runs
/// do not end.
fn scripted(supervisor: &Supervisor, name: &str, script: &'static str) -> Arc<AtomicUsize> {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let kept = supervisor.keep(name, move || {
        let run = counted.fetch_add(1, SeqCst);
        let outcome = script.chars().nth(run).unwrap_or('r');
        async move {
            tokio::task::yield_now().await;
            match outcome {
                'p' => panic!("run {run} panics"),
                'e' => {}
                _ => std::future::pending().await,
            }
        }
    });
    tokio::spawn(kept);
    runs
}

#[tokio::test(start_paused = true)]
async fn a_task_that_panics_or_ends_is_restarted_and_counted() {
    let supervisor = Supervisor::default();
    let runs = scripted(&supervisor, "a", "pep");
    assert_eq!(health(&supervisor, "a"), Some(Health::Running), "it is known before it runs");
    tokio::time::sleep(Duration::from_millis(50)).await;
    let waiting = Health::Waiting { cause: "panicked: run 0 panics".into(), failures: 1, failing: false };
    assert_eq!(health(&supervisor, "a"), Some(waiting));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((runs.load(SeqCst), health(&supervisor, "a")), (4, Some(Health::Running)));
    assert_eq!((supervisor.restarts("a"), supervisor.panics("a")), (3, 2));
    let rendered = rendered(&supervisor);
    for line in [
        "plumb_tasks{state=\"running\"} 1",
        "plumb_task_panics_total{task=\"a\"} 2",
        "plumb_task_restarts_total{task=\"a\",cause=\"panic\"} 2",
        "plumb_task_restarts_total{task=\"a\",cause=\"end\"} 1",
    ] {
        assert!(rendered.contains(line), "{line} is not in\n{rendered}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_keeps_failing_is_dead_until_it_runs() {
    let policy = Policy { failing_after: 3, ..Policy::default() };
    let supervisor = Supervisor::new(policy);
    scripted(&supervisor, "a", "ppp");
    tokio::time::sleep(Duration::from_millis(150)).await;
    let task = supervisor.tasks().remove(0);
    assert_eq!((task.unready(), task.dead()), (Some("panicked: run 1 panics"), None));
    tokio::time::sleep(Duration::from_millis(200)).await;
    let task = supervisor.tasks().remove(0);
    assert_eq!(task.dead(), Some("panicked: run 2 panics"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let task = supervisor.tasks().remove(0);
    assert_eq!((task.unready(), task.dead()), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_stable_run_resets_the_backoff() {
    let supervisor = Supervisor::default();
    let runs = scripted(&supervisor, "a", "ppp");
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(supervisor.abort("a"));
    tokio::time::sleep(Duration::from_millis(99)).await;
    assert_eq!(runs.load(SeqCst), 4);
    assert!(!supervisor.abort("a"), "it does not run");
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(runs.load(SeqCst), 5);
    assert!(rendered(&supervisor).contains("plumb_task_restarts_total{task=\"a\",cause=\"abort\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn a_finite_task_is_restarted_only_if_it_panics() {
    let supervisor = Supervisor::default();
    let mut runs = 0;
    let done = supervisor.finish("a", || {
        runs += 1;
        let run = runs;
        async move {
            assert!(run == 2, "run {run} panics");
            "done"
        }
    });
    assert_eq!(done.await, "done");
    assert_eq!(supervisor.restarts("a"), 1);
    assert_eq!(supervisor.tasks(), [], "it is done");
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_a_work_item_does_not_end_the_task() {
    let supervisor = Supervisor::default();
    let panics = async { assert!(supervisor.tasks().len() > 9, "over b") };
    assert_eq!(supervisor.guard("a", panics).await.unwrap_err().to_string(), "panicked: over b");
    assert_eq!(supervisor.guard("a", async { 1 }).await, Ok(1));
    assert_eq!((supervisor.panics("a"), supervisor.restarts("a")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn tasks_of_the_same_name_are_distinct_and_dropped_ones_are_removed() {
    let supervisor = Supervisor::default();
    let [one, other] = [(); 2].map(|()| supervisor.keep("a", std::future::pending));
    let names = || supervisor.tasks().into_iter().map(|task| task.name).collect::<Vec<_>>();
    assert_eq!(names(), ["a", "a-2"]);
    drop(one);
    assert_eq!(names(), ["a-2"]);
    drop(other);
    assert!(!supervisor.abort("a"));
}

#[tokio::test(start_paused = true)]
async fn one_of_many_tasks_of_a_kind_is_restarted_and_counted_and_not_listed() {
    let supervisor = Supervisor::default();
    for _ in 0..2 {
        let mut runs = 0;
        let done = supervisor.finish_one_of("pod-worker", || {
            runs += 1;
            let run = runs;
            async move { assert!(run > 1, "run {run} panics") }
        });
        assert_eq!(supervisor.tasks(), []);
        done.await;
    }
    assert_eq!((supervisor.restarts("pod-worker"), supervisor.panics("pod-worker")), (2, 2));
}

#[test]
fn a_loop_on_a_thread_is_restarted_until_it_returns_done() {
    let supervisor = Supervisor::new(Policy {
        delays: Exponential::new(Duration::ZERO, Duration::ZERO),
        ..Policy::default()
    });
    let mut runs = 0;
    supervisor.keep_on_thread("a", || {
        runs += 1;
        assert!(!supervisor.abort("a"), "a thread cannot be aborted");
        match runs {
            1 => panic!("the first run panics"),
            2 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    });
    assert_eq!((runs, supervisor.restarts("a"), supervisor.panics("a")), (3, 2, 1));
    assert_eq!(supervisor.tasks(), []);
}
