use jiff::SignedDuration;
use plumb_rollout::api::{OnFailure, Share};
use plumb_rollout::engine::{Action, Heading, Phase, PodPolicy, RolloutOutcome, Settings, Step};
use serde_json::json;

use super::world::{Fate, World};
use crate::objects::{apply_resources, pod, resized};

fn at_once(count: u32) -> Settings {
    Settings { max_concurrent: Share::Count(count), ..Settings::default() }
}

fn updates(actions: &[Action]) -> Vec<&str> {
    actions
        .iter()
        .filter_map(|action| match action {
            Action::Update(name) => Some(name.as_str()),
            _ => None,
        })
        .collect()
}

#[test]
fn one_edit_resizes_all_pods_in_place() {
    let mut world = World::new(20, 5, Settings::default(), false);
    world.edit(200);
    let last = world.settle();
    assert_eq!(last.status.phase, Phase::Complete);
    assert_eq!(world.record.outcome, Some(RolloutOutcome::Complete));
    assert!(world.sizes().values().all(|size| size == "200m"), "{:?}", world.sizes());
    assert!(world.recreated.is_empty());
}

#[test]
fn no_more_pods_are_resized_at_a_time_than_max_concurrent() {
    for (share, limit) in [(Share::Count(3), 3), (Share::Percent(10), 2), (Share::Percent(1), 1)] {
        let settings = Settings { max_concurrent: share, ..Settings::default() };
        let mut world = World::new(20, 20, settings, false);
        world.max_unavailable = 5;
        world.edit(200);
        assert_eq!(updates(&world.reconcile(usize::MAX).actions).len(), limit, "{share:?}");
        assert!(world.reconcile(usize::MAX).actions.is_empty());
        world.node_acts("web-000");
        // One is confirmed, and the next one begins.
        let decision = world.reconcile(usize::MAX);
        assert_eq!((updates(&decision.actions)[0], decision.actions.len()), ("web-000", 2));
    }
}

#[test]
fn a_pod_whose_write_failed_does_not_hold_up_the_others() {
    let mut world = World::new(3, 3, at_once(1), false);
    world.edit(200);
    world.backing_off.insert("web-000".to_owned());
    assert_eq!(updates(&world.decide().actions), ["web-001"]);
    world.backing_off.extend(["web-001".to_owned(), "web-002".to_owned()]);
    let decision = world.decide();
    assert_eq!(
        (decision.actions.len(), decision.status.phase),
        (0, Phase::Progressing),
        "it goes on by itself"
    );
}

#[test]
fn one_pod_grows_at_a_time_on_each_node_and_shrinks_are_not_held_up() {
    let mut world = World::new(12, 3, at_once(12), false);
    world.max_unavailable = 12;
    world.edit(200);
    assert_eq!(updates(&world.reconcile(usize::MAX).actions), ["web-000", "web-001", "web-002"]);
    assert!(world.reconcile(usize::MAX).actions.is_empty());
    assert!(world.growing().values().all(|count| *count == 1));
    world.settle();
    world.edit(50);
    assert_eq!(updates(&world.reconcile(usize::MAX).actions).len(), 12);
}

#[test]
fn no_pod_is_restarted_if_none_may_be_unavailable_and_others_are_resized_one_at_a_time() {
    let zero = Settings { max_unavailable: Some(Share::Count(0)), ..at_once(10) };
    let mut world = World::new(10, 10, zero.clone(), false);
    world.edit(200);
    assert_eq!(updates(&world.reconcile(usize::MAX).actions), ["web-000"]);
    assert_eq!(world.settle().status.phase, Phase::Complete);

    let mut world = World::new(10, 10, zero, true);
    world.edit(200);
    let decision = world.settle();
    assert_eq!(decision.status.phase, Phase::Held);
    assert_eq!(decision.status.message, "pods have to be restarted, and maxUnavailable is 0");

    // What the workload itself says counts as much.
    let mut world = World::new(10, 10, at_once(10), true);
    world.max_unavailable = 0;
    world.edit(200);
    let decision = world.settle();
    assert_eq!(decision.status.phase, Phase::Held);
    assert_eq!(decision.status.message, "pods have to be restarted, and maxUnavailable is 0");

    // A pod that is not resized is unavailable already.
    let mut world = World::new(10, 10, at_once(10), true);
    world.others_unavailable = 1;
    world.edit(200);
    let decision = world.settle();
    assert_eq!(decision.status.phase, Phase::Held);
    let message = "waiting for pods to become available: 1 of 10 unavailable, maxUnavailable is 1";
    assert_eq!(decision.status.message, message);

    let mut world = World::new(10, 10, at_once(10), true);
    world.max_unavailable = 2;
    world.set_ready("web-009", false);
    world.edit(200);
    // One may become unavailable in addition, and the one that is may be restarted.
    assert_eq!(updates(&world.reconcile(usize::MAX).actions), ["web-009", "web-000"]);
}

#[test]
fn a_partition_leaves_pods_as_they_are() {
    let settings = Settings { partition: Share::Count(7), ..at_once(10) };
    let mut world = World::new(10, 10, settings, false);
    world.edit(200);
    assert_eq!(world.settle().status.phase, Phase::Partitioned);
    assert_eq!(world.sizes().values().filter(|size| *size == "200m").count(), 3);
    world.settings.partition = Share::Count(0);
    assert_eq!(world.settle().status.phase, Phase::Complete);
}

#[test]
fn the_partition_of_a_stateful_set_leaves_the_pods_with_the_lowest_numbers_as_they_are() {
    let grown = |world: &World| -> Vec<String> {
        let sizes = world.sizes().into_iter().filter(|(_, size)| size == "200m");
        sizes.map(|(name, _)| name.to_owned()).collect()
    };
    let above = |count: usize| (count..6).map(|number| format!("web-{number:03}")).collect::<Vec<_>>();
    let new = |partition: u32, restarts: bool| {
        let mut world =
            World::new(6, 3, Settings { partition: Share::Count(partition), ..at_once(6) }, restarts);
        world.max_unavailable = 6;
        world.is_ordered = true;
        world
    };

    // Two pods are on each node, of which one grows at a time: a node that has only lower numbers left waits.
    let mut world = new(2, false);
    world.edit(200);
    assert_eq!(updates(&world.reconcile(usize::MAX).actions), ["web-005", "web-004", "web-003"]);
    world.node_acts("web-004");
    assert_eq!(
        updates(&world.reconcile(usize::MAX).actions),
        ["web-004"],
        "it is confirmed, and no other begins"
    );
    assert_eq!(world.settle().status.phase, Phase::Partitioned);
    assert_eq!(grown(&world), above(2));
    world.settings.partition = Share::Count(1);
    assert_eq!(world.settle().status.phase, Phase::Partitioned);
    assert_eq!(grown(&world), above(1));

    // A pod that is not available may be restarted before others.
    let mut world = new(4, true);
    world.set_ready("web-000", false);
    world.max_unavailable = 2;
    world.edit(200);
    assert_eq!(world.settle().status.phase, Phase::Partitioned);
    assert_eq!(grown(&world), above(4));

    // A pod below the partition that was recreated has the new size, and does not take the place of another one.
    let mut world = new(4, false);
    world.edit(200);
    let mut recreated = pod(&world.template);
    recreated.metadata.name = Some("web-001".to_owned());
    world.pods.insert("web-001".to_owned(), recreated);
    world.refresh();
    assert_eq!(world.settle().status.phase, Phase::Partitioned);
    assert_eq!(grown(&world), [vec!["web-001".to_owned()], above(4)].concat());
}

#[test]
fn a_canary_pauses_after_each_step() {
    let step = |pods, seconds: Option<i64>| Step { pods, pause: seconds.map(SignedDuration::from_secs) };
    let steps = vec![step(Share::Count(1), Some(60)), step(Share::Percent(50), None)];
    let mut world = World::new(10, 10, Settings { steps, ..at_once(10) }, false);
    world.edit(200);
    let decision = world.settle();
    assert_eq!(decision.status.phase, Phase::Paused);
    assert_eq!(world.states()["Done"], 1);
    assert_eq!(decision.due.map(|due| due.duration_since(world.time()).as_secs()), Some(60));
    // The time is printed in whole seconds.
    let done_at = world.record.step_done_at.unwrap();
    world.record.step_done_at = Some(done_at + SignedDuration::from_nanos(31_195_575));
    let message = world.reconcile(usize::MAX).status.message;
    assert_eq!(
        message,
        format!("step 1 of the canary is done; goes on at {}", done_at + SignedDuration::from_secs(60))
    );
    world.record.step_done_at = Some(done_at);
    world.now += 60;
    let decision = world.settle();
    assert_eq!((decision.status.phase, decision.due), (Phase::Paused, None));
    assert_eq!(decision.status.message, "step 2 of the canary is done; waits to be resumed");
    assert_eq!(world.states()["Done"], 5);
    world.record.step += 1;
    world.record.step_done_at = None;
    assert_eq!(world.settle().status.phase, Phase::Complete);
}

#[test]
fn a_canary_does_not_go_on_while_one_of_its_pods_is_stuck() {
    let steps = vec![Step { pods: Share::Count(2), pause: Some(SignedDuration::ZERO) }];
    for on_failure in [OnFailure::Hold, OnFailure::RollbackPod] {
        let mut world =
            World::new(10, 10, Settings { steps: steps.clone(), on_failure, ..at_once(10) }, false);
        world.fates.insert("web-001".into(), Fate::Infeasible);
        world.edit(200);
        assert_eq!(world.settle().status.phase, Phase::Held, "{on_failure:?}");
        assert_eq!(world.states()["Done"], 1);
    }
}

#[test]
fn a_user_or_the_policy_pauses_and_resumes_a_rollout() {
    let mut world = World::new(4, 4, at_once(1), false);
    world.edit(200);
    world.reconcile(usize::MAX);
    world.record.paused = true;
    let decision = world.settle();
    assert_eq!(
        (decision.status.phase, decision.status.message.as_str()),
        (Phase::Paused, "paused by a user")
    );
    // What was begun is finished.
    assert_eq!(world.states()["Done"], 1);
    (world.record.paused, world.settings.paused) = (false, true);
    assert_eq!(world.settle().status.message, "paused by the policy");
    world.settings.paused = false;
    assert_eq!(world.settle().status.phase, Phase::Complete);
}

#[test]
fn a_paused_rollout_that_has_nothing_left_to_do_is_complete() {
    for by_policy in [false, true] {
        let mut world = World::new(3, 3, at_once(3), false);
        world.max_unavailable = 3;
        world.edit(200);
        world.reconcile(usize::MAX);
        (world.record.paused, world.settings.paused) = (!by_policy, by_policy);
        assert_eq!(world.settle().status.phase, Phase::Complete);
        assert_eq!(world.record.outcome, Some(RolloutOutcome::Complete));
    }
}

#[test]
fn pods_that_wait_for_their_node_are_named_before_the_deadline() {
    for (fate, reason, deferred) in [(Fate::Defers, "Deferred", 1), (Fate::Fails, "Error", 0)] {
        let mut world = World::new(3, 3, at_once(3), false);
        world.max_unavailable = 3;
        world.fates.insert("web-001".into(), fate);
        world.edit(200);
        world.reconcile(usize::MAX);
        world.node_acts("web-001");
        let status = world.reconcile(usize::MAX).status;
        assert_eq!((status.phase, status.pods.resizing), (Phase::Progressing, 3), "{fate:?}");
        assert_eq!((status.pods.deferred, status.pods.stuck), (deferred, 0), "{fate:?}");
        let named: Vec<_> = status.waiting.iter().map(|pod| (pod.pod.as_str(), pod.reason.name())).collect();
        assert_eq!(named, [("web-001", reason)]);
        // After it the pod is stuck, and waits no more.
        let status = world.settle().status;
        assert_eq!((status.phase, status.pods.deferred, status.waiting.len()), (Phase::Held, 0, 0));
        assert_eq!(status.stuck[0].pod, "web-001");
    }
}

#[test]
fn a_stuck_pod_is_held_and_never_blocks_the_others() {
    for fate in [Fate::Infeasible, Fate::Defers, Fate::Fails, Fate::Refused] {
        let mut world = World::new(10, 10, at_once(1), false);
        world.fates.insert("web-003".into(), fate);
        world.edit(200);
        let decision = world.settle();
        assert_eq!(decision.status.phase, Phase::Held, "{fate:?}");
        assert_eq!(decision.status.stuck[0].pod, "web-003");
        assert_eq!((world.states()["Done"], world.states()["Stuck"]), (9, 1), "{fate:?}");
        // A new template goes through, and so does a deferred resize that fits after all.
        world.fates.clear();
        world.edit(150);
        assert_eq!(world.settle().status.phase, Phase::Complete, "{fate:?}");
        assert!(world.sizes().values().all(|size| size == "150m"));
    }
}

#[test]
fn a_resize_that_is_undone_is_sent_again_after_a_backoff_and_stuck_after_the_deadline() {
    let mut world = World::new(3, 3, at_once(3), false);
    world.max_unavailable = 3;
    world.fates.insert("web-001".into(), Fate::Undone);
    world.edit(200);
    assert!(updates(&world.reconcile(usize::MAX).actions).contains(&"web-001"));
    // Once at once, as after a crash.
    assert_eq!(updates(&world.reconcile(usize::MAX).actions), ["web-001"]);
    let decision = world.reconcile(usize::MAX);
    assert!(decision.actions.is_empty(), "{:?}", decision.actions);
    assert_eq!(decision.due.map(|due| due.duration_since(world.time()).as_secs()), Some(10));
    let decision = world.settle();
    assert_eq!((decision.status.phase, world.now), (Phase::Held, 300));
    let stuck = &decision.status.stuck[0];
    assert_eq!((stuck.pod.as_str(), stuck.reason.name()), ("web-001", "DeadlineExceeded"));
    assert_eq!(stuck.message, "the resize was accepted and undone");
    // It is sent again from time to time, and goes through once nothing undoes it.
    world.fates.clear();
    world.now += 600;
    assert_eq!(world.settle().status.phase, Phase::Complete);
    assert!(world.sizes().values().all(|size| size == "200m"));
}

#[test]
fn a_revert_completes_whatever_the_pace_is() {
    // OpenKruise blocks here: the budget is used up by the pod that is stuck.
    let settings = Settings { max_unavailable: Some(Share::Count(1)), ..at_once(1) };
    let mut world = World::new(5, 5, settings, false);
    world.fates.insert("web-001".into(), Fate::Infeasible);
    world.edit(200);
    assert_eq!(world.settle().status.phase, Phase::Held);
    world.edit(100);
    let reverted = world.reconcile(usize::MAX);
    assert_eq!(updates(&reverted.actions)[0], "web-001");
    assert_eq!(world.settle().status.phase, Phase::Complete);
    assert!(world.sizes().values().all(|size| size == "100m"));
}

#[test]
fn rollback_pod_reverts_the_stuck_pod_and_continues_with_the_others() {
    for fate in [Fate::Infeasible, Fate::Defers, Fate::Fails] {
        let settings = Settings { on_failure: OnFailure::RollbackPod, ..at_once(2) };
        let mut world = World::new(6, 6, settings, false);
        world.fates.insert("web-002".into(), fate);
        world.edit(200);
        let decision = world.settle();
        assert_eq!(decision.status.phase, Phase::Complete, "{fate:?} {decision:?}");
        let message = decision.status.message;
        assert!(message.starts_with("1 pod was resized back: web-002: "), "{message}");
        assert_eq!(world.sizes()["web-002"], "100m");
        assert_eq!((world.states()["Done"], world.states()["RolledBack"]), (5, 1));
    }
}

#[test]
fn rollback_all_takes_every_pod_and_the_template_back() {
    let settings = Settings { on_failure: OnFailure::RollbackAll, ..at_once(2) };
    let mut world = World::new(6, 6, settings, false);
    world.fates.insert("web-005".into(), Fate::Infeasible);
    world.edit(200);
    // A pod that is created meanwhile has the new size.
    world.reconcile(usize::MAX);
    world.scale(7);
    let decision = world.settle();
    assert_eq!(decision.status.phase, Phase::RolledBack);
    assert_eq!(world.record.outcome, Some(RolloutOutcome::RolledBack));
    assert!(world.sizes().values().all(|size| size == "100m"), "{:?}", world.sizes());
    assert_eq!(world.template, world.previous);
    assert!(world.recreated.is_empty());
}

#[test]
fn a_rollback_that_fails_too_names_the_pods_and_is_not_tried_again() {
    let settings = Settings { on_failure: OnFailure::RollbackAll, ..at_once(6) };
    let mut world = World::new(6, 6, settings, false);
    world.max_unavailable = 6;
    world.fates.insert("web-005".into(), Fate::Infeasible);
    world.edit(50);
    world.reconcile(usize::MAX);
    // All but one are smaller now, and one of them cannot become larger again.
    for name in ["web-000", "web-001", "web-002", "web-003", "web-004"] {
        world.node_acts(name);
    }
    world.fates.insert("web-001".into(), Fate::Infeasible);
    let decision = world.settle();
    assert_eq!(decision.status.phase, Phase::RollbackFailed);
    assert_eq!(world.record.outcome, Some(RolloutOutcome::RollbackFailed));
    let stuck: Vec<&str> = decision.status.stuck.iter().map(|failure| failure.pod.as_str()).collect();
    assert_eq!(stuck, ["web-001"]);
    world.now += 100_000;
    assert!(world.reconcile(usize::MAX).actions.is_empty());
}

#[test]
fn a_pod_that_drifts_and_cannot_be_resized_again_does_not_undo_a_rollout_that_is_complete() {
    for on_failure in [OnFailure::RollbackAll, OnFailure::RecreateAll] {
        let pod = PodPolicy { enforce_drift: true, ..PodPolicy::default() };
        let mut world = World::new(3, 3, Settings { pod, on_failure, ..at_once(3) }, false);
        world.edit(200);
        assert_eq!(world.settle().status.phase, Phase::Complete);
        // Another client makes a pod smaller, and its node has no capacity for it to grow again.
        let smaller = json!({ "spec": { "containers": [
            { "name": "app", "resources": { "requests": { "cpu": "50m" } } },
        ] } });
        let mut pod = resized(&world.pods["web-000"], &smaller);
        apply_resources(&mut pod);
        world.pods.insert("web-000".into(), pod);
        world.fates.insert("web-000".into(), Fate::Infeasible);
        world.refresh();
        let decision = world.settle();
        assert_eq!(decision.status.phase, Phase::Held, "{on_failure:?}");
        assert_eq!(decision.status.stuck[0].pod, "web-000");
        assert_eq!(
            (world.record.outcome, world.record.heading),
            (Some(RolloutOutcome::Complete), Heading::Forward)
        );
        assert!(world.recreated.is_empty());
        assert!(world.sizes().values().all(|size| size == "200m"), "{:?}", world.sizes());
    }
}

#[test]
fn recreate_pod_evicts_the_stuck_pods_within_the_budget() {
    let settings = Settings { on_failure: OnFailure::RecreatePod, ..at_once(6) };
    let mut world = World::new(6, 6, settings, false);
    for name in ["web-001", "web-002"] {
        world.fates.insert(name.into(), Fate::Infeasible);
    }
    world.max_unavailable = 6;
    world.edit(200);
    world.reconcile(usize::MAX);
    world.max_unavailable = 5;
    for name in ["web-001", "web-002"] {
        world.node_acts(name);
    }
    let decision = world.decide();
    let evicted: Vec<&Action> = decision.actions.iter().filter(|a| matches!(a, Action::Evict(_))).collect();
    // Four others are being resized.
    assert_eq!(evicted, [&Action::Evict("web-001".into())]);
    assert_eq!(world.settle().status.phase, Phase::Complete);
    assert_eq!(world.recreated.len(), 2);
    assert!(world.sizes().values().all(|size| size == "200m"));
}

#[test]
fn recreate_all_leaves_the_workload_to_its_own_controller() {
    let settings = Settings { on_failure: OnFailure::RecreateAll, ..at_once(6) };
    let mut world = World::new(6, 6, settings, false);
    world.fates.insert("web-001".into(), Fate::Infeasible);
    world.edit(200);
    assert_eq!(world.settle().status.phase, Phase::Recreating);
    assert_eq!(world.record.outcome, Some(RolloutOutcome::Recreated));
}

#[test]
fn a_pod_that_is_killed_while_it_soaks_is_a_failure() {
    let pod = PodPolicy { soak: SignedDuration::from_secs(60), ..PodPolicy::default() };
    let settings = Settings { pod, on_failure: OnFailure::RollbackAll, ..at_once(1) };
    let mut world = World::new(3, 3, settings, false);
    world.fates.insert("web-000".into(), Fate::Oom);
    world.edit(50);
    world.reconcile(usize::MAX);
    world.node_acts("web-000");
    world.reconcile(usize::MAX);
    assert_eq!(world.states()["Soaking"], 1);
    world.node_acts("web-000");
    assert_eq!(world.states()["Stuck"], 1);
    world.fates.clear();
    assert_eq!(world.settle().status.phase, Phase::RolledBack);
}

#[test]
fn pods_that_come_up_during_a_rollout_have_the_new_size() {
    let mut world = World::new(4, 4, at_once(1), false);
    world.edit(200);
    world.reconcile(usize::MAX);
    world.scale(8);
    assert_eq!(world.states()["Done"], 4);
    assert_eq!(world.settle().status.phase, Phase::Complete);
}

#[test]
fn a_pod_that_a_resize_makes_unready_stops_the_next_ones() {
    for (max_unavailable, limit) in [(0, 1), (1, 1), (2, 2)] {
        let mut world = World::new(6, 6, at_once(6), false);
        world.max_unavailable = max_unavailable;
        for number in 0..6 {
            world.fates.insert(format!("web-{number:03}"), Fate::Unready);
        }
        world.edit(50);
        let decision = world.settle();
        assert_eq!(decision.status.phase, Phase::Held, "{decision:?}");
        assert_eq!(world.ledger.broken.len(), limit);
        assert_eq!(decision.status.pods.pending, 6 - limit);
        assert_eq!(decision.status.stuck[0].reason.name(), "NotReady");
        assert!(
            decision.status.message.starts_with("waiting for pods to become available: "),
            "{decision:?}"
        );
        // Once they are ready again the rollout goes on.
        world.fates.clear();
        for name in world.ledger.broken.clone() {
            world.set_ready(&name, true);
        }
        assert_eq!(world.settle().status.phase, Phase::Complete);
    }
}

#[test]
fn a_pod_that_becomes_unready_after_it_was_done_stops_the_next_ones_too() {
    let mut world = World::new(4, 4, at_once(1), false);
    world.edit(50);
    world.reconcile(usize::MAX);
    world.node_acts("web-000");
    world.reconcile(usize::MAX);
    world.set_ready("web-000", false);
    world.node_acts("web-001");
    let decision = world.reconcile(usize::MAX);
    assert_eq!(updates(&decision.actions), ["web-001"], "it is confirmed, and no other begins");
    let decision = world.reconcile(usize::MAX);
    assert_eq!((decision.actions.len(), decision.status.phase), (0, Phase::Progressing));
    let message = "waiting for pods to become available: 1 of 4 unavailable, maxUnavailable is 1 (web-000)";
    assert_eq!(decision.status.message, message);
    // It may be restarting; after the deadline the rollout is held.
    assert_eq!(decision.due.map(|due| due.duration_since(world.time()).as_secs()), Some(300));
    world.now += 300;
    assert_eq!(world.reconcile(usize::MAX).status.phase, Phase::Held);
    world.set_ready("web-000", true);
    assert_eq!(world.settle().status.phase, Phase::Complete);
}

#[test]
fn a_pod_that_was_unavailable_before_holds_only_resizes_with_a_restart() {
    for (max_unavailable, restarts, phase) in [
        (0, false, Phase::Complete),
        (1, false, Phase::Complete),
        (0, true, Phase::Held),
        (1, true, Phase::Held),
        (2, true, Phase::Complete),
    ] {
        let mut world = World::new(4, 4, at_once(4), restarts);
        world.max_unavailable = max_unavailable;
        world.fates.insert("web-000".into(), Fate::Unready);
        world.set_ready("web-000", false);
        world.edit(50);
        assert_eq!(world.settle().status.phase, phase, "{max_unavailable} {restarts}");
    }
    // A rollback does not wait for it either, nor for a pod that the rollout has made unready.
    for was_ready in [false, true] {
        let mut world =
            World::new(4, 4, Settings { on_failure: OnFailure::RollbackAll, ..at_once(1) }, false);
        world.edit(50);
        world.fates.insert("web-003".into(), Fate::Unready);
        world.set_ready("web-000", was_ready);
        if was_ready {
            world.fates.insert("web-000".into(), Fate::Applies);
        }
        let last = world.settle();
        assert_eq!(last.status.phase, Phase::RolledBack, "{last:?}");
        assert!(world.sizes().values().all(|size| size == "100m"), "{:?}", world.sizes());
    }
}

#[test]
fn a_superseded_resize_counts_until_its_deadline() {
    let mut world = World::new(3, 3, at_once(1), false);
    world.edit(200);
    assert_eq!(updates(&world.reconcile(usize::MAX).actions), ["web-000"]);
    // The node does not answer, and the writes for this pod fail.
    world.edit(300);
    world.backing_off.insert("web-000".to_owned());
    let decision = world.reconcile(usize::MAX);
    assert!(decision.actions.is_empty(), "{decision:?}");
    assert_eq!(decision.due.map(|due| due.duration_since(world.time()).as_secs()), Some(300));
    world.now += 300;
    assert_eq!(updates(&world.reconcile(usize::MAX).actions), ["web-001"]);
}

#[test]
fn a_pod_is_done_once_it_was_ready_for_min_ready_seconds_after_its_resize() {
    let pod = PodPolicy { min_ready: SignedDuration::from_secs(20), ..PodPolicy::default() };
    let mut world = World::new(2, 2, Settings { pod, ..at_once(1) }, false);
    world.edit(200);
    world.reconcile(usize::MAX);
    world.node_acts("web-000");
    world.now += 5;
    world.reconcile(usize::MAX);
    assert_eq!(world.states()["Soaking"], 1);
    // It is unready for a moment, and the time starts anew.
    world.now += 10;
    world.set_ready("web-000", false);
    assert!(world.reconcile(usize::MAX).actions.is_empty());
    world.now += 1;
    world.set_ready("web-000", true);
    world.now += 19;
    assert!(world.reconcile(usize::MAX).actions.is_empty());
    world.now += 1;
    let decision = world.reconcile(usize::MAX);
    assert_eq!(
        updates(&decision.actions),
        ["web-000", "web-001"],
        "it is confirmed, and the next one begins"
    );
}

#[test]
fn pods_that_were_not_ready_before_a_rollout_neither_stop_it_nor_are_a_failure_of_it() {
    let settings = Settings { on_failure: OnFailure::RollbackAll, ..at_once(1) };
    let mut world = World::new(4, 4, settings, false);
    world.max_unavailable = 2;
    world.set_ready("web-002", false);
    world.edit(200);
    assert_eq!(updates(&world.reconcile(usize::MAX).actions), ["web-002"]);
    world.node_acts("web-002");
    // It does not take the place of those that can be resized.
    assert_eq!(updates(&world.reconcile(usize::MAX).actions), ["web-000"]);
    assert_eq!(world.settle().status.phase, Phase::Complete);
    assert!(world.sizes().values().all(|size| size == "200m"));
}

#[test]
fn pods_that_wait_for_their_nodes_do_not_hold_up_the_others_but_only_so_many_do() {
    let mut world = World::new(30, 30, at_once(1), false);
    for number in 0..15 {
        world.fates.insert(format!("web-{number:03}"), Fate::Defers);
    }
    world.edit(200);
    for _ in 0..20 {
        world.reconcile(usize::MAX);
        for number in 0..30 {
            world.node_acts(&format!("web-{number:03}"));
        }
    }
    let status = world.reconcile(usize::MAX).status;
    assert_eq!((status.pods.deferred, status.pods.done, status.phase), (10, 0, Phase::Progressing));
    assert_eq!(status.waiting.len(), 10);
    // A pod without a node waits beside the others, too.
    let mut world = World::new(4, 4, at_once(1), false);
    world.max_unavailable = 2;
    world.delete("web-000");
    world.edit(200);
    assert_eq!(updates(&world.reconcile(usize::MAX).actions), ["web-004"]);
    assert_eq!(updates(&world.reconcile(usize::MAX).actions), ["web-001"]);
}

#[test]
fn one_deferred_pod_does_not_take_the_only_place_of_max_concurrent() {
    let mut world = World::new(10, 10, Settings::default(), false);
    world.fates.insert("web-000".into(), Fate::Defers);
    world.edit(200);
    for _ in 0..30 {
        world.reconcile(usize::MAX);
        for number in 0..10 {
            world.node_acts(&format!("web-{number:03}"));
        }
    }
    let status = world.reconcile(usize::MAX).status;
    assert_eq!((world.now, status.pods.done, status.pods.deferred), (0, 9, 1));
}

#[test]
fn a_revert_of_a_canary_resizes_the_pod_back_and_is_complete() {
    for on_failure in [OnFailure::Hold, OnFailure::RollbackPod] {
        let steps = vec![Step { pods: Share::Count(1), pause: None }];
        let mut world = World::new(4, 4, Settings { steps, on_failure, ..at_once(1) }, false);
        world.edit(200);
        assert_eq!(world.settle().status.phase, Phase::Paused);
        assert_eq!(world.states()["Done"], 1);
        world.edit(100);
        world.record.revert = true;
        let decision = world.settle();
        assert_eq!(decision.status.phase, Phase::Complete, "{decision:?}");
        assert!(world.sizes().values().all(|size| size == "100m"), "{:?}", world.sizes());
    }
}

#[test]
fn pods_that_have_the_resources_already_are_no_step_of_a_canary() {
    let steps = vec![Step { pods: Share::Count(1), pause: None }];
    let mut world = World::new(4, 4, Settings { steps, ..at_once(1) }, false);
    world.edit(200);
    world.scale(6);
    let decision = world.settle();
    assert_eq!((decision.status.phase, decision.status.pods.done), (Phase::Paused, 3));
    assert_eq!(world.sizes().values().filter(|size| *size == "200m").count(), 3);
}

#[test]
fn a_rollout_of_which_every_pod_was_resized_back_is_not_complete() {
    let settings = Settings { on_failure: OnFailure::RollbackPod, ..at_once(1) };
    let mut world = World::new(3, 3, settings, false);
    for number in 0..3 {
        world.fates.insert(format!("web-{number:03}"), Fate::Infeasible);
    }
    world.edit(200);
    let decision = world.settle();
    assert_eq!(decision.status.phase, Phase::RolledBack, "{decision:?}");
    assert_eq!(world.record.outcome, Some(RolloutOutcome::RolledBack));
    assert!(decision.status.message.starts_with("3 pods were resized back: web-000: Infeasible: "));
    assert!(world.sizes().values().all(|size| size == "100m"));
}
