use jiff::SignedDuration;
use plumb_rollout::api::{OnFailure, Share};
use plumb_rollout::engine::{
    Action, Decision, Heading, Phase, PodPolicy, PodState, PodView, RolloutOutcome, Settings, Step, decide,
};
use proptest::prelude::*;

use super::ledger::deadline;
use super::world::{Fate, World};

#[derive(Clone, Debug)]
enum Op {
    /// The controller acts, and crashes after so many writes.
    Reconcile {
        writes: usize,
    },
    /// The node of a pod acts.
    Node(usize),
    /// All nodes act.
    Nodes,
    /// Seconds pass.
    Pass(i64),
    Edit(i64),
    Scale(usize),
    Fate(usize, Fate),
    Ready(usize, bool),
    /// A pod is deleted, and its replacement waits for a node.
    Delete(usize),
    /// A pod that waits for a node starts.
    Start(usize),
    /// A container is restarted.
    Restart(usize),
    Pause(bool),
    /// A user resumes a canary.
    Resume,
    /// So many other pods, and how many of them are unavailable.
    Others(usize, usize),
}

fn op() -> impl Strategy<Value = Op> {
    let fate = prop_oneof![
        4 => Just(Fate::Applies),
        1 => Just(Fate::Infeasible),
        1 => Just(Fate::Defers),
        1 => Just(Fate::Fails),
        1 => Just(Fate::Refused),
        1 => Just(Fate::Undone),
        1 => Just(Fate::Oom),
        3 => Just(Fate::Unready),
    ];
    prop_oneof![
        6 => prop_oneof![Just(usize::MAX), 0_usize..4].prop_map(|writes| Op::Reconcile { writes }),
        4 => (0_usize..12).prop_map(Op::Node),
        2 => Just(Op::Nodes),
        2 => (1_i64..400).prop_map(Op::Pass),
        2 => (1_i64..6).prop_map(|size| Op::Edit(size * 50)),
        1 => (0_usize..12).prop_map(Op::Scale),
        2 => (0_usize..12, fate).prop_map(|(pod, fate)| Op::Fate(pod, fate)),
        1 => (0_usize..12, any::<bool>()).prop_map(|(pod, ready)| Op::Ready(pod, ready)),
        2 => (0_usize..12).prop_map(Op::Delete),
        2 => (0_usize..12).prop_map(Op::Start),
        1 => (0_usize..12).prop_map(Op::Restart),
        1 => any::<bool>().prop_map(Op::Pause),
        1 => Just(Op::Resume),
        // The first pods are those of the canary.
        1 => Just(Op::Delete(0)),
        1 => (0_usize..3, 0_usize..3).prop_map(|(others, unavailable)| Op::Others(others, unavailable.min(others))),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let share = prop_oneof![(1_u32..5).prop_map(Share::Count), (1_u32..101).prop_map(Share::Percent)];
    let step = (1_u32..6, proptest::option::of(0_i64..100)).prop_map(|(pods, pause)| Step {
        pods: Share::Count(pods),
        // Without a pause it waits for a user.
        pause: pause.map(SignedDuration::from_secs),
    });
    (
        share.clone(),
        proptest::option::of(prop_oneof![share, Just(Share::Count(0))]),
        prop_oneof![3 => Just(0), 1 => 0_u32..6],
        proptest::collection::vec(step, 0..3),
        prop_oneof![Just(0_i64), Just(30)],
        prop_oneof![Just(0_i64), Just(20)],
        proptest::sample::select(OnFailure::ALL.to_vec()),
    )
        .prop_map(|(max_concurrent, max_unavailable, partition, steps, soak, min_ready, on_failure)| {
            Settings {
                max_concurrent,
                max_unavailable,
                partition: Share::Count(partition),
                steps,
                pod: PodPolicy {
                    soak: SignedDuration::from_secs(soak),
                    min_ready: SignedDuration::from_secs(min_ready),
                    ..PodPolicy::default()
                },
                on_failure,
                paused: false,
            }
        })
}

fn pod_of(action: &Action) -> Option<&str> {
    match action {
        Action::Update(name) | Action::RollBack(name, _) | Action::Evict(name) => Some(name),
        _ => None,
    }
}

/// How many pods may be unavailable.
fn max_unavailable(world: &World) -> usize {
    match world.settings.max_unavailable {
        Some(Share::Count(0)) => 0,
        Some(share) => share.rounded_down(world.replicas + world.others).max(1),
        None => world.max_unavailable,
    }
}

/// Checks what a decision may begin.
fn check_pace(world: &World) -> Result<(), TestCaseError> {
    let decision = world.decide();
    let counts = world.index.counts();
    let total = world.index.len();
    // Resizes that restart no container of pods that are available, those that do, and those of pods that cannot become worse.
    let (mut plain, mut restarting, mut free) = (0, 0, 0);
    let mut nodes = std::collections::BTreeMap::new();
    for action in &decision.actions {
        let (name, restarts) = match action {
            Action::Update(name) => (name, None),
            Action::RollBack(name, _) => (name, world.index.get(name).unwrap().back_restarts),
            Action::Evict(name) => (name, Some(true)),
            _ => continue,
        };
        let view = world.index.get(name).unwrap();
        let begins = restarts.is_some()
            || matches!(view.evaluation.state, PodState::Pending | PodState::Stuck { .. })
                && view.evaluation.next != plumb_rollout::engine::NextWrite::Begin(None);
        let is_revert = restarts.is_none() && view.overtaken && !view.grows && !view.restarts;
        if !begins || is_revert {
            continue;
        }
        if view.grows && restarts.is_none() {
            *nodes.entry(view.node.clone()).or_insert(0) += 1;
        }
        match restarts.unwrap_or(view.restarts) {
            _ if view.is_exposed() => free += 1,
            true => restarting += 1,
            false if restarts.is_none() => plain += 1,
            false => {}
        }
    }
    let concurrent = world.settings.max_concurrent.rounded_up(total).max(1);
    let most = match restarting + plain {
        0 => usize::MAX,
        _ => max_unavailable(world).max(usize::from(restarting == 0)),
    };
    let missing = world.others_unavailable;
    let exposed = world.index.iter().filter(|(_, view)| view.is_exposed()).count();
    let is_rollback = world.record.heading == Heading::Back || world.record.revert;
    let is_awaited = |view: &PodView| {
        let was_unavailable =
            if is_rollback { view.is_unavailable_after_rollback() } else { view.is_unavailable_as_before() };
        view.is_exposed() && !was_unavailable && !view.unschedulable
    };
    let exposed = match restarting {
        0 => world.index.iter().filter(|(_, view)| is_awaited(view)).count(),
        _ => exposed,
    };
    prop_assert!(plain <= concurrent, "{plain} of {concurrent}");
    prop_assert!(free <= concurrent.max(world.index.len()), "{free}");
    prop_assert!(
        missing + exposed + plain + restarting <= most,
        "{missing} missing, {exposed} exposed, {plain} and {restarting} begin, of {most}"
    );
    for (node, count) in nodes.iter().filter(|(node, _)| !node.is_empty()) {
        let growing = world.growing().get(node.as_str()).copied().unwrap_or(0);
        prop_assert!(growing + count <= 1, "{node}: {growing} + {count}");
    }
    prop_assert!(counts.total == world.pods.len());
    let mut pods: Vec<&str> = decision.actions.iter().filter_map(pod_of).collect();
    pods.sort_unstable();
    let all = pods.len();
    pods.dedup();
    prop_assert_eq!(pods.len(), all, "two actions for one pod");
    Ok(())
}

/// How many pods may be resized to the latest template before the canary goes on.
fn most_moved(world: &World) -> usize {
    if world.record.revert || world.record.heading == Heading::Back {
        return usize::MAX;
    }
    let Some(step) = world.settings.steps.get(world.record.step) else { return usize::MAX };
    let total = world.pods.len();
    let partition = total.saturating_sub(world.settings.partition.rounded_up(total));
    step.pods.rounded_up(total).clamp(1, partition.max(1))
}

/// How many pods may become unready by resizes that wait beside the others.
fn most_beside(world: &World) -> usize {
    world.settings.max_concurrent.rounded_up(world.pods.len()).max(10)
}

/// A user resumes a canary whose step is done.
fn resume(world: &mut World) {
    if world.record.outcome.is_none() && world.record.step_done_at.take().is_some() {
        world.record.step += 1;
    }
}

/// Whether something keeps a rollout from its end that is not for the controller to change.
fn is_hindered(world: &World, restarts: bool) -> bool {
    let never_applies = |name: &String| {
        let fates = [Fate::Infeasible, Fate::Defers, Fate::Fails, Fate::Refused, Fate::Undone];
        fates.contains(&world.fate(name)) || world.ledger.failed.contains(name)
    };
    let is_overdue =
        |name: &String| world.unready_since(name).is_some_and(|since| since + deadline() <= world.time());
    let rolled_back = world.index.counts().rolled_back;
    world.pods.keys().any(|name| never_applies(name) || is_overdue(name))
        || rolled_back > 0
        || world.others_unavailable > 0
        || max_unavailable(world) == 0 && restarts
}

/// Lets a rollout go on for as long as anything changes: users resume a canary, and what is refused is sent again.
fn settle(world: &mut World) -> Decision {
    let mut last = world.settle();
    for _ in 0..30 {
        match (last.status.phase, last.due) {
            (Phase::Paused, None) => resume(world),
            (Phase::Paused | Phase::Held, Some(due)) => {
                world.now += due.duration_since(world.time()).as_secs().max(1);
            }
            _ => break,
        }
        last = world.settle();
    }
    last
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_rollout_ends_or_says_what_it_waits_for_and_makes_no_more_pods_unavailable_than_allowed(
        replicas in 0_usize..12,
        nodes in 1_usize..5,
        restarts in any::<bool>(),
        settings in settings(),
        is_ordered in any::<bool>(),
        ops in proptest::collection::vec(op(), 0..60),
    ) {
        let recreates = matches!(settings.on_failure, OnFailure::RecreatePod | OnFailure::RecreateAll);
        let mut world = World::new(replicas, nodes, settings, restarts);
        world.is_ordered = is_ordered;
        world.refresh();
        let mut most = max_unavailable(&world).max(1);
        let (mut beside, mut moved) = (most_beside(&world), usize::MAX);
        for op in ops {
            let name = |at: usize| world.pods.keys().nth(at % world.pods.len().max(1)).cloned().unwrap_or_default();
            match op {
                Op::Reconcile { writes } => {
                    check_pace(&world)?;
                    world.reconcile(writes);
                    if writes != usize::MAX {
                        // The controller starts anew.
                        world.refresh();
                    }
                }
                Op::Node(at) => { let name = name(at); world.node_acts(&name); }
                Op::Nodes => {
                    for name in world.pods.keys().cloned().collect::<Vec<_>>() {
                        world.node_acts(&name);
                    }
                }
                Op::Pass(seconds) => world.now += seconds,
                Op::Edit(size) => { world.edit(size); moved = 0; }
                Op::Scale(replicas) => world.scale(replicas),
                Op::Fate(at, fate) => { let name = name(at); world.fates.insert(name, fate); }
                Op::Ready(at, ready) => { let name = name(at); world.set_ready(&name, ready); }
                Op::Delete(at) => { let name = name(at); world.delete(&name); }
                Op::Start(at) => { let name = name(at); world.start(&name); }
                Op::Restart(at) => { let name = name(at); world.restart(&name); }
                Op::Pause(paused) => world.record.paused = paused,
                Op::Resume => resume(&mut world),
                Op::Others(others, unavailable) => {
                    (world.others, world.others_unavailable) = (others, unavailable);
                }
            }
            most = most.max(max_unavailable(&world));
            beside = beside.max(most_beside(&world));
            moved = moved.max(most_moved(&world));
            let ledger = &world.ledger;
            prop_assert!(ledger.broken.len() <= most, "{:?} of {}", ledger.broken, most);
            prop_assert!(ledger.broken_late.len() <= beside, "{:?} of {}", ledger.broken_late, beside);
            prop_assert!(ledger.moved.len() <= moved, "{:?} of {}", ledger.moved, moved);
            prop_assert_eq!(world.pods.len(), world.replicas);
            prop_assert!(recreates || world.recreated.is_empty());
            // The index is what it would be if it were built anew, but for what time has changed.
            let now = world.time();
            let due = world.index.due(now);
            if due.is_empty() {
                let fresh = world.fresh();
                prop_assert_eq!(decide(&world.state(&fresh)), world.decide());
            }
        }
        world.record.paused = false;
        let last = settle(&mut world);
        prop_assert!(last.status.phase.has_ended(), "{:?}", last);
        let counts = world.index.counts();
        match last.status.phase {
            Phase::Complete => {
                prop_assert_eq!(counts.done + counts.rolled_back, counts.total);
                prop_assert!(counts.done > 0 || counts.total == 0);
                prop_assert!(world.record.outcome.is_some());
            }
            Phase::RolledBack => {
                prop_assert_eq!(counts.done + counts.rolled_back, counts.total);
                if world.record.heading == Heading::Forward {
                    // Each of them failed, and the template is as the user wrote it.
                    prop_assert_eq!(counts.rolled_back, counts.total);
                    return Ok(());
                }
                // Pods that could not be resized back may have been scaled down since.
                prop_assert!(matches!(world.record.outcome, Some(RolloutOutcome::RolledBack | RolloutOutcome::RollbackFailed)));
                prop_assert_eq!(&world.template, &world.previous);
            }
            Phase::RollbackFailed => prop_assert!(!last.status.stuck.is_empty()),
            Phase::Held => {
                prop_assert!(counts.stuck > 0 || !last.status.message.is_empty());
                prop_assert!(is_hindered(&world, restarts), "{:?}", last);
            }
            Phase::Partitioned => prop_assert!(counts.pending > 0),
            Phase::Recreating => prop_assert_eq!(world.record.outcome, Some(RolloutOutcome::Recreated)),
            Phase::Paused | Phase::Progressing | Phase::RollingBack => {
                prop_assert!(last.due.is_some(), "{:?}", last);
            }
        }
    }
}
