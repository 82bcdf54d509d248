//! The word in `status.resize`: which one wins, and how it may change.

use plumb_resize::rules::Rules;
use plumb_resize::status::{
    Allocation, Cause, Pending, PendingReason, PodResizeStatus, TRANSITIONS, project, transition_is_legal,
};

use super::super::cluster::Cluster;
use super::super::sizes::{resources, size};
use super::cluster;
use Cause::{Accepted, Completed, Postponed, Refused, Requested};
use PodResizeStatus::{Deferred, InProgress, Infeasible, Proposed};

#[test]
fn the_resize_status_is_that_of_the_latest_desired_resources() {
    let (old, new, newest) = (resources("100 64"), resources("200 64"), resources("300 64"));
    let refused = |reason| Some(Pending { reason, message: "why".to_owned(), generation: 3 });
    let (put_off, never) = (refused(PendingReason::Deferred), refused(PendingReason::Infeasible));
    let table = [
        ("all the same", &new, &new, &new, None, None, None),
        ("allocated, not actual", &new, &new, &old, None, None, Some(InProgress)),
        ("allocated, and failing", &new, &new, &old, None, Some("broken"), Some(InProgress)),
        ("not looked at", &newest, &new, &new, None, None, Some(Proposed)),
        ("not looked at, and an older one on its way", &newest, &new, &old, None, None, Some(Proposed)),
        ("put off", &newest, &new, &new, put_off.clone(), None, Some(Deferred)),
        ("put off, and an older one on its way", &newest, &new, &old, put_off.clone(), None, Some(Deferred)),
        ("put off, and an older one failing", &newest, &new, &old, put_off, Some("broken"), Some(Deferred)),
        ("refused", &newest, &new, &new, never.clone(), None, Some(Infeasible)),
        ("refused, and an older one failing", &newest, &new, &old, never, Some("broken"), Some(Infeasible)),
    ];
    for (name, desired, allocated, actual, pending, error, expected) in table {
        let allocation = Allocation {
            pending: pending.clone(),
            error: error.map(ToOwned::to_owned),
            ..Allocation::new(allocated.clone(), 2)
        };
        let kep = project(&allocation, desired, 3, actual, &Rules::kep());
        assert_eq!(kep.resize_status, expected, "{name}");
        let shipped = project(&allocation, desired, 3, actual, &Rules::v1_36());
        assert_eq!(shipped.resize_status, None, "{name}: conditions only");
        assert_eq!((shipped.pending, shipped.in_progress), (kep.pending, kep.in_progress), "{name}");

        // While the runtime has yet to confirm the actual resources, an allocated resize is in progress.
        let mut unconfirmed = project(&allocation, desired, 3, actual, &Rules::kep());
        unconfirmed.keep_in_progress(&allocation, &Rules::kep());
        assert_eq!(unconfirmed.resize_status, expected.or(Some(InProgress)), "{name}");
        let progress = unconfirmed.in_progress.map(|progress| (progress.generation, progress.error));
        assert_eq!(progress, Some((2, error.map(ToOwned::to_owned))), "{name}");
    }
}

#[test]
fn one_resize_status_is_for_cpu_and_memory_together() {
    // The cpu would fit and the memory would not: nothing is taken, and there is one word for both.
    let mut cluster = cluster(Rules::kep());
    cluster.ask("200/250 65536/65536");
    cluster.decide();
    cluster.report(10);
    assert_eq!(cluster.word(), Some("Infeasible"));
    // The CPU is actual and the memory is not yet.
    let mut cluster = super::cluster(Rules::kep());
    cluster.ask("150/200 96/128");
    cluster.decide();
    cluster.cgroups.containers[0] = Some(size("150/200 64/128"));
    cluster.report(10);
    assert_eq!(cluster.word(), Some("InProgress"));
}

/// A pod whose word is `word`, where the latest desired state is one that `cause` can happen to.
fn at_word(word: Option<PodResizeStatus>, cause: Cause) -> Cluster {
    let mut cluster = cluster(Rules::kep());
    cluster.neighbour(2_000);
    let desired = match (word, cause) {
        (None, _) => return cluster,
        (Some(Deferred), _) | (Some(Proposed), Postponed) => "3000/3000 64/128",
        (Some(Infeasible), _) | (Some(Proposed), Refused) => "5000/5000 64/128",
        (Some(Proposed | InProgress), _) => "150/200 64/128",
    };
    cluster.ask(desired);
    if word != Some(Proposed) {
        cluster.decide();
        cluster.report(10);
    }
    cluster
}

/// Makes `cause` happen.
fn happen(cluster: &mut Cluster, from: Option<PodResizeStatus>, cause: Cause) {
    match cause {
        Requested => cluster.ask("160/200 64/128"),
        Accepted | Completed => {
            if from.is_none() {
                // Another process changed the cgroup.
                cluster.cgroups.containers[0] = Some(size("90/200 64/128"));
            }
            if matches!(from, Some(Deferred | Infeasible)) {
                cluster.move_to_node(16_000);
            }
            cluster.decide();
            if cause == Completed {
                cluster.carry_out();
            }
            cluster.report(20);
        }
        Postponed => {
            if from == Some(Infeasible) {
                cluster.move_to_node(6_000);
                cluster.neighbour(2_000);
            }
            cluster.decide();
            cluster.report(20);
        }
        Refused => {
            if from == Some(Deferred) {
                cluster.move_to_node(2_500);
            }
            cluster.decide();
            cluster.report(20);
        }
    }
}

#[test]
fn every_row_of_the_table_happens() {
    for (from, cause, to) in TRANSITIONS {
        let mut cluster = at_word(*from, *cause);
        assert_eq!(cluster.word(), from.map(PodResizeStatus::name), "before {from:?} {cause:?}");
        happen(&mut cluster, *from, *cause);
        assert_eq!(cluster.word(), to.map(PodResizeStatus::name), "{from:?} {cause:?}");
        assert!(transition_is_legal(*from, *to));
    }
}

#[test]
fn transitions_that_are_not_in_the_table_are_invalid() {
    let words = [None, Some(Proposed), Some(InProgress), Some(Deferred), Some(Infeasible)];
    let illegal: Vec<_> = words
        .into_iter()
        .flat_map(|from| words.into_iter().map(move |to| (from, to)))
        .filter(|(from, to)| !transition_is_legal(*from, *to))
        .collect();
    // A node refuses only what was asked for, and asking says `Proposed` first.
    assert_eq!(
        illegal,
        [
            (None, Some(Deferred)),
            (None, Some(Infeasible)),
            (Some(InProgress), Some(Deferred)),
            (Some(InProgress), Some(Infeasible)),
        ]
    );
}

#[test]
fn words_read_back_and_unknown_ones_are_deferred() {
    for word in [Proposed, InProgress, Deferred, Infeasible] {
        assert_eq!(PodResizeStatus::read(&word.to_string()), word);
    }
    for unknown in ["", "proposed", "Error", "Waiting"] {
        assert_eq!(PodResizeStatus::read(unknown), Deferred, "{unknown:?}");
    }
}
