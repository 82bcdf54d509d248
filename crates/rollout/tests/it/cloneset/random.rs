//! The laws of decisions, for any course of events.

use jiff::SignedDuration;
use plumb_rollout::api::{OnFailure, Share};
use plumb_rollout::cloneset::Action;
use plumb_rollout::cloneset::status::{FAILED_SCALE, FAILED_UPDATE, rollout};
use plumb_rollout::engine::{Settings, Step};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::json;

use super::model::{Fate, Model, Template};

#[derive(Clone, Debug)]
enum Op {
    Reconcile,
    /// The node of a pod acts.
    Node(usize),
    Nodes,
    Pass(i64),
    Edit(Template),
    Scale(usize),
    Fate(usize, Fate),
    Ready(usize, bool),
    Delete(usize),
    /// The container of a pod exits and starts again.
    Restart(usize),
    /// Whether new pods find no node.
    Full(bool),
}

fn template(restarts: bool) -> impl Strategy<Value = Template> {
    let memory = prop_oneof![6 => Just(64_i64), 1 => Just(128), 1 => Just(1 << 20)];
    let invalid = prop_oneof![9 => Just(false), 1 => Just(true)];
    (1_i64..5, memory, 0_u8..2, 0_u8..2, prop_oneof![4 => Just(0_u8), 1 => Just(1)], invalid).prop_map(
        move |(cpu, memory, image, label, args, invalid)| Template {
            cpu: cpu * 100,
            memory,
            image,
            label,
            args,
            restarts,
            invalid,
        },
    )
}

fn op(restarts: bool) -> impl Strategy<Value = Op> {
    let fate = prop_oneof![
        4 => Just(Fate::Applies),
        1 => Just(Fate::Infeasible),
        1 => Just(Fate::Defers),
        1 => Just(Fate::Refused),
        2 => Just(Fate::Unready),
    ];
    prop_oneof![
        10 => Just(Op::Reconcile),
        4 => (0_usize..8).prop_map(Op::Node),
        6 => Just(Op::Nodes),
        2 => (1_i64..400).prop_map(Op::Pass),
        2 => template(restarts).prop_map(Op::Edit),
        1 => (1_usize..7).prop_map(Op::Scale),
        2 => (0_usize..8, fate).prop_map(|(pod, fate)| Op::Fate(pod, fate)),
        1 => (0_usize..8, any::<bool>()).prop_map(|(pod, ready)| Op::Ready(pod, ready)),
        1 => (0_usize..8).prop_map(Op::Delete),
        1 => (0_usize..8).prop_map(Op::Restart),
        1 => any::<bool>().prop_map(Op::Full),
    ]
}

/// The steps of a canary. Without a pause it waits for a user after each.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (1_u32..4, proptest::option::of(0_i64..100)).prop_map(|(pods, pause)| Step {
        pods: Share::Count(pods),
        pause: pause.map(SignedDuration::from_secs),
    });
    prop_oneof![2 => Just(Vec::new()), 1 => proptest::collection::vec(step, 1..3)]
}

fn case() -> impl Strategy<Value = (bool, Vec<Op>)> {
    any::<bool>().prop_flat_map(|restarts| (Just(restarts), proptest::collection::vec(op(restarts), 0..60)))
}

/// Whether an action makes a pod unavailable that may serve.
fn disturbs(action: &Action) -> bool {
    match action {
        Action::DeletePod { .. } | Action::PatchPodStatus { .. } => true,
        Action::UpdatePod { unready, .. } => unready.is_some(),
        _ => false,
    }
}

proptest! {
    // The same courses each time: to look for others, change the seed.
    #![proptest_config(ProptestConfig { cases: 64, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn an_update_ends_or_says_what_it_waits_for_and_makes_no_more_pods_unavailable_than_allowed(
        replicas in 1_i64..7,
        max_unavailable in 1_usize..4,
        max_surge in 0_usize..2,
        recreates in any::<bool>(),
        on_failure in proptest::sample::select(OnFailure::ALL.to_vec()),
        quota in prop_oneof![2 => Just(i64::MAX / 2), 1 => 384_i64..800],
        steps in steps(),
        (restarts, ops) in case(),
    ) {
        let type_ = if recreates { "ReCreate" } else { "InPlaceIfPossible" };
        let strategy = json!({ "type": type_, "maxUnavailable": max_unavailable, "maxSurge": max_surge });
        let settings = Settings { on_failure, steps, ..Settings::default() };
        let first = Template { cpu: 100, memory: 64, image: 0, label: 0, args: 0, restarts, invalid: false };
        let mut model = Model::new(replicas, &strategy, settings, first);
        model.quota = quota;
        for op in ops {
            let name = |at: usize| model.pods.keys().nth(at % model.pods.len().max(1)).cloned().unwrap_or_default();
            match op {
                Op::Reconcile => {
                    let before = model.available();
                    let decision = model.reconcile();
                    let after = model.available();
                    prop_assert!(
                        after >= before || model.replicas().saturating_sub(after) <= max_unavailable,
                        "{before} were available, {after} of {} are: {:#?}",
                        model.replicas(),
                        decision.actions.iter().filter(|action| disturbs(action)).collect::<Vec<_>>()
                    );
                }
                Op::Node(at) => { let name = name(at); model.node_acts(&name); }
                Op::Nodes => {
                    for name in model.pods.keys().cloned().collect::<Vec<_>>() {
                        model.node_acts(&name);
                    }
                }
                Op::Pass(seconds) => model.now += seconds,
                Op::Edit(template) => model.edit(template),
                Op::Scale(replicas) => model.scale(replicas),
                Op::Fate(at, fate) => { let name = name(at); model.fates.insert(name, fate); }
                Op::Ready(at, true) => { let name = name(at); model.unready.remove(&name); }
                Op::Ready(at, false) => { let name = name(at); model.unready.insert(name); }
                Op::Delete(at) => { let name = name(at); model.delete(&name); }
                Op::Restart(at) => { let name = name(at); model.restart(&name); }
                Op::Full(full) => model.full = full,
            }
            prop_assert!(model.broken.len() <= max_unavailable, "{:?} of {max_unavailable}", model.broken);
        }
        model.unready.clear();
        model.full = false;
        let last = model.settle();
        let status = model.status();
        let says = status.condition(FAILED_UPDATE).is_some()
            || status.condition(FAILED_SCALE).is_some()
            || rollout(&status).is_some_and(|rollout| {
                !rollout.message.is_empty() || !rollout.stuck.is_empty() || !rollout.waiting.is_empty()
            });
        // A pod that was not ready before its resize, and is not afterwards, is not the update's matter.
        let is_unready = |name: &String| model.fates.get(name) == Some(&Fate::Unready);
        let serve = model.pods.iter().all(|(name, pod)| Model::is_available(pod) || is_unready(name));
        // New images and new pods wait for pods that are not ready with their resources, which the counts of the status tell.
        let waits = status.available_replicas < status.replicas && model.pods.keys().any(is_unready);
        let follows = model.pods.values().all(|pod| model.follows(pod));
        prop_assert!(
            says || waits || model.pods.len() == model.replicas() && follows && serve,
            "{:#?} {status:#?} {last:#?}",
            model.pods
        );
    }
}
