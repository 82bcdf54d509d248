//! A cluster that is edited at random for half an hour of its own time, and what must hold in it all along.
//!
//! ```text
//!   edits ──▶ API ◀── lag ──▶ controllers, scheduler, agents: each is cut off now and then
//!              │
//!              └── watch ──▶ witness: every event, in order ──▶ laws
//! ```
//!
//! Chance comes from a seed. The same seed does the same edits at the same times; the process's own randomness (uids,
//! suffixes of names, the order in hash maps) is another one each time.

mod edits;
mod lag;
mod laws;
mod ledger;
mod rest;
mod story;
mod witness;
mod world;
mod zoo;

use std::time::{Duration, Instant};

use self::edits::Editor;
use self::laws::Laws;
use self::ledger::ByHand;
use self::story::Story;
use self::witness::Witness;
use self::world::World;
use super::dice::Dice;

/// How long workloads have to come about, and to come to rest in the end.
const TO_BEGIN: Duration = Duration::from_secs(30);
const TO_REST: Duration = Duration::from_mins(30);

/// How much is soaked.
struct Soak {
    seed: u64,
    nodes: u16,
    workloads: u64,
    time: Duration,
    /// The longest between two edits, in milliseconds.
    between: u64,
}

/// Who sees what happens, and judges it.
struct Court {
    witness: Witness,
    laws: Laws,
    story: Story,
}

impl Soak {
    async fn run(&self) {
        let real = Instant::now();
        let mut dice = Dice::new(self.seed);
        let mut world = World::start(self.nodes, Dice::new(dice.next())).await;
        let by_hand = ByHand::default();
        let mut court = Court {
            witness: Witness::listen(&world.admin()),
            laws: Laws::new(by_hand.clone()),
            story: Story::default(),
        };
        let mut editor = Editor::begin(world.admin(), self.workloads, by_hand, Dice::new(dice.next())).await;

        self.pass(&world, &mut court, TO_BEGIN).await;
        let watches = world.watches();
        let end = world.age() + self.time;
        while world.age() < end {
            editor.edit(&mut world).await;
            let pause = Duration::from_millis(editor.dice.below(self.between));
            self.pass(&world, &mut court, pause).await;
        }
        println!(
            "{}: {} writes, {:?}, {:?} real",
            self.moment(&world),
            world.writes(),
            editor.done,
            real.elapsed()
        );
        editor.come_to_rest(&world).await;
        let deadline = world.age() + TO_REST;
        loop {
            self.pass(&world, &mut court, Duration::from_secs(5)).await;
            let Err(unrest) = rest::at_rest(&world, &court.laws).await else { break };
            assert!(world.age() < deadline, "{}: it does not come to rest: {unrest}", self.moment(&world));
        }
        // Whoever was cut off watches no more.
        assert_eq!(world.watches(), watches, "{}: watches", self.moment(&world));
        println!(
            "seed {}: {:?} of virtual time in {:?}, {} writes, {} events judged, {} pods at the end, {:?}",
            self.seed,
            world.age(),
            real.elapsed(),
            world.writes(),
            court.laws.judged,
            court.laws.pods.iter().count(),
            editor.done,
        );
        world.end().await;
    }

    /// Lets time go by, and judges what happens.
    async fn pass(&self, world: &World, court: &mut Court, time: Duration) {
        let end = world.age() + time;
        while world.age() < end {
            for happening in court.witness.tick(|| world.writes()).await {
                let (revision, now) = (happening.revision, world.age());
                court.story.take(&happening, now);
                if let Err(broken) = court.laws.take(happening, now) {
                    let (moment, story) = (self.moment(world), court.story.tell());
                    panic!("{moment}, revision {revision}: {broken}\n{story}");
                }
            }
        }
    }

    fn moment(&self, world: &World) -> String {
        format!("seed {} of a soak, after {:?}, at {}", self.seed, world.age(), world.now())
    }
}

/// A number that somebody may say otherwise.
fn asked(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[tokio::test(start_paused = true)]
async fn nothing_is_broken_by_random_edits_for_three_minutes() {
    let seed = asked("PLUMB_SOAK_SEED", 1);
    Soak { seed, nodes: 10, workloads: 40, time: Duration::from_mins(3), between: 5_000 }.run().await;
}

#[tokio::test(start_paused = true)]
#[ignore = "takes minutes; PLUMB_SOAK_SEED says which edits, docs/proof.md how to run it"]
async fn nothing_is_broken_by_random_edits_for_half_an_hour() {
    let seed = asked("PLUMB_SOAK_SEED", 1);
    let time = Duration::from_mins(asked("PLUMB_SOAK_MINUTES", 30));
    Soak { seed, nodes: 50, workloads: 200, time, between: 4_000 }.run().await;
}
