//! Plans, from anywhere to anywhere.

use plumb_resize::aggregate::Role;
use plumb_resize::plan::{CgroupState, Step, check, check_prefixes, plan};
use plumb_resize::pod::{ContainerShape, PodResources, PodShape, RestartPolicy};
use plumb_resize::qos::QosClass;
use plumb_resize::resource::{Declared, PerResource, Requirements, Resource};
use proptest::collection::vec;
use proptest::prelude::*;

use super::{declared, per_resource, requirements};

/// A pod on its way from `old` to `target`, which has come as far as `start`.
#[derive(Clone, Debug)]
struct Journey {
    shape: PodShape,
    old: PodResources,
    target: PodResources,
    start: CgroupState,
    /// Whether any of the states along the way shares a limit of the pod.
    shared: PerResource<bool>,
}

fn containers() -> impl Strategy<Value = Vec<ContainerShape>> {
    let policy =
        prop_oneof![3 => Just(RestartPolicy::NotRequired), 1 => Just(RestartPolicy::RestartContainer)];
    let container = move |role: BoxedStrategy<Role>| {
        (role, per_resource(policy.clone())).prop_map(|(role, policy)| ContainerShape {
            name: String::new(),
            role,
            policy,
        })
    };
    let init = prop_oneof![Just(Role::Init), Just(Role::Sidecar)].boxed();
    (vec(container(init), 0..3), vec(container(Just(Role::Main).boxed()), 1..4))
        .prop_map(|(init, main)| init.into_iter().chain(main).collect())
}

fn shapes() -> impl Strategy<Value = PodShape> {
    (containers(), declared()).prop_map(|(containers, overhead)| PodShape {
        containers,
        overhead,
        qos: QosClass::Burstable,
    })
}

/// What containers have: mostly limits everywhere, for one without frees the whole pod.
fn sizes(count: usize) -> impl Strategy<Value = Vec<Requirements>> {
    let limited = (declared(), per_resource((1i64..500).prop_map(Some)))
        .prop_map(|(requests, limits)| Requirements { requests, limits });
    prop_oneof![3 => vec(limited, count), 1 => vec(requirements(), count)]
}

/// Resources for so many containers; none has a limit above one of the pod, for no such pod is let in.
fn pod_resources(count: usize) -> impl Strategy<Value = PodResources> {
    let level = prop_oneof![7 => Just(None), 1 => requirements().prop_map(Some)];
    (sizes(count), level).prop_map(|(containers, pod)| within_pod(containers, pod))
}

fn within_pod(mut containers: Vec<Requirements>, pod: Option<Requirements>) -> PodResources {
    let level = shared_limits(pod);
    for container in &mut containers {
        container.limits =
            Declared::of(|r| container.limits[r].map(|own| level[r].map_or(own, |level| own.min(level))));
    }
    PodResources { containers, pod }
}

/// Something else to want: anything, or what there is with limits exchanged, so that nothing changes net.
fn next_resources(old: &PodResources) -> impl Strategy<Value = PodResources> + use<> {
    let count = old.containers.len();
    let exchanged = (Just(old.clone()), vec(declared(), count), 0..count).prop_map(|(old, requests, by)| {
        let mut limits: Vec<_> = old.containers.iter().map(|container| container.limits).collect();
        limits.rotate_left(by);
        let size = |(requests, limits)| Requirements { requests, limits };
        within_pod(requests.into_iter().zip(limits).map(size).collect(), old.pod)
    });
    prop_oneof![pod_resources(count).boxed(), exchanged.boxed()]
}

fn shared_limits(pod: Option<Requirements>) -> Declared {
    let limits = pod.map_or(Declared::NONE, |pod| pod.limits);
    Declared::of(|r| limits[r].filter(|limit| *limit > 0))
}

fn shares(resources: &PodResources) -> PerResource<bool> {
    let limits = shared_limits(resources.pod);
    PerResource::of(|r| limits[r].is_some())
}

/// Which containers run: at some moment of the pod's start, or of its life after that.
fn running(shape: &PodShape, moment: usize, up: &[bool]) -> Vec<bool> {
    let roles: Vec<Role> = shape.containers.iter().map(|container| container.role).collect();
    let init: Vec<usize> = (0..roles.len()).filter(|i| roles[*i] == Role::Init).collect();
    (0..roles.len())
        .map(|i| match init.get(moment) {
            Some(turn) => i == *turn || (roles[i] == Role::Sidecar && i < *turn && up[i]),
            None => roles[i] != Role::Init && up[i],
        })
        .collect()
}

/// Any state that keeps the rule: a running set at `old`, a pod's cgroup that may be larger than it has to
/// be, and then a few steps towards something else.
fn journeys() -> impl Strategy<Value = Journey> {
    shapes()
        .prop_flat_map(|shape| {
            let count = shape.containers.len();
            (Just(shape), pod_resources(count))
        })
        .prop_flat_map(|(shape, old)| {
            let set = (0usize..8, vec(prop::bool::weighted(0.8), old.containers.len()));
            let slack = per_resource(prop_oneof![6 => Just(Some(0)), 1 => Just(Some(50)), 1 => Just(None)]);
            let (detour, target) = (next_resources(&old), next_resources(&old));
            let done = prop_oneof![Just(0), 0usize..8];
            (Just(shape), Just(old), detour, target, set, slack, done)
        })
        .prop_map(|(shape, old, detour, target, (moment, up), slack, done)| {
            // As if all were main containers, so that none is left out for having run already.
            let mut flat = shape.clone();
            flat.containers.iter_mut().for_each(|container| container.role = Role::Main);
            let mut start = CgroupState::running(&flat, &old);
            let set = running(&shape, moment, &up);
            start.containers.iter_mut().zip(set).filter(|(_, up)| !up).for_each(|(slot, _)| *slot = None);
            start.pod = shape.cgroup(&old);
            start.pod.limits =
                Declared::of(|r| start.pod.limits[r].and_then(|limit| Some(limit + slack[r]?)));
            for step in plan(&shape, &start, &detour).into_iter().take(done) {
                start.apply(&step);
            }
            let all = [&old, &detour, &target];
            let shared = PerResource::of(|r| all.iter().any(|resources| shares(resources)[r]));
            Journey { shape, old, target, start, shared }
        })
}

fn carry_out(start: &CgroupState, steps: &[Step]) -> CgroupState {
    let mut now = start.clone();
    for step in steps {
        now.apply(step);
    }
    now
}

fn is_pod_step(step: &Step) -> bool {
    matches!(step, Step::Pod(_))
}

proptest! {
    #[test]
    fn every_prefix_keeps_the_containers_within_their_pod(journey in journeys()) {
        let Journey { shape, target, start, shared, .. } = journey;
        let steps = plan(&shape, &start, &target);
        prop_assert_eq!(check_prefixes(&start, &steps, shared), Ok(()));
        // Once it is done, the rule is that of the target alone.
        prop_assert_eq!(check(&carry_out(&start, &steps), shares(&target)), Ok(()));
    }

    #[test]
    fn a_plan_that_is_carried_out_arrives(journey in journeys()) {
        let Journey { shape, target, start, .. } = journey;
        let reached = carry_out(&start, &plan(&shape, &start, &target));
        prop_assert_eq!(plan(&shape, &reached, &target), []);
        prop_assert_eq!(reached.pod, shape.cgroup(&target));
        prop_assert_eq!(reached.resources(&shape, &target), target, "the actual resources are the allocated ones");
        let up = |now: &CgroupState| now.containers.iter().map(Option::is_some).collect::<Vec<_>>();
        prop_assert_eq!(up(&reached), up(&start), "every stopped container was started");
    }

    #[test]
    fn an_interrupted_plan_can_be_continued_and_reverted(journey in journeys(), broke_off in 0usize..12) {
        let Journey { shape, old, target, start, shared } = journey;
        let steps = plan(&shape, &start, &target);
        let now = carry_out(&start, &steps[..broke_off.min(steps.len())]);
        for goal in [&target, &old] {
            let rest = plan(&shape, &now, goal);
            prop_assert_eq!(check_prefixes(&now, &rest, shared), Ok(()));
            let reached = carry_out(&now, &rest);
            prop_assert_eq!(plan(&shape, &reached, goal), []);
            prop_assert_eq!(&reached.resources(&shape, goal), goal);
        }
    }

    #[test]
    fn a_step_taken_twice_is_a_step_taken_once(journey in journeys()) {
        let Journey { shape, target, start, .. } = journey;
        let mut now = start.clone();
        for step in plan(&shape, &start, &target) {
            now.apply(&step);
            let once = now.clone();
            now.apply(&step);
            prop_assert_eq!(&now, &once);
        }
    }

    #[test]
    fn the_pod_is_raised_first_lowered_last_and_else_left_alone(journey in journeys()) {
        let Journey { shape, target, start, .. } = journey;
        let goal = shape.cgroup(&target);
        let bound = |limit: Option<i64>| limit.unwrap_or(i64::MAX);
        let (mut rises, mut falls) = (goal.cpu_request > start.pod.cpu_request, goal.cpu_request < start.pod.cpu_request);
        for r in Resource::ALL {
            rises |= bound(goal.limits[r]) > bound(start.pod.limits[r]);
            falls |= bound(goal.limits[r]) < bound(start.pod.limits[r]);
        }
        let steps = plan(&shape, &start, &target);
        let touched = steps.iter().filter(|step| is_pod_step(step)).count();
        prop_assert_eq!(touched, usize::from(rises) + usize::from(falls));
        prop_assert!(!rises || is_pod_step(&steps[0]));
        prop_assert!(!falls || steps.last() == Some(&Step::Pod(goal)));
    }

    #[test]
    fn exactly_the_containers_whose_policy_requires_it_are_restarted(journey in journeys()) {
        let Journey { shape, target, start, .. } = journey;
        let steps = plan(&shape, &start, &target);
        let reached = carry_out(&start, &steps);
        for (i, container) in shape.containers.iter().enumerate() {
            let changes = |r: Resource| {
                start.containers[i].zip(reached.containers[i]).is_some_and(|(from, to)| from.of(r) != to.of(r))
            };
            let wants = Resource::ALL
                .into_iter()
                .any(|r| container.policy[r] == RestartPolicy::RestartContainer && changes(r));
            let stopped = steps.contains(&Step::Stop { container: i });
            let updated = steps.iter().any(|step| matches!(step, Step::Update { container, .. } if *container == i));
            prop_assert_eq!(stopped, wants);
            prop_assert!(!(stopped && updated), "one way or the other");
        }
    }
}
