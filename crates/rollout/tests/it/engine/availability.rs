use jiff::SignedDuration;
use plumb_rollout::api::{OnFailure, Share};
use plumb_rollout::engine::{Action, Phase, PodPolicy, Settings};

use super::world::{Fate, World};

fn at_once(count: u32) -> Settings {
    Settings { max_concurrent: Share::Count(count), ..Settings::default() }
}

/// How many pods have these resources.
fn sized(world: &World, size: &str) -> usize {
    world.sizes().values().filter(|one| *one == size).count()
}

fn all(world: &mut World, fate: Fate) {
    for name in world.pods.keys().cloned().collect::<Vec<_>>() {
        world.fates.insert(name, fate);
    }
}

fn nodes_act(world: &mut World) {
    for name in world.pods.keys().cloned().collect::<Vec<_>>() {
        world.node_acts(&name);
    }
}

#[test]
fn a_resize_with_a_restart_that_is_overdue_counts_against_max_unavailable_until_it_is_applied() {
    for (fate, max_unavailable) in [(Fate::Defers, 1), (Fate::Defers, 3), (Fate::Fails, 2)] {
        let mut world = World::new(10, 10, at_once(10), true);
        world.max_unavailable = max_unavailable;
        all(&mut world, fate);
        world.edit(200);
        let decision = world.settle();
        assert_eq!(decision.status.phase, Phase::Held, "{decision:?}");
        assert_eq!(sized(&world, "200m"), max_unavailable, "{fate:?}");
        assert_eq!(decision.status.stuck.len(), max_unavailable);
        let message = decision.status.message;
        let start = format!("nodes may still apply {max_unavailable} resizes, maxUnavailable is");
        assert!(message.starts_with(&start), "{message}");
        // A job ends, and all nodes have capacity.
        world.fates.clear();
        nodes_act(&mut world);
        let restarting = world.index.iter().filter(|(_, view)| !view.available).count();
        assert_eq!(restarting, max_unavailable);
        assert_eq!(world.settle().status.phase, Phase::Complete);
    }
}

#[test]
fn a_superseded_resize_with_a_restart_counts_until_its_node_has_another_one() {
    let mut world = World::new(3, 3, at_once(3), true);
    world.fates.insert("web-000".to_owned(), Fate::Defers);
    world.edit(200);
    assert_eq!(world.settle().status.phase, Phase::Held);
    // A new template, and the writes for this pod fail.
    world.edit(300);
    world.backing_off.insert("web-000".to_owned());
    let decision = world.reconcile(usize::MAX);
    assert!(decision.actions.is_empty(), "{decision:?}");
    world.backing_off.clear();
    world.fates.clear();
    assert_eq!(world.settle().status.phase, Phase::Complete);
}

#[test]
fn a_resize_with_a_restart_that_is_overdue_is_rolled_back_or_evicted_in_its_own_place() {
    for on_failure in [OnFailure::RollbackPod, OnFailure::RecreatePod, OnFailure::RollbackAll] {
        let mut world = World::new(4, 4, Settings { on_failure, ..at_once(4) }, true);
        world.fates.insert("web-001".to_owned(), Fate::Defers);
        world.edit(200);
        let phase = world.settle().status.phase;
        let expected = if on_failure == OnFailure::RollbackAll { Phase::RolledBack } else { Phase::Complete };
        assert_eq!(phase, expected, "{on_failure:?}");
    }
}

#[test]
fn no_more_resizes_wait_for_their_nodes_than_ten_or_max_concurrent_also_after_their_deadline() {
    for (concurrent, waiting) in [(1, 10), (12, 12)] {
        let mut world = World::new(30, 30, at_once(concurrent), false);
        world.max_unavailable = 30;
        all(&mut world, Fate::Defers);
        world.edit(200);
        let decision = world.settle();
        assert_eq!((decision.status.phase, sized(&world, "200m")), (Phase::Held, waiting), "{decision:?}");
        let message = format!("{waiting} resizes wait for their nodes, and no more are begun");
        assert_eq!(decision.status.message, message);
        // Pods that shrink do not wait for capacity.
        world.fates.clear();
        world.edit(50);
        assert_eq!(world.settle().status.phase, Phase::Complete);
    }
}

#[test]
fn a_rollout_waits_for_pods_that_are_ready_for_less_than_min_ready_seconds() {
    for min_ready in [20, 600] {
        let pod = PodPolicy { min_ready: SignedDuration::from_secs(min_ready), ..PodPolicy::default() };
        let mut world = World::new(3, 3, Settings { pod, ..at_once(1) }, true);
        world.set_ready("web-002", true);
        world.now += 5;
        world.fates.insert("web-002".to_owned(), Fate::Refused);
        world.edit(200);
        world.reconcile(usize::MAX);
        let decision = world.reconcile(usize::MAX);
        assert_eq!(decision.status.phase, Phase::Progressing, "{decision:?}");
        assert!(decision.status.message.contains("1 of 3 unavailable"), "{decision:?}");
        assert!(decision.due.is_some());
    }
}

#[test]
fn a_rollout_waits_for_missing_pods_until_the_deadline() {
    let mut world = World::new(3, 3, at_once(1), false);
    world.edit(200);
    // A node is drained: a pod of a StatefulSet is terminating, and its replacement is not created before it has ended.
    world.replicas = 4;
    let decision = world.reconcile(usize::MAX);
    assert_eq!(decision.status.phase, Phase::Progressing, "{decision:?}");
    let message = "waiting for pods to become available: 1 of 4 unavailable, maxUnavailable is 1";
    assert_eq!(decision.status.message, message);
    assert_eq!(decision.due.map(|due| due.duration_since(world.time()).as_secs()), Some(300));
    world.now += 100;
    world.missing_since = Some(world.time());
    let decision = world.reconcile(usize::MAX);
    assert_eq!(decision.due.map(|due| due.duration_since(world.time()).as_secs()), Some(300));
    world.now += 300;
    assert_eq!(world.reconcile(usize::MAX).status.phase, Phase::Held);
    world.replicas = 3;
    assert_eq!(world.settle().status.phase, Phase::Complete);
}

#[test]
fn an_unschedulable_pod_of_either_size_holds_only_resizes_with_a_restart() {
    for is_new in [false, true] {
        let mut world = World::new(4, 4, at_once(1), false);
        if !is_new {
            world.delete("web-000");
        }
        world.edit(200);
        if is_new {
            world.delete("web-000");
        }
        for _ in 0..10 {
            world.reconcile(usize::MAX);
            nodes_act(&mut world);
        }
        assert_eq!((world.now, sized(&world, "200m")), (0, 4), "{is_new}");
        assert_eq!(world.settle().status.phase, Phase::Complete);

        let mut world = World::new(4, 4, at_once(1), true);
        world.edit(200);
        world.delete("web-000");
        assert_eq!(world.reconcile(usize::MAX).status.phase, Phase::Progressing);
        assert_eq!(world.settle().status.phase, Phase::Held);
        assert_eq!(sized(&world, "100m"), 3);
    }
}

#[test]
fn no_more_than_ten_unschedulable_pods_wait_beside_the_others() {
    for (unschedulable, begins) in [(10, 1), (11, 0)] {
        let mut world = World::new(20, 20, at_once(1), false);
        world.edit(200);
        for number in 0..unschedulable {
            world.delete(&format!("web-{number:03}"));
        }
        let decision = world.reconcile(usize::MAX);
        let updates = decision.actions.iter().filter(|action| matches!(action, Action::Update(_)));
        let begun = updates.count();
        assert_eq!(begun, begins, "{unschedulable}: {decision:?}");
    }
}
