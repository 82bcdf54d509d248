//! Decisions about a pod by its observed state.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerRestartRule, Lifecycle, LifecycleHandler, Pod, SleepAction};
use plumb_node::lifecycle::{
    Action, Decision, Health, ObservedContainer, ObservedPod, ObservedSandbox, Phase, Startup, State,
    StopReason, View, decide, is_restart_all_pending, is_restarted_by_other, is_restarting_all, phase,
};
use plumb_resize::pod::PodShape;
use plumb_runtime::types::ContainerId;
use serde_json::json;

/// A pod whose observed state a test sets.
struct Scene {
    pod: Pod,
    shape: PodShape,
    observed: ObservedPod,
    health: Vec<Health>,
    stopping: BTreeSet<ContainerId>,
    next_attempts: Vec<u32>,
    restarting: Vec<String>,
    not_before: Vec<Option<Timestamp>>,
    failed_until: Vec<Option<Timestamp>>,
    may_start: Vec<bool>,
    resize_awaited: Vec<Option<Timestamp>>,
    terminating: bool,
    now: Timestamp,
}

impl Scene {
    /// A pod with a plain init container, a sidecar and two main containers.
    fn new(policy: &str) -> Self {
        let container = |name: &str| json!({ "name": name, "image": "i" });
        let pod: Pod = serde_json::from_value(json!({ "spec": {
            "restartPolicy": policy,
            "initContainers": [container("init"), { "name": "side", "image": "i", "restartPolicy": "Always" }],
            "containers": [container("a"), container("b")],
        }}))
        .unwrap();
        let shape = PodShape::of(&pod).unwrap();
        Self {
            shape,
            pod,
            observed: ObservedPod {
                containers: vec![None; 4],
                previous: vec![None; 4],
                ..ObservedPod::default()
            },
            health: vec![Health::default(); 4],
            stopping: BTreeSet::new(),
            next_attempts: vec![0; 4],
            restarting: Vec::new(),
            not_before: vec![None; 4],
            failed_until: vec![None; 4],
            may_start: vec![true; 4],
            resize_awaited: vec![None; 4],
            terminating: false,
            now: Timestamp::UNIX_EPOCH,
        }
    }

    /// One whose containers all run.
    fn running(policy: &str) -> Self {
        let mut scene = Self::new(policy);
        scene.sandbox(true);
        scene.exit(0, 0);
        (1..4).for_each(|position| scene.run(position));
        assert_eq!(scene.decide(), Decision::default());
        scene
    }

    fn sandbox(&mut self, ready: bool) {
        self.observed.sandbox = Some(ObservedSandbox { id: "s".into(), attempt: 0, ready, ips: Vec::new() });
    }

    fn put(&mut self, position: usize, state: State) {
        let attempt = self.observed.containers[position].as_ref().map_or(0, |observed| observed.attempt);
        let image = "i".to_owned();
        let id = ContainerId::from(format!("{position}-{attempt}"));
        let observed = ObservedContainer {
            id,
            attempt,
            state,
            image,
            image_id: String::new(),
            of_old_sandbox: false,
            actual: None,
            user: None,
        };
        self.observed.containers[position] = Some(observed);
    }

    fn run(&mut self, position: usize) {
        self.put(position, State::Running { since: self.now });
    }

    /// A container is started again. Older runs that do not have to be kept are removed.
    fn restart(&mut self, position: usize) {
        let observed = self.observed.clone();
        let spec = self.pod.spec.as_ref().unwrap();
        self.observed.older.retain(|(_, run)| is_restart_all_pending(spec, &observed, run));
        let previous =
            std::mem::replace(&mut self.observed.previous[position], observed.containers[position].clone());
        self.observed.older.extend(previous.map(|run| (position, run)));
        self.observed.containers[position].as_mut().unwrap().attempt += 1;
        self.run(position);
    }

    fn exit(&mut self, position: usize, code: i32) {
        let (reason, message) = (String::new(), String::new());
        self.put(position, State::Exited { code, started: None, finished: self.now, reason, message });
    }

    fn decide(&self) -> Decision {
        decide(View {
            spec: self.pod.spec.as_ref().unwrap(),
            shape: &self.shape,
            observed: &self.observed,
            health: &self.health,
            stopping: &self.stopping,
            next_attempts: &self.next_attempts,
            restarting: &self.restarting,
            not_before: &self.not_before,
            failed_until: &self.failed_until,
            may_start: &self.may_start,
            resize_awaited: &self.resize_awaited,
            terminating: self.terminating,
            now: self.now,
        })
    }

    fn actions(&self) -> Vec<Action> {
        self.decide().actions
    }

    fn phase(&self) -> Phase {
        phase(self.pod.spec.as_ref().unwrap(), &self.shape, &self.observed, &self.restarting)
    }
}

fn start(container: usize, attempt: u32) -> Action {
    Action::Start { container, attempt }
}

#[test]
fn a_pod_comes_up_in_turn() {
    let mut scene = Scene::new("Always");
    assert_eq!(scene.actions(), [Action::CreateSandbox { attempt: 0 }]);
    scene.sandbox(true);
    assert_eq!(scene.actions(), [start(0, 0)], "the init container first, alone");
    scene.run(0);
    assert_eq!(scene.actions(), []);
    scene.exit(0, 0);
    assert_eq!(scene.actions(), [start(1, 0)], "then the sidecar");
    scene.run(1);
    scene.health[1].startup = Startup::UnderWay;
    assert_eq!((scene.actions(), scene.phase()), (vec![], Phase::Pending), "which has to start");
    scene.health[1].startup = Startup::Over;
    assert_eq!(scene.actions(), [start(2, 0), start(3, 0)]);
    scene.run(2);
    assert_eq!(scene.phase(), Phase::Pending);
    scene.run(3);
    assert_eq!((scene.actions(), scene.phase()), (vec![], Phase::Running));
}

#[test]
fn no_container_is_started_while_the_post_start_hook_of_one_before_it_runs() {
    let mut scene = Scene::new("Always");
    scene.sandbox(true);
    scene.exit(0, 0);
    scene.put(1, State::Starting);
    assert_eq!(scene.decide(), Decision::default(), "the hook of the sidecar runs");
    scene.run(1);
    assert_eq!(scene.actions(), [start(2, 0), start(3, 0)]);
    let hook = LifecycleHandler { sleep: Some(SleepAction { seconds: 1 }), ..LifecycleHandler::default() };
    scene.pod.spec.as_mut().unwrap().containers[0].lifecycle =
        Some(Lifecycle { post_start: Some(hook), ..Lifecycle::default() });
    assert_eq!(scene.actions(), [start(2, 0)], "its hook is to run before the next is started");
    scene.put(2, State::Starting);
    assert_eq!((scene.decide(), scene.phase()), (Decision::default(), Phase::Pending));
    scene.run(2);
    assert_eq!(scene.actions(), [start(3, 0)]);
    scene.put(3, State::Starting);
    scene.observed.containers[3].as_mut().unwrap().attempt = 1;
    assert_eq!(scene.phase(), Phase::Running, "a pod whose container is restarted runs");
    scene.terminating = true;
    let stop = |container| Action::Stop { container, why: StopReason::PodTerminates };
    assert_eq!(scene.actions(), [stop(2), stop(3)]);
}

#[test]
fn an_init_container_that_fails_is_tried_again_or_ends_the_pod() {
    for (policy, expected, ends_as) in
        [("Always", Some(start(0, 1)), Phase::Pending), ("Never", None, Phase::Failed)]
    {
        let mut scene = Scene::new(policy);
        scene.sandbox(true);
        scene.exit(0, 1);
        assert_eq!(scene.phase(), ends_as, "{policy}");
        match expected {
            Some(action) => assert_eq!(scene.actions(), [action]),
            None => assert_eq!(scene.actions(), [Action::StopSandbox]),
        }
    }
}

#[test]
fn a_container_that_ends_is_restarted_by_its_policy() {
    for (policy, code, restarts, then) in [
        ("Always", 0, true, Phase::Running),
        ("OnFailure", 0, false, Phase::Running),
        ("OnFailure", 1, true, Phase::Running),
        ("Never", 1, false, Phase::Running),
    ] {
        let mut scene = Scene::running(policy);
        scene.exit(2, code);
        let expected = if restarts { vec![start(2, 1)] } else { vec![] };
        assert_eq!((scene.actions(), scene.phase()), (expected, then), "{policy} {code}");
    }
}

#[test]
fn a_container_that_keeps_exiting_waits_for_its_backoff() {
    let mut scene = Scene::running("Always");
    scene.exit(2, 1);
    let due = Timestamp::from_second(10).unwrap();
    scene.not_before[2] = Some(due);
    assert_eq!(scene.decide(), Decision { actions: vec![], wake: Some(due) });
    scene.now = due;
    assert_eq!(scene.actions(), [start(2, 1)]);
}

#[test]
fn a_container_stopped_for_a_resize_starts_again_at_once_whatever_its_exit_code() {
    let mut scene = Scene::running("OnFailure");
    scene.exit(2, 0);
    scene.exit(3, 0);
    scene.restarting = vec!["a".into()];
    scene.not_before[2] = Some(Timestamp::from_second(10).unwrap());
    assert_eq!((scene.actions(), scene.phase()), (vec![start(2, 1)], Phase::Running));
    scene.may_start[2] = false;
    assert_eq!(scene.actions(), [], "not before it fits into the pod");
}

#[test]
fn a_container_that_is_not_well_or_has_another_image_is_stopped_once() {
    let mut scene = Scene::running("Always");
    scene.health[2].live = false;
    scene.health[3].startup = Startup::Failed;
    scene.observed.containers[1].as_mut().unwrap().image = "old".into();
    let stop = |container, why| Action::Stop { container, why };
    let expected =
        [stop(1, StopReason::Changed), stop(2, StopReason::NotLive), stop(3, StopReason::NotStarted)];
    assert_eq!(scene.actions(), expected);
    scene.stopping = ["1-0", "2-0", "3-0"].map(ContainerId::from).into();
    assert_eq!(scene.actions(), []);
}

#[test]
fn a_container_with_another_image_waits_for_a_resize_that_its_pod_announces_but_not_for_long() {
    let second = |second: i64| Timestamp::from_second(second).unwrap();
    let mut scene = Scene::running("Always");
    scene.observed.containers[2].as_mut().unwrap().image = "old".into();
    scene.resize_awaited[2] = Some(second(10));
    let waits = Decision { actions: Vec::new(), wake: Some(second(10)) };
    assert_eq!(scene.decide(), waits);
    // A probe that fails does not wait for it.
    scene.health[2].live = false;
    assert_eq!(scene.actions(), [Action::Stop { container: 2, why: StopReason::NotLive }]);
    scene.exit(2, 1);
    scene.observed.containers[2].as_mut().unwrap().image = "old".into();
    assert_eq!(scene.decide(), waits, "it has ended meanwhile");
    for requested in [false, true] {
        let mut scene = Scene::running("Always");
        scene.observed.containers[2].as_mut().unwrap().image = "old".into();
        scene.now = second(if requested { 1 } else { 10 });
        scene.resize_awaited[2] = (!requested).then(|| second(10));
        assert_eq!(scene.actions(), [Action::Stop { container: 2, why: StopReason::Changed }]);
    }
}

#[test]
fn a_pod_stops_main_containers_first_then_sidecars_then_the_sandbox() {
    let mut scene = Scene::running("Always");
    scene.terminating = true;
    let stop = |container| Action::Stop { container, why: StopReason::PodTerminates };
    assert_eq!(scene.actions(), [stop(2), stop(3)]);
    scene.stopping.insert("2-0".into());
    assert_eq!(scene.actions(), [stop(3)]);
    scene.exit(2, 0);
    scene.exit(3, 137);
    assert_eq!(scene.actions(), [stop(1)]);
    scene.exit(1, 0);
    assert_eq!(scene.actions(), [Action::StopSandbox]);
    scene.sandbox(false);
    assert_eq!(scene.actions(), []);
}

#[test]
fn a_container_that_was_never_started_does_not_keep_its_pod_terminating() {
    let mut scene = Scene::new("Always");
    scene.sandbox(true);
    scene.put(0, State::Created);
    scene.terminating = true;
    assert_eq!(scene.actions(), [Action::StopSandbox], "runtimes do not stop it: it goes with the sandbox");
}

#[test]
fn a_pod_whose_work_is_done_ends_and_its_sidecars_with_it() {
    for (code, expected) in [(0, Phase::Succeeded), (3, Phase::Failed)] {
        let mut scene = Scene::running("Never");
        scene.exit(2, 0);
        scene.exit(3, code);
        assert_eq!(scene.phase(), expected);
        assert_eq!(scene.actions(), [Action::Stop { container: 1, why: StopReason::PodTerminates }]);
    }
}

#[test]
fn a_lost_sandbox_is_made_again_unless_the_pod_is_over() {
    let mut scene = Scene::running("Always");
    scene.sandbox(false);
    assert_eq!(scene.actions(), [Action::CreateSandbox { attempt: 1 }]);
    let mut over = Scene::running("Never");
    for position in 1..4 {
        over.exit(position, 0);
    }
    over.sandbox(false);
    assert_eq!(over.actions(), []);
}

#[test]
fn a_container_that_could_not_be_started_is_not_tried_again_before_its_time_whatever_it_ended_for() {
    let due = Timestamp::from_second(10).unwrap();
    // It was stopped for another image or for a resize, and what it needs to start is missing.
    for for_resize in [false, true] {
        let mut scene = Scene::running("Always");
        scene.exit(2, 0);
        if for_resize {
            scene.restarting = vec!["a".into()];
        } else {
            scene.observed.containers[2].as_mut().unwrap().image = "old".into();
        }
        assert_eq!(scene.actions(), [start(2, 1)]);
        scene.failed_until[2] = Some(due);
        assert_eq!(scene.decide(), Decision { actions: vec![], wake: Some(due) });
        scene.now = due;
        assert_eq!(scene.actions(), [start(2, 1)]);
    }
}

#[test]
fn init_containers_run_again_in_a_new_sandbox_before_the_others() {
    for policy in ["Always", "OnFailure"] {
        let mut scene = Scene::running(policy);
        // The machine was started anew: everything is lost with the sandbox, and there is another one.
        (1..4).for_each(|position| scene.exit(position, 137));
        for observed in scene.observed.containers.iter_mut().flatten() {
            observed.of_old_sandbox = true;
        }
        assert_eq!((scene.actions(), scene.phase()), (vec![start(0, 1)], Phase::Pending), "{policy}");
        scene.run(0);
        assert_eq!(scene.actions(), [], "{policy}");
        scene.exit(0, 0);
        assert_eq!(scene.actions(), [start(1, 1)], "{policy}");
        scene.run(1);
        assert_eq!(scene.actions(), [start(2, 1), start(3, 1)], "{policy}");
        (2..4).for_each(|position| scene.run(position));
        assert_eq!((scene.actions(), scene.phase()), (vec![], Phase::Running), "{policy}");
    }
}

#[test]
fn a_container_of_an_old_sandbox_that_never_ran_is_created_again() {
    let mut scene = Scene::new("Always");
    scene.sandbox(true);
    scene.put(0, State::Created);
    assert_eq!(scene.actions(), [Action::StartCreated { container: 0 }]);
    scene.observed.containers[0].as_mut().unwrap().of_old_sandbox = true;
    assert_eq!(scene.actions(), [start(0, 0)]);
}

#[test]
fn an_exit_that_a_rule_names_restarts_all_containers_of_the_pod() {
    let second = |second: i64| Timestamp::from_second(second).unwrap();
    let mut scene = Scene::running("Never");
    let rules =
        json!([{ "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [42] } }]);
    let container = &mut scene.pod.spec.as_mut().unwrap().containers[0];
    container.restart_policy = Some("Never".into());
    container.restart_policy_rules = serde_json::from_value(rules).unwrap();
    let stop = |container| Action::Stop { container, why: StopReason::RestartAll };

    let is_restarting = |scene: &Scene| is_restarting_all(scene.pod.spec.as_ref().unwrap(), &scene.observed);
    assert_eq!(is_restarting(&scene), Some(false));
    scene.now = second(10);
    scene.exit(2, 42);
    assert_eq!((scene.actions(), scene.phase()), (vec![stop(1), stop(3)], Phase::Running), "in no order");
    scene.exit(1, 137);
    assert_eq!((scene.actions(), scene.phase()), (vec![stop(3)], Phase::Running));
    scene.exit(3, 137);
    assert_eq!(is_restarting(&scene), Some(true));
    scene.not_before[2] = Some(second(20));
    let expected = Decision { actions: Vec::new(), wake: Some(second(20)) };
    assert_eq!(scene.decide(), expected, "all wait for the backoff of the container that caused it");
    scene.now = second(20);
    assert_eq!(scene.actions(), [start(0, 1)], "init containers run again");
    let innocent = |scene: &Scene| -> Vec<usize> {
        let spec = scene.pod.spec.as_ref().unwrap();
        (0..4).filter(|position| is_restarted_by_other(spec, &scene.observed, *position)).collect()
    };
    assert_eq!(innocent(&scene), [0, 1, 3], "only the container that caused it has crashed");
    scene.now = second(21);
    scene.restart(0);
    assert_eq!((scene.actions(), is_restarting(&scene)), (vec![], Some(false)), "they start anew");
    scene.exit(0, 0);
    assert_eq!(scene.actions(), [start(1, 1)]);
    scene.restart(1);
    assert_eq!(scene.actions(), [start(2, 1), start(3, 1)]);
    scene.restart(2);
    assert_eq!(scene.actions(), [start(3, 1)]);
    assert_eq!(innocent(&scene), [3]);
    scene.restart(3);
    assert_eq!((scene.decide(), scene.phase()), (Decision::default(), Phase::Running));
    // Another exit code is decided by the restart policy.
    scene.exit(2, 1);
    assert_eq!((scene.actions(), scene.phase()), (vec![], Phase::Running));
    assert_eq!(innocent(&scene), [0; 0], "it has crashed by itself");
}

#[test]
fn all_containers_are_restarted_even_if_the_one_that_caused_it_crashes_before_the_others_can_start() {
    let second = |second: i64| Timestamp::from_second(second).unwrap();
    let rules =
        json!([{ "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [42] } }]);
    let rules: Vec<ContainerRestartRule> = serde_json::from_value(rules).unwrap();
    // A main container, which starts beside the other one, and a sidecar, which starts before it.
    for cause in [2, 1] {
        let mut scene = Scene::running("Never");
        let spec = scene.pod.spec.as_mut().unwrap();
        let container =
            if cause == 1 { &mut spec.init_containers.as_mut().unwrap()[1] } else { &mut spec.containers[0] };
        container.restart_policy = Some("Always".into());
        container.restart_policy_rules = Some(rules.clone());
        scene.now = second(10);
        scene.exit(cause, 42);
        (1..4).filter(|position| *position != cause).for_each(|position| scene.exit(position, 0));
        scene.now = second(20);
        assert_eq!(scene.actions(), [start(0, 1)]);
        scene.restart(0);
        scene.exit(0, 0);
        if cause == 2 {
            scene.restart(1);
        }
        // No other one can be started for now.
        scene.failed_until = vec![None, None, Some(second(900)), Some(second(900))];
        scene.failed_until[cause] = None;
        for crash in 0..3 {
            let attempt = scene.observed.containers[cause].as_ref().unwrap().attempt;
            assert_eq!(scene.actions(), [start(cause, attempt + 1)], "{cause} {crash}");
            scene.restart(cause);
            scene.now = second(30 + i64::from(crash));
            scene.exit(cause, 1);
            assert_eq!(scene.phase(), Phase::Running, "{cause} {crash}");
        }
        scene.restart(cause);
        scene.now = second(900);
        let others: Vec<usize> = (2..4).filter(|position| *position != cause).collect();
        let starts: Vec<Action> = others.iter().map(|position| start(*position, 1)).collect();
        assert_eq!(scene.actions(), starts, "{cause}");
        for position in others {
            scene.restart(position);
        }
        assert_eq!(scene.decide(), Decision::default(), "{cause}");
        // The run that caused it is kept no longer.
        scene.exit(cause, 1);
        scene.restart(cause);
        scene.restart(cause);
        assert!(!scene.observed.older.iter().any(|(_, run)| run.exit_code() == Some(42)), "{cause}");
    }
}
