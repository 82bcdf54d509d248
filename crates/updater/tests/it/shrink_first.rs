//! Pods that hold more than is recommended shrink, so that deferred resizes of other pods on their node fit.

use plumb_controller_runtime::ObjectRef;
use plumb_resize::qos::QosClass;
use plumb_resize::queue::DeferredResize;
use plumb_resize::resource::{Amounts, PerResource};
use plumb_updater::decide::{Decided, Plan, Policy, Settings, Subject, Surroundings, plan, triage};
use plumb_updater::in_place::{InPlace, Recreating};
use plumb_updater::mode::Actuation;
use plumb_updater::obstacle::Obstacle;
use plumb_updater::shrink_first::{Growth, NodeDecision, NodePlan, NodeState, Shrinkable, decide, lowering};
use serde_json::{Value, json};

use super::make::{amounts, now, pod, recommend, restarts, state, subject};
use super::world::{Answer, MOMENT, World, dialects};

fn growth(pod: &str, priority: i32, amount: (i64, i64)) -> Growth {
    let turn =
        DeferredResize { pod: pod.to_owned(), grows: true, priority, qos: QosClass::Burstable, since: None };
    Growth { turn, amount: Amounts::new(amount.0, amount.1) }
}

fn shrinkable(name: &str, frees: (i64, i64)) -> Shrinkable {
    Shrinkable { pod: ObjectRef::namespaced("default", name), frees: Amounts::new(frees.0, frees.1) }
}

fn names(plan: &NodePlan) -> Vec<&str> {
    plan.shrinks.iter().map(|pod| pod.name.as_str()).collect()
}

/// A full node of ten of each.
fn full(deferred: Vec<Growth>, shrinkable: Vec<Shrinkable>) -> NodeState {
    let all = Amounts::new(10, 10);
    NodeState { allocatable: all, held: all, freeing: Amounts::ZERO, deferred, shrinkable }
}

#[test]
fn as_few_pods_shrink_as_suffice() {
    let could = || vec![shrinkable("a", (1, 0)), shrinkable("b", (2, 0)), shrinkable("c", (3, 0))];
    let plan = decide(&full(vec![growth("x", 0, (3, 0))], could()));
    assert_eq!(names(&plan), ["c"]);
    let plan = decide(&full(vec![growth("x", 0, (5, 0))], could()));
    assert_eq!(names(&plan), ["b", "c"]);
    let freeing = NodeState { freeing: Amounts::new(5, 0), ..full(vec![growth("x", 0, (5, 0))], could()) };
    assert_eq!(names(&decide(&freeing)), [""; 0], "what is in progress suffices");
}

#[test]
fn a_growth_that_does_not_fit_does_not_block_one_that_does() {
    let deferred = vec![growth("large", 9, (9, 0)), growth("small", 0, (1, 0))];
    let plan = decide(&full(deferred, vec![shrinkable("a", (1, 0))]));
    assert_eq!(names(&plan), ["a"]);
    assert_eq!(plan.unhelped, ["large".to_owned()].into());
}

#[test]
fn no_pod_shrinks_for_a_growth_that_would_not_fit_even_then() {
    let plan = decide(&full(vec![growth("x", 0, (3, 0))], vec![shrinkable("a", (2, 5))]));
    assert_eq!((names(&plan).len(), plan.unhelped), (0, ["x".to_owned()].into()));
}

/// Which deferred resizes the node allocates, in the order in which it retries them, once these pods have shrunk.
fn allocated(node: &NodeState, shrunk: impl Fn(&ObjectRef) -> bool) -> Vec<bool> {
    let freed = node.shrinkable.iter().filter(|one| shrunk(&one.pod));
    let freed = freed.fold(node.freeing, |sum, one| sum.plus(one.frees));
    let mut held = node.held;
    let mut order: Vec<&Growth> = node.deferred.iter().collect();
    order.sort_by_key(|growth| &growth.turn);
    let fits = |growth: &Growth| {
        let total = held.plus(growth.amount);
        let is_allocated =
            growth.amount.all(|r, amount| *amount == 0 || total[r] - freed[r] <= node.allocatable[r]);
        held = if is_allocated { total } else { held };
        is_allocated
    };
    order.into_iter().map(fits).collect()
}

#[test]
fn of_all_sets_of_shrinks_none_lets_more_important_growths_fit_and_none_of_those_that_do_is_smaller() {
    let each = |most: i64| (0..=most).flat_map(move |cpu| (0..=most).map(move |memory| (cpu, memory)));
    let mut cases = 0;
    // Of a node with ten of each: more than all, all, and less is held.
    for held in [(12, 9), (10, 10), (9, 11)] {
        for (first, second) in each(2).flat_map(|first| each(2).map(move |second| (first, second))) {
            for (a, b) in each(2).flat_map(|a| each(2).map(move |b| (a, b))) {
                for c in [(0, 1), (1, 0), (3, 1)] {
                    let node = NodeState {
                        allocatable: Amounts::new(10, 10),
                        held: Amounts::new(held.0, held.1),
                        freeing: Amounts::ZERO,
                        deferred: vec![growth("second", 0, second), growth("first", 1, first)],
                        shrinkable: vec![shrinkable("a", a), shrinkable("b", b), shrinkable("c", c)],
                    };
                    let plan = decide(&node);
                    let found = allocated(&node, |pod| plan.shrinks.contains(pod));
                    let sets = (0..8_usize).map(|set| {
                        let is_in = |pod: &ObjectRef| {
                            let index = node.shrinkable.iter().position(|one| one.pod == *pod).unwrap();
                            (set >> index) & 1 == 1
                        };
                        (allocated(&node, is_in), std::cmp::Reverse(set.count_ones()))
                    });
                    let best = sets.max().unwrap();
                    let count = u32::try_from(plan.shrinks.len()).unwrap();
                    assert_eq!((found.clone(), std::cmp::Reverse(count)), best, "{node:?}");
                    let unhelped = [("first", found[0]), ("second", found[1])];
                    let unhelped =
                        unhelped.into_iter().filter(|(_, fits)| !fits).map(|(pod, _)| pod.to_owned());
                    assert_eq!(plan.unhelped, unhelped.collect(), "{node:?}");
                    cases += 1;
                }
            }
        }
    }
    assert_eq!(cases, 3 * 81 * 81 * 3);
}

#[test]
fn a_pod_shrinks_by_what_is_lower_and_needs_no_restart() {
    let both = PerResource::new(true, true);
    let lowered = |pod: &Value, target: &str, may_lower| {
        lowering(&state(pod), &recommend(target), may_lower).containers[0].target
    };
    let web = pod("web", "2/2Gi");
    assert_eq!(lowered(&web, "1/1Gi", both), amounts("1/1Gi"));
    assert_eq!(lowered(&web, "3/1Gi", both), amounts("-/1Gi"));
    assert_eq!(lowered(&web, "2/3Gi", both), amounts("-/-"));
    assert_eq!(lowered(&web, "1/1Gi", PerResource::new(true, false)), amounts("1/-"));
    assert_eq!(lowered(&restarts(web.clone(), "memory"), "1/1Gi", both), amounts("1/-"));
    let mut killed = web;
    killed["status"]["containerStatuses"][0]["lastState"]["terminated"] = json!({
        "exitCode": 137, "reason": "OOMKilled", "startedAt": "2026-01-01T20:00:00Z", "finishedAt": "2026-01-01T21:00:00Z",
    });
    assert_eq!(lowered(&killed, "1/1Gi", both), amounts("1/-"));
}

#[test]
fn a_pod_that_shrinks_for_another_one_is_resized_first_and_never_evicted() {
    let web = subject(&pod("web", "1/1Gi"), "950m/1Gi");
    let shrinks = Subject { node_decision: NodeDecision::ShrinkFirst, ..web.clone() };
    let grows = subject(&pod("grows", "500m/1Gi"), "1/1Gi");
    let planned = |actuation: Actuation, subjects: &[Subject]| {
        let policy =
            Policy { actuation, min_replicas: None, requirements: Vec::new(), evict_after_oom: None };
        let triage = triage(subjects, &policy, &Settings::default().priority, now());
        // For which a pod would be evicted in the mode InPlaceOrRecreate.
        let obstacle =
            |_: &_, _: &_| Some(Obstacle::QosClass { from: QosClass::Guaranteed, to: QosClass::Burstable });
        let surroundings = Surroundings {
            configured: &[("set".to_owned(), Some(2))].into(),
            siblings: &[],
            obstacle: &obstacle,
            admission_is_alive: true,
            eviction_pause: None,
            now: now(),
        };
        let (plan, _) = plan(subjects, &triage, &policy, &Settings::default(), &surroundings);
        (triage.due, plan)
    };
    let resize = InPlace::Resize { costs_budget: false };
    let first = Decided { position: 1, decision: resize.clone() };
    let (due, plan) = planned(Actuation::InPlace, &[grows.clone(), shrinks.clone()]);
    assert_eq!(due, [1, 0]);
    assert_eq!(plan, Plan::InPlace(vec![first, Decided { position: 0, decision: resize.clone() }]));
    let (_, plan) = planned(Actuation::InPlaceOrRecreate, &[grows, shrinks]);
    let Plan::Recreating(decided) = plan else { panic!("{plan:?}") };
    assert_eq!(decided[0], Decided { position: 1, decision: Recreating::InPlace(resize) });
    assert!(matches!(decided[1].decision, Recreating::Evict(_)), "{decided:?}");
    assert_eq!(planned(Actuation::InPlace, &[web]).0, [0; 0], "it is within its bounds");
}

/// A pod that holds a little more than its target, and one whose growth to the target does not fit beside it. The node has four
/// CPUs.
async fn one_grows(mut world: World, beside: &str) -> World {
    world.pod("web-0", "2100m/2Gi").await;
    world.pod("web-1", "1500m/2Gi").await;
    // A pod of no VPA counts on the node, too.
    let no_controller = |pod: &mut Value| pod["metadata"]["ownerReferences"] = json!([]);
    world.pod_with("beside", beside, no_controller).await;
    world.recommend("2/2Gi").await;
    world.start_updater(super::world::options());
    world.pass(MOMENT).await;
    assert_eq!(world.requests("web-1").await, amounts("2/2Gi"));
    assert_eq!(world.requests("web-0").await, amounts("2100m/2Gi"), "it is within its bounds");
    world.answer("web-1", Answer::Deferred).await;
    world.pass(MOMENT).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_pod_within_its_bounds_shrinks_to_its_target_if_that_makes_a_deferred_resize_fit() {
    for (rules, mode) in dialects().into_iter().zip(["InPlace", "InPlaceOrRecreate"]) {
        let world = World::new(rules).await;
        world.vpa(mode, json!({})).await;
        let world = one_grows(world, "0/1Gi").await;
        assert_eq!(world.requests("web-0").await, amounts("2/2Gi"), "{mode}");
        assert_eq!((world.count("/resize"), world.count("/eviction")), (2, 0), "{mode}");
        assert_eq!(world.events("web-0").await["ShrunkForDeferredResize"].len(), 1);
        // The node applies both, and nothing is left to be done.
        for pod in ["web-0", "web-1"] {
            world.answer(pod, Answer::Applied).await;
        }
        world.pass(MOMENT).await;
        assert_eq!((world.count("/resize"), world.count("/eviction")), (2, 0), "{mode}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_pod_shrinks_if_the_deferred_resize_would_not_fit_even_then() {
    for rules in dialects() {
        let world = World::new(rules).await;
        world.vpa("InPlace", json!({})).await;
        let world = one_grows(world, "100m/1Gi").await;
        assert_eq!(world.requests("web-0").await, amounts("2100m/2Gi"));
        assert_eq!(world.count("/resize"), 1);
        let waits = &world.events("web-1").await["VPAUpdateWaiting"];
        assert!(waits[0].0.contains("all other pods of the node"), "{waits:?}");
    }
}
