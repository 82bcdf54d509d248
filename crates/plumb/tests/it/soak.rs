//! A soak test: random edits of a cluster for half an hour of virtual time, with invariants that are checked at every event.
//!
//! ```text
//!   edits ──▶ API ◀── lag ──▶ controllers, scheduler, agents: each is killed and restarted now and then
//!              │
//!              └── watch ──▶ observer: every event, in order ──▶ invariants
//! ```
//!
//! A seed decides all random choices: the same seed does the same edits at the same times. The randomness of the process (uids,
//! suffixes of names, the order of hash maps) differs each time.

mod cluster;
mod converged;
mod edits;
mod event_log;
mod invariants;
mod lag;
mod observed_pods;
mod observer;
mod workloads;

use std::time::{Duration, Instant};

use self::cluster::Cluster;
use self::edits::Editor;
use self::event_log::EventLog;
use self::invariants::Invariants;
use self::observed_pods::DeletedByEditor;
use self::observer::Observer;
use super::dice::Dice;

/// How long workloads have to start before the first edit.
const START_PERIOD: Duration = Duration::from_secs(30);
/// How long the cluster has to converge after the last edit.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_mins(30);

/// The parameters of a soak.
struct Soak {
    seed: u64,
    nodes: u16,
    workloads: u64,
    time: Duration,
    /// The longest pause between two edits, in milliseconds.
    between: u64,
}

/// Observes all events and checks the invariants.
struct Monitor {
    observer: Observer,
    invariants: Invariants,
    event_log: EventLog,
}

impl Soak {
    async fn run(&self) {
        let real = Instant::now();
        let mut dice = Dice::new(self.seed);
        let mut cluster = Cluster::start(self.nodes, Dice::new(dice.next())).await;
        let deleted_by_editor = DeletedByEditor::default();
        let mut monitor = Monitor {
            observer: Observer::start(&cluster.admin()),
            invariants: Invariants::new(deleted_by_editor.clone()),
            event_log: EventLog::default(),
        };
        let mut editor =
            Editor::start(cluster.admin(), self.workloads, deleted_by_editor, Dice::new(dice.next())).await;

        self.advance(&cluster, &mut monitor, START_PERIOD).await;
        let watches = cluster.watches();
        let end = cluster.age() + self.time;
        while cluster.age() < end {
            editor.edit(&mut cluster).await;
            let pause = Duration::from_millis(editor.dice.below(self.between));
            self.advance(&cluster, &mut monitor, pause).await;
        }
        println!(
            "{}: {} writes, {:?}, {:?} real",
            self.moment(&cluster),
            cluster.writes(),
            editor.counts,
            real.elapsed()
        );
        editor.set_final_state(&cluster).await;
        let deadline = cluster.age() + CONVERGENCE_TIMEOUT;
        loop {
            self.advance(&cluster, &mut monitor, Duration::from_secs(5)).await;
            let Err(difference) = converged::check_converged(&cluster, &monitor.invariants).await else {
                break;
            };
            assert!(
                cluster.age() < deadline,
                "{}: it does not converge: {difference}",
                self.moment(&cluster)
            );
        }
        // Components that were killed have no watches left.
        assert_eq!(cluster.watches(), watches, "{}: watches", self.moment(&cluster));
        println!(
            "seed {}: {:?} of virtual time in {:?}, {} writes, {} events checked, {} pods at the end, {:?}",
            self.seed,
            cluster.age(),
            real.elapsed(),
            cluster.writes(),
            monitor.invariants.checked,
            monitor.invariants.pods.iter().count(),
            editor.counts,
        );
        cluster.end().await;
    }

    /// Advances the virtual time, and checks all events.
    async fn advance(&self, cluster: &Cluster, monitor: &mut Monitor, time: Duration) {
        let end = cluster.age() + time;
        while cluster.age() < end {
            for event in monitor.observer.tick(|| cluster.writes()).await {
                let (revision, now) = (event.revision, cluster.age());
                monitor.event_log.push(&event, now);
                if let Err(violation) = monitor.invariants.apply(event, now) {
                    let (moment, log) = (self.moment(cluster), monitor.event_log.render());
                    panic!("{moment}, revision {revision}: {violation}\n{log}");
                }
            }
        }
    }

    fn moment(&self, cluster: &Cluster) -> String {
        format!("seed {} of a soak, after {:?}, at {}", self.seed, cluster.age(), cluster.now())
    }
}

/// A number from an environment variable, or its default.
fn number_from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test(start_paused = true)]
async fn invariants_hold_under_random_edits_for_three_minutes() {
    let seed = number_from_env("PLUMB_SOAK_SEED", 1);
    Soak { seed, nodes: 10, workloads: 40, time: Duration::from_mins(3), between: 5_000 }.run().await;
}

#[tokio::test(start_paused = true)]
#[ignore = "takes minutes; PLUMB_SOAK_SEED says which edits, docs/proof.md how to run it"]
async fn invariants_hold_under_random_edits_for_half_an_hour() {
    let seed = number_from_env("PLUMB_SOAK_SEED", 1);
    let time = Duration::from_mins(number_from_env("PLUMB_SOAK_MINUTES", 30));
    Soak { seed, nodes: 50, workloads: 200, time, between: 4_000 }.run().await;
}
