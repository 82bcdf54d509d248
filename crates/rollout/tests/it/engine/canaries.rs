use plumb_rollout::api::{OnFailure, Share};
use plumb_rollout::engine::{Action, Phase, Settings, Step};
use plumb_testkit::object;
use serde_json::json;

use super::world::{Fate, World};

/// A workload of four pods with a canary of so many, which waits for a user.
fn canary(pods: u32, settings: Settings) -> World {
    let steps = vec![Step { pods: Share::Count(pods), pause: None }];
    World::new(4, 4, Settings { steps, max_concurrent: Share::Count(4), ..settings }, false)
}

/// The pods that have the new resources, by name.
fn grown(world: &World) -> Vec<String> {
    let sizes = world.sizes().into_iter().filter(|(_, size)| size == "200m");
    sizes.map(|(name, _)| name.to_owned()).collect()
}

fn resume(world: &mut World) {
    assert!(world.record.step_done_at.take().is_some());
    world.record.step += 1;
}

#[test]
fn a_canary_step_that_is_done_begins_nothing_when_its_pod_is_deleted() {
    let mut world = canary(1, Settings::default());
    world.edit(200);
    assert_eq!(world.settle().status.phase, Phase::Paused);
    assert_eq!(grown(&world), ["web-000"]);
    // A drain: the replacement has the new resources, and was not resized.
    world.delete("web-000");
    assert_eq!(world.settle().status.phase, Phase::Paused);
    world.start("web-004");
    assert_eq!(world.settle().status.phase, Phase::Paused);
    assert_eq!(grown(&world), ["web-004"]);
    // Nor when the workload has more pods, or the policy another number.
    world.settings.steps[0].pods = Share::Count(3);
    world.scale(8);
    assert_eq!(world.settle().status.phase, Phase::Paused);
    assert_eq!(world.sizes().values().filter(|size| *size == "100m").count(), 3);
    resume(&mut world);
    assert_eq!(world.settle().status.phase, Phase::Complete);
}

#[test]
fn a_pod_of_a_canary_that_is_deleted_before_it_is_done_counts_and_its_replacement_has_to_become_available() {
    for (steps, max_unavailable) in [(1, 2), (2, 2), (1, 0)] {
        let mut world = canary(steps, Settings::default());
        world.max_unavailable = max_unavailable;
        world.fates.insert("web-000".to_owned(), Fate::Defers);
        world.edit(200);
        for _ in 0..3 {
            world.reconcile(usize::MAX);
            world.node_acts("web-000");
        }
        world.delete("web-000");
        // The controller starts anew.
        world.refresh();
        let decision = world.settle();
        assert_eq!(decision.status.phase, Phase::Held, "{decision:?}");
        let message = decision.status.message;
        assert!(message.starts_with("waiting for pods to become available: 1 of 4 unavailable"), "{message}");
        assert_eq!(world.now, 300, "it was waited for");
        world.start("web-004");
        assert_eq!(world.settle().status.phase, Phase::Paused);
        assert_eq!(grown(&world).len(), usize::try_from(steps).unwrap(), "{:?}", world.sizes());
    }
}

#[test]
fn a_canary_whose_pods_are_evicted_evicts_no_more_pods_than_the_step_has() {
    let mut world = canary(1, Settings { on_failure: OnFailure::RecreatePod, ..Settings::default() });
    for number in 0..4 {
        world.fates.insert(format!("web-{number:03}"), Fate::Infeasible);
    }
    world.edit(200);
    let decision = world.settle();
    assert_eq!(decision.status.phase, Phase::Paused, "{decision:?}");
    assert_eq!(world.recreated.iter().collect::<Vec<_>>(), ["web-000"]);
}

#[test]
fn the_pods_of_a_canary_are_recorded_before_they_are_resized() {
    let mut world = canary(2, Settings::default());
    world.max_unavailable = 2;
    world.edit(200);
    let decision = world.reconcile(usize::MAX);
    assert!(matches!(&decision.actions[..], [Action::Choose(_)]), "{decision:?}");
    assert_eq!(grown(&world), Vec::<String>::new());
    // The controller crashes before the first resize, and after it.
    world.refresh();
    world.reconcile(2);
    assert_eq!(grown(&world), ["web-000"]);
    world.delete("web-000");
    world.start("web-004");
    world.refresh();
    assert_eq!(world.settle().status.phase, Phase::Paused);
    assert_eq!(grown(&world), ["web-001", "web-004"]);
    assert_eq!(world.record.canaries.chosen, 2);
}

#[test]
fn a_canary_chooses_an_unschedulable_pod_only_if_there_is_no_other_one() {
    let mut world = canary(1, Settings::default());
    world.max_unavailable = 4;
    // The first by its name has no node.
    let mut unscheduled = world.pods["web-000"].clone();
    unscheduled.spec.as_mut().unwrap().node_name = None;
    let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" });
    unscheduled.status = Some(object(json!({ "phase": "Pending", "conditions": [condition] })));
    world.pods.insert("web-000".to_owned(), unscheduled);
    world.refresh();
    world.edit(200);
    assert_eq!(world.settle().status.phase, Phase::Paused);
    assert_eq!(grown(&world), ["web-001"]);
    resume(&mut world);
    world.settle();
    assert_eq!(grown(&world).len(), 4, "{:?}", world.sizes());

    let mut world = canary(1, Settings::default());
    for name in ["web-000", "web-001", "web-002", "web-003"] {
        world.delete(name);
    }
    world.edit(200);
    world.settle();
    assert_eq!(grown(&world).len(), 1, "{:?}", world.sizes());
}
