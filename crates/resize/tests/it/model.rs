//! The resize protocol as a model, explored exhaustively.
//!
//! A user who resizes again at any time, an API server with optimistic concurrency, a node agent that may
//! crash between any two of its steps, a runtime whose calls may fail with or without effect, and a
//! scheduler that binds a new pod meanwhile. What each of them *decides* is decided by the crate's own
//! functions (`admit`, `decide`, `plan`, `project`, `on_node`); modelled is only who gets to move when.
//!
//! Users and faults have budgets, and an action that would change nothing is not offered, so no path is
//! endless ([`no_path_runs_in_circles`] checks that). Every path therefore ends in a state with nothing
//! left to do, and what must *eventually* hold is checked there.

mod properties;
mod state;

use plumb_resize::aggregate::Role;
use plumb_resize::growth::GrowthBounds;
use plumb_resize::pod::{ContainerShape, PodResources, PodShape, RestartPolicy};
use plumb_resize::qos::QosClass;
use plumb_resize::resource::{Amounts, Declared, PerResource, Requirements, Resource};
use plumb_resize::rules::Rules;
use stateright::{Checker, Model};

use state::{Action, State};

/// A pod of the model: its shape, and what a user may ask for. It starts with the first.
#[derive(Clone, Debug)]
struct PodModel {
    shape: PodShape,
    choices: Vec<PodResources>,
    /// A container that uses all the memory it has, and never gives any up.
    holder: Option<usize>,
    /// How far the node may raise limits.
    bounds: PerResource<Option<GrowthBounds>>,
}

/// A rule of the protocol, broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// After a failed call the agent goes on from what it believes instead of asking the runtime.
    TrustsItselfAfterAFailure,
    /// Capacity is computed from allocations alone, as if a shrink took effect at once.
    IgnoresWhatIsActual,
    /// The allocation is not journalled: after a crash pods are admitted with their desired resources.
    ForgetsAllocations,
    /// A container that is down starts with what it is allocated, or not at all.
    StartsWithAllOrNothing,
}

/// The protocol, with bounds.
#[derive(Clone, Debug)]
struct Protocol {
    rules: Rules,
    allocatable: Amounts,
    pods: Vec<PodModel>,
    /// What a new pod asks for, if the scheduler is to bind one.
    newcomer: Option<Amounts>,
    resizes: u8,
    crashes: u8,
    failures: u8,
    /// How often a container ends by itself.
    exits: u8,
    /// How often a container comes near its memory limit, or is throttled.
    growths: u8,
    broken: Option<Broken>,
}

fn container(name: &str, policy: RestartPolicy) -> ContainerShape {
    ContainerShape { name: name.to_owned(), role: Role::Main, policy: PerResource::new(policy, policy) }
}

fn pod(policies: &[RestartPolicy], choices: &[&[(i64, i64)]]) -> PodModel {
    let containers = policies.iter().enumerate().map(|(i, policy)| container(&format!("c{i}"), *policy));
    let choice = |amounts: &&[(i64, i64)]| PodResources {
        containers: amounts.iter().map(|(cpu, memory)| Requirements::equal(*cpu, *memory)).collect(),
        pod: None,
    };
    PodModel {
        shape: PodShape {
            containers: containers.collect(),
            overhead: Declared::NONE,
            qos: QosClass::Guaranteed,
        },
        choices: choices.iter().map(choice).collect(),
        holder: None,
        bounds: PerResource::default(),
    }
}

/// A node of four cores, full: three for a pod whose two containers can trade cpu against memory or shrink,
/// one for a pod that wants two, or more than there is.
fn full_node(rules: Rules, policies: [RestartPolicy; 2]) -> Protocol {
    Protocol {
        rules,
        allocatable: Amounts::new(4, 4),
        pods: vec![
            pod(&policies, &[&[(1, 2), (2, 1)], &[(2, 1), (1, 2)], &[(1, 1), (1, 1)]]),
            pod(&[RestartPolicy::NotRequired], &[&[(1, 1)], &[(2, 1)], &[(9, 1)]]),
        ],
        newcomer: Some(Amounts::new(1, 1)),
        resizes: 2,
        crashes: 1,
        failures: 1,
        exits: 0,
        growths: 0,
        broken: None,
    }
}

/// The same with one pod, in which the first container never gives up memory and any container may end by itself.
fn node_with_holder(rules: Rules, policies: [RestartPolicy; 2]) -> Protocol {
    let mut protocol = full_node(rules, policies);
    protocol.pods.truncate(1);
    protocol.pods[0].holder = Some(0);
    Protocol { newcomer: None, exits: 2, ..protocol }
}

/// A node of four cores and four of memory, on which two pods may grow to more than fits beside each other. Users resize them
/// meanwhile.
fn node_with_growth(rules: Rules) -> Protocol {
    let mut protocol = full_node(rules, [RestartPolicy::NotRequired; 2]);
    let of_memory = GrowthBounds::parse(Resource::Memory, "c0=2,c1=2").ok();
    let memory = PerResource::new(None, of_memory.clone());
    let both = PerResource::new(Some(GrowthBounds::all(Resource::Cpu, 2)), of_memory);
    protocol.pods = vec![
        PodModel {
            bounds: memory,
            ..pod(
                &[RestartPolicy::NotRequired; 2],
                &[&[(1, 1), (1, 1)], &[(1, 2), (1, 1)], &[(1, 2), (1, 2)], &[(1, 3), (1, 1)]],
            )
        },
        PodModel { bounds: both, ..pod(&[RestartPolicy::NotRequired], &[&[(1, 1)], &[(1, 2)], &[(2, 1)]]) },
    ];
    Protocol { newcomer: None, growths: 1, failures: 0, ..protocol }
}

/// The most states an exhaustive run may take.
const MOST_STATES: usize = 2_000_000;

#[track_caller]
fn explore(name: &str, protocol: Protocol) {
    let checker = protocol.checker().threads(2).target_state_count(MOST_STATES).spawn_bfs().join();
    let states = checker.unique_state_count();
    println!("{name}: {states} states, longest path {}", checker.max_depth());
    assert!(checker.is_done() && states < MOST_STATES, "{name}: {states} states is not exhaustive");
    checker.assert_properties();
}

#[test]
fn every_resize_ends_well_under_the_rules_of_the_kep() {
    explore("kep", full_node(Rules::kep(), [RestartPolicy::NotRequired; 2]));
}

#[test]
fn every_resize_ends_well_under_the_rules_of_kubernetes() {
    explore("v1.36", full_node(Rules::v1_36(), [RestartPolicy::NotRequired; 2]));
}

#[test]
fn every_resize_ends_well_when_containers_restart_for_it() {
    use RestartPolicy::{NotRequired, RestartContainer};
    let bounds = |policies| Protocol { newcomer: None, ..full_node(Rules::kep(), policies) };
    explore("restarts", bounds([RestartContainer; 2]));
    explore("one restarts", bounds([NotRequired, RestartContainer]));
}

#[test]
fn every_resize_settles_though_users_keep_changing_it() {
    let bounds = full_node(Rules::kep(), [RestartPolicy::NotRequired; 2]);
    explore("hasty users", Protocol { newcomer: None, resizes: 3, crashes: 0, failures: 1, ..bounds });
}

#[test]
fn containers_run_beside_one_that_never_gives_up_its_memory() {
    use RestartPolicy::{NotRequired, RestartContainer};
    for policies in [[NotRequired; 2], [NotRequired, RestartContainer]] {
        explore(&format!("{policies:?} holder"), node_with_holder(Rules::kep(), policies));
    }
}

#[test]
fn every_growth_by_the_node_ends_well_beside_resizes_by_users() {
    explore("growth, kep", node_with_growth(Rules::kep()));
    explore("growth, v1.36", node_with_growth(Rules::v1_36()));
}

#[test]
fn the_model_catches_a_container_that_never_starts_beside_one_that_holds_memory() {
    let bounds = node_with_holder(Rules::kep(), [RestartPolicy::NotRequired; 2]);
    let protocol = Protocol { broken: Some(Broken::StartsWithAllOrNothing), ..bounds };
    let checker = protocol.checker().threads(2).spawn_bfs().join();
    assert!(checker.discovery(properties::ENDS_WELL).is_some(), "it went unnoticed");
}

#[test]
fn the_model_catches_a_rule_that_is_broken() {
    let bounds = full_node(Rules::kep(), [RestartPolicy::NotRequired; 2]);
    for (broken, property) in [
        (Broken::TrustsItselfAfterAFailure, properties::CONTAINERS_WITHIN_POD),
        (Broken::IgnoresWhatIsActual, properties::NODE_NOT_OVERCOMMITTED),
        (Broken::ForgetsAllocations, properties::ALLOCATIONS_FIT),
    ] {
        let protocol = Protocol { broken: Some(broken), ..bounds.clone() };
        let checker = protocol.checker().threads(2).spawn_bfs().join();
        assert!(checker.discovery(property).is_some(), "{broken:?} went unnoticed");
    }
}

#[test]
fn no_path_runs_in_circles() {
    use RestartPolicy::{NotRequired, RestartContainer};
    let bounds = full_node(Rules::kep(), [NotRequired; 2]);
    goes_straight(&Protocol { newcomer: None, resizes: 2, crashes: 1, failures: 0, ..bounds });
    goes_straight(&Protocol { crashes: 0, ..node_with_growth(Rules::kep()) });
    goes_straight(&Protocol {
        crashes: 0,
        exits: 1,
        ..node_with_holder(Rules::kep(), [NotRequired, RestartContainer])
    });
}

fn goes_straight(protocol: &Protocol) {
    // A depth-first walk: a state that is met again while it is still being left is on a circle.
    let mut done = std::collections::HashSet::new();
    let mut leaving = std::collections::HashSet::new();
    let mut path: Vec<(State, Vec<Action>)> = Vec::new();
    let enter = |state: State, path: &mut Vec<(State, Vec<Action>)>| {
        let mut actions = Vec::new();
        protocol.actions(&state, &mut actions);
        path.push((state, actions));
    };
    for state in protocol.init_states() {
        leaving.insert(state.clone());
        enter(state, &mut path);
    }
    while let Some((state, actions)) = path.last_mut() {
        let Some(action) = actions.pop() else {
            leaving.remove(state);
            done.insert(state.clone());
            path.pop();
            continue;
        };
        let next = protocol.next_state(state, action).expect("offered actions can be taken");
        assert!(!leaving.contains(&next), "a path comes back to where it was");
        if !done.contains(&next) {
            leaving.insert(next.clone());
            enter(next, &mut path);
        }
    }
}
