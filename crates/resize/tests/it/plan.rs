//! Concrete plans, step by step.

use k8s_openapi::api::core::v1::{Container, Pod};
use plumb_resize::plan::{
    CgroupState, Step, Violation, check, check_prefixes, inherited, plan, start_is_safe, start_with,
};
use plumb_resize::pod::{PodCgroup, PodResources, PodShape};
use plumb_resize::resource::{Declared, PerResource, Resource};

use super::pods::{ContainerExt, PodExt, pod};
use super::sizes::{self, MIB, PodSizes, containers, resources, show_step, size};

const SUMMED: PerResource<bool> = PerResource::new(false, false);
const SHARED: PerResource<bool> = PerResource::new(true, true);

fn shape(pod: &Pod) -> PodShape {
    PodShape::of(pod).unwrap()
}

fn desired(pod: &Pod) -> PodResources {
    PodResources::desired(pod.spec_of()).unwrap()
}

/// The plan from one pod to another as lines, once it is known to keep the rule and to arrive.
#[track_caller]
fn steps(from: &Pod, to: &Pod, declared_by_pod: PerResource<bool>) -> Vec<String> {
    let now = CgroupState::running(&shape(from), &desired(from));
    steps_from(&now, to, declared_by_pod)
}

#[track_caller]
fn steps_from(now: &CgroupState, to: &Pod, declared_by_pod: PerResource<bool>) -> Vec<String> {
    let steps = plan(&shape(to), now, &desired(to));
    assert_eq!(check_prefixes(now, &steps, declared_by_pod), Ok(()), "{steps:?}");
    let mut reached = now.clone();
    for step in &steps {
        reached.apply(step);
    }
    assert_eq!(plan(&shape(to), &reached, &desired(to)), [], "planning again finds nothing to do");
    assert_eq!(reached.pod, shape(to).cgroup(&desired(to)));
    steps.iter().map(show_step).collect()
}

#[test]
fn containers_that_only_change_in_place() {
    type Case = (&'static str, &'static str, &'static str, &'static [&'static str]);
    let table: &[Case] = &[
        ("nothing changes", "100 64 | 100 64", "100 64 | 100 64", &[]),
        (
            "all grow: the pod first",
            "100 64 | 100 64 | 100 64",
            "200 64 | 300 64 | 100 96",
            &["pod 600 224 weight 600", "set c1 200 64", "set c2 300 64", "set c3 100 96"],
        ),
        (
            "all shrink: the pod last",
            "200 64 | 300 64 | 100 96",
            "100 64 | 100 64 | 100 64",
            &["set c1 100 64", "set c2 100 64", "set c3 100 64", "pod 300 192 weight 300"],
        ),
        (
            "no net change: the pod is unchanged, decreases come first",
            "100 64 | 200 64 | 300 64",
            "300 64 | 200 64 | 100 64",
            &["set c3 100 64", "set c1 300 64"],
        ),
        (
            "the resources go different ways: the pod is raised for one and lowered for the other",
            "100 96 | 100 96",
            "200 64 | 200 64",
            &[
                "pod 400 192 weight 400",
                "set c1 100 64",
                "set c2 100 64",
                "set c1 200 64",
                "set c2 200 64",
                "pod 400 128 weight 400",
            ],
        ),
        (
            "within one container a limit goes down before the other goes up",
            "100 96",
            "200 64",
            &["pod 200 96 weight 200", "set c1 100 64", "set c1 200 64", "pod 200 64 weight 200"],
        ),
        (
            "a request alone changes the weight of the pod, not its limits",
            "20/30 35/45 | 20/30 35/45",
            "25/30 35/45 | 10/30 35/45",
            &["set c2 10/30 35/45", "set c1 25/30 35/45", "pod 60 90 weight 35"],
        ),
        (
            "a memory request is in no cgroup of the pod",
            "20/30 35/45",
            "20/30 40/45",
            &["set c1 20/30 40/45"],
        ),
        (
            "the way is judged by the limit, also against the request",
            "20/30 35/45",
            "25/28 35/45",
            &["pod 30 45 weight 25", "set c1 25/28 35/45", "pod 28 45 weight 25"],
        ),
        (
            "so a limit that goes up waits for one that goes down, whatever the request does",
            "100/200 64 | 100/300 64",
            "50/300 64 | 120/200 64",
            &["set c2 120/200 64", "set c1 50/300 64", "pod 500 128 weight 170"],
        ),
        (
            "the first limit of the only container without one limits the pod",
            "20/- 35/45 | 20/30 35/45",
            "20/40 35/45 | 20/30 35/45",
            &["set c1 20/40 35/45", "pod 70 90 weight 40"],
        ),
        (
            "a limit is added while another container still has none",
            "20/- 35/45 | 20/- 35/45",
            "20/40 35/45 | 20/- 35/45",
            &["set c1 20/40 35/45"],
        ),
        (
            "a limit that goes (on the way back) frees the pod first",
            "20/40 35/45",
            "20/- 35/45",
            &["pod - 45 weight 20", "set c1 20/- 35/45"],
        ),
        (
            "a limit of zero is none",
            "20/0 35/45 | 20/30 35/45",
            "20/0 35/50 | 20/40 35/45",
            &["pod - 95 weight 40", "set c1 20/0 35/50", "set c2 20/40 35/45"],
        ),
    ];
    for (name, from, to, expected) in table {
        assert_eq!(steps(&pod(containers(from)), &pod(containers(to)), SUMMED), *expected, "{name}");
    }
}

/// Pods whose containers have a policy each, `|` between them: `-`, `cpu`, `memory` or `cpu+memory` restart.
#[track_caller]
fn with_policies(sizes: &str, policies: &str) -> Pod {
    let restarts = policies.split('|').map(str::trim);
    pod(containers(sizes).into_iter().zip(restarts).map(|(container, restarts)| {
        let entries = restarts.split('+').filter(|resource| *resource != "-");
        let entries: Vec<_> = entries.map(|resource| format!("{resource}=RestartContainer")).collect();
        container.policy(&entries.join(" "))
    }))
}

#[test]
fn containers_that_want_to_be_restarted() {
    type Case = (&'static str, &'static str, &'static str, &'static str, &'static [&'static str]);
    let table: &[Case] = &[
        (
            "it is stopped and started between decreases and increases",
            "cpu | -",
            "100 64 | 200 64",
            "200 64 | 100 64",
            &["set c2 100 64", "stop c1", "start c1 200 64"],
        ),
        (
            "one that restarts and gives is started before others take",
            "cpu | -",
            "200 64 | 100 64",
            "100 64 | 200 64",
            &["stop c1", "start c1 100 64", "set c2 200 64"],
        ),
        (
            "what changes decides, not what is declared",
            "memory | memory",
            "100 64 | 100 64",
            "200 64 | 100 96",
            &["pod 300 160 weight 300", "stop c2", "start c2 100 96", "set c1 200 64"],
        ),
        (
            "a restart takes both resources along",
            "memory",
            "100 64",
            "50 96",
            &["pod 100 96 weight 100", "stop c1", "start c1 50 96", "pod 50 96 weight 50"],
        ),
        (
            "two that exchange cpu for memory are both stopped before either starts",
            "cpu+memory | cpu+memory",
            "100 96 | 200 64",
            "200 64 | 100 96",
            &["stop c1", "stop c2", "start c1 200 64", "start c2 100 96"],
        ),
        (
            "a restart for a request alone",
            "cpu",
            "20/30 35/45",
            "25/30 35/45",
            &["pod 30 45 weight 25", "stop c1", "start c1 25/30 35/45"],
        ),
    ];
    for (name, policies, from, to, expected) in table {
        let (from, to) = (with_policies(from, policies), with_policies(to, policies));
        assert_eq!(steps(&from, &to, SUMMED), *expected, "{name}");
    }
}

#[test]
fn a_container_that_is_not_running_has_no_steps_but_the_pod_grows_for_it() {
    let (from, to) = (pod(containers("100 64 | 100 64")), pod(containers("200 64 | 50 64")));
    let mut now = CgroupState::running(&shape(&from), &desired(&from));
    now.apply(&Step::Stop { container: 0 });
    assert_eq!(steps_from(&now, &to, SUMMED), ["pod 250 128 weight 250", "set c2 50 64"]);
    now.apply(&Step::Stop { container: 1 });
    assert_eq!(steps_from(&now, &to, SUMMED), ["pod 250 128 weight 250"]);
}

#[test]
fn an_interrupted_restart_is_continued() {
    let (from, to) =
        (with_policies("100 64 | 200 64", "cpu | -"), with_policies("50 64 | 200 64", "cpu | -"));
    let mut now = CgroupState::running(&shape(&from), &desired(&from));
    now.apply(&plan(&shape(&to), &now, &desired(&to))[0]);
    assert_eq!(now.containers[0], None, "stopped, and not started");
    assert_eq!(
        steps_from(&now, &to, SUMMED),
        ["pod 250 128 weight 250"],
        "it starts with what it is allocated"
    );
    assert_eq!(steps_from(&now, &from, SUMMED), [""; 0], "and so it does on the way back");
}

/// A pod of the containers `c1` and `c2`, of which the first is an init container made by `first`.
#[track_caller]
fn with_first(sizes: &str, first: fn(Container) -> Container) -> Pod {
    let mut all = containers(sizes);
    let main = all.split_off(1);
    pod(main).init(all.into_iter().map(first))
}

#[test]
fn sidecars_are_containers_like_any_other() {
    let (from, to) = ("50 32 | 100 64", "100 64 | 50 32");
    let steps = steps(&with_first(from, Container::sidecar), &with_first(to, Container::sidecar), SUMMED);
    assert_eq!(steps, ["set c2 50 32", "set c1 100 64"]);
}

#[test]
fn a_pod_that_runs_is_past_its_plain_init_containers() {
    let (from, to) = (with_first("500 64 | 100 64", |c| c), with_first("500 64 | 200 64", |c| c));
    let now = CgroupState::running(&shape(&from), &desired(&from));
    assert_eq!(now.containers, [None, Some(size("100 64"))]);
    assert_eq!(now.pod, PodCgroup { cpu_request: 500, limits: Declared::both(500, 64 * MIB) });
    assert_eq!(steps(&from, &to, SUMMED), ["set c2 200 64"], "the init container's moment was larger");
}

#[test]
fn an_init_container_that_runs_can_grow_into_the_pod() {
    let (from, to) = (with_first("100 64 | 300 64", |c| c), with_first("400 64 | 300 64", |c| c));
    let mut now = CgroupState::running(&shape(&from), &desired(&from));
    now.containers = vec![Some(size("100 64")), None];
    assert_eq!(steps_from(&now, &to, SUMMED), ["pod 400 64 weight 400", "set c1 400 64"]);
}

fn with_level(sizes: &str, level: &str) -> Pod {
    pod(containers(sizes)).level(level)
}

#[test]
fn a_limit_of_the_pod_is_inherited_by_containers_without_one() {
    type Case = (&'static str, Pod, Pod, &'static [&'static str]);
    let table: Vec<Case> = vec![
        (
            "raised: the pod first, then containers that inherit it",
            with_level("100/200 64/64 | 100/- 64/-", "300/500 128/256"),
            with_level("100/200 64/64 | 100/- 64/-", "300/600 128/256"),
            &["pod 600 256 weight 300", "set c2 100/600 64/256"],
        ),
        (
            "lowered: containers that inherit it first, then the pod",
            with_level("100/200 64/64 | 100/- 64/-", "300/600 128/256"),
            with_level("100/200 64/64 | 100/- 64/-", "300/500 128/256"),
            &["set c2 100/500 64/256", "pod 500 256 weight 300"],
        ),
        (
            "lowered together with a container's own",
            with_level("100/400 64/64 | 100/- 64/-", "300/600 128/256"),
            with_level("100/100 64/64 | 100/- 64/-", "300/200 128/256"),
            &["set c1 100 64", "set c2 100/200 64/256", "pod 200 256 weight 300"],
        ),
        (
            "added: containers that were unlimited are limited before their pod is",
            pod(containers("100/- 64/-")),
            with_level("100/- 64/-", "100/500 64/256"),
            &["set c1 100/500 64/256", "pod 500 256 weight 100"],
        ),
        (
            "added below what the containers' limits add up to: they share it from then on",
            pod(containers("100/200 64/64 | 100/200 64/64")),
            with_level("100/200 64/64 | 100/250 64/64", "200/250 128/128"),
            &["set c2 100/250 64", "pod 250 128 weight 200"],
        ),
        (
            "a container gets a limit of its own below the one it inherited",
            with_level("100/- 64/64", "100/500 64/256"),
            with_level("100/200 64/64", "100/500 64/256"),
            &["set c1 100/200 64"],
        ),
        (
            "a container's limit of zero is none, so it inherits",
            with_level("100/0 64/64", "100/500 64/256"),
            with_level("100/0 64/64", "100/400 64/256"),
            &["set c1 100/400 64", "pod 400 256 weight 100"],
        ),
        (
            "a pod's limit of zero is none, so no container inherits it",
            with_level("100/- 64/64", "100/0 64/256"),
            with_level("150/- 64/64", "150/0 64/256"),
            &["pod - 256 weight 150", "set c1 150/- 64"],
        ),
        (
            "requests of the pod alone move its weight",
            with_level("100/200 64/64", "100/500 64/256"),
            with_level("100/200 64/64", "300/500 64/256"),
            &["pod 500 256 weight 300"],
        ),
    ];
    for (name, from, to, expected) in table {
        assert_eq!(steps(&from, &to, SHARED), expected, "{name}");
    }
}

#[test]
fn an_inherited_limit_restarts_a_container_that_restarts_for_it() {
    let pod = |limit: &str| {
        let restarts = containers("100/- 64/-").into_iter().map(|c| c.policy("memory=RestartContainer"));
        pod(restarts).level(limit)
    };
    let steps = steps(&pod("100/500 64/256"), &pod("100/500 64/512"), SHARED);
    assert_eq!(steps, ["pod 500 512 weight 100", "stop c1", "start c1 100/500 64/512"]);
}

#[test]
fn a_container_starts_with_the_limits_it_inherits() {
    let pod = with_level("100/200 64/64 | 100/- 64/-", "300/500 128/256");
    let (shape, desired) = (shape(&pod), desired(&pod));
    let mut now = CgroupState::running(&shape, &desired);
    let to: Vec<_> = inherited(&desired).collect();
    assert_eq!(now.containers[1], Some(to[1]));
    now.apply(&Step::Stop { container: 1 });
    assert!(start_is_safe(&now, 1, to[1], SHARED));
    assert!(!start_is_safe(&now, 1, desired.containers[1], SHARED), "unlimited in a limited pod");
    assert!(!start_is_safe(&now, 1, size("100/501 64"), SHARED));
}

#[test]
fn a_container_that_crashed_starts_as_soon_as_it_fits() {
    let (from, to) = (pod(containers("100 64 | 300 64")), pod(containers("300 64 | 100 64")));
    let mut now = CgroupState::running(&shape(&from), &desired(&from));
    now.apply(&Step::Stop { container: 0 });
    let start = size("300 64");
    assert!(!start_is_safe(&now, 0, start, SUMMED), "the other has not given up its part");
    for step in plan(&shape(&to), &now, &desired(&to)) {
        now.apply(&step);
    }
    assert!(start_is_safe(&now, 0, start, SUMMED));
}

#[test]
fn a_container_that_crashed_beside_one_that_gives_nothing_up_starts_with_what_it_had() {
    // (from, to, what the crashed c1 starts with if what it had is known, and if it is not); c2 stays as it is.
    let table = [
        ("all of it is with the other", "100 64 | 100 192", "100 192 | 100 64", "100 64", "100 64"),
        ("the pod grows as well", "100 64 | 100 192", "100 256 | 100 64", "100 64", "100 128"),
        ("so is cpu", "100 64 | 200 192", "150 192 | 150 64", "100 64", "100 64"),
        ("it is to shrink", "100 192 | 100 192", "100 64 | 100 64", "100 64", "100 64"),
        ("nothing changes for it", "100 64 | 100 192", "100 64 | 100 64", "100 64", "100 64"),
    ];
    for (name, from, to, known, unknown) in table {
        let (from, to) = (pod(containers(from)), pod(containers(to)));
        let mut now = CgroupState::running(&shape(&from), &desired(&from));
        let before = now.containers[0];
        now.apply(&Step::Stop { container: 0 });
        if let Some(raise @ Step::Pod(_)) = plan(&shape(&to), &now, &desired(&to)).first() {
            now.apply(raise);
        }
        let allocated = inherited(&desired(&to)).next().unwrap();
        for (before, expected) in [(before, known), (None, unknown)] {
            let start = start_with(&now, 0, allocated, before, SUMMED).unwrap();
            assert_eq!(sizes::show(start), expected, "{name}");
            assert!(start_is_safe(&now, 0, start, SUMMED), "{name}");
        }
    }
}

#[test]
fn a_container_does_not_start_where_the_others_hold_everything() {
    let from = pod(containers("100 64 | 100 64"));
    let mut now = CgroupState::running(&shape(&from), &desired(&from));
    now.apply(&Step::Stop { container: 0 });
    now.apply(&Step::Update { container: 1, to: size("100 128") });
    assert_eq!(start_with(&now, 0, size("100 64"), Some(size("100 64")), SUMMED), None);
    // Where the pod declares the limit, its containers share it.
    assert_eq!(start_with(&now, 0, size("100 64"), None, SHARED), Some(size("100 64")));
    assert_eq!(start_with(&now, 0, size("100 256"), None, SHARED), Some(size("100 128")));
}

#[test]
fn overhead_is_the_pods_alone() {
    let grown = |size: &str| pod(containers(size)).overhead("cpu=50m memory=8Mi");
    assert_eq!(steps(&grown("100 64"), &grown("200 64"), SUMMED), ["pod 250 72 weight 250", "set c1 200 64"]);
}

#[test]
fn steps_about_containers_that_do_not_exist_change_nothing() {
    let pod = pod(containers("100 64"));
    let mut now = CgroupState::running(&shape(&pod), &desired(&pod));
    let before = now.clone();
    now.apply(&Step::Stop { container: 7 });
    now.apply(&Step::Update { container: 7, to: size("1 1") });
    assert_eq!(now, before);
}

#[test]
fn the_checker_finds_the_step_that_breaks_the_rule() {
    let pod = pod(containers("100 64 | 100 64"));
    let start = CgroupState::running(&shape(&pod), &desired(&pod));
    let steps =
        [Step::Update { container: 0, to: size("50 64") }, Step::Update { container: 1, to: size("180 64") }];
    let violation = check_prefixes(&start, &steps, SUMMED).unwrap_err();
    assert_eq!(violation, Violation { steps: 2, resource: Resource::Cpu, containers: 230, pod: 200 });
    assert_eq!(
        violation.to_string(),
        "after 2 steps the containers may use 230 of cpu, more than the pod's 200"
    );
    assert_eq!(check_prefixes(&start, &steps, SHARED), Ok(()), "one alone is within the pod");
    let alone = [Step::Update { container: 1, to: size("100/- 64") }];
    assert_eq!(
        check_prefixes(&start, &alone, SHARED).unwrap_err().steps,
        1,
        "unlimited is more than any limit"
    );
}

#[test]
fn a_pod_that_does_not_keep_the_rule_to_begin_with_is_found_at_once() {
    let shape = shape(&pod(containers("100 64")));
    let start =
        CgroupState { containers: vec![Some(size("300 64"))], pod: shape.cgroup(&resources("200 64")) };
    assert_eq!(check(&start, SUMMED).unwrap_err().steps, 0);
    assert_eq!(sizes::show(start.containers[0].unwrap()), "300 64");
}
