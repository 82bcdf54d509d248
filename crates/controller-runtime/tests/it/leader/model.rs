//! Many candidates whose clocks differ, and a network that delays and loses requests: there are never two leaders,
//! and once the network works there is one.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use plumb_controller_runtime::leader::{Durations, Election, Request, Response};
use proptest::prelude::*;
use tokio::time::Instant;

/// Milliseconds of the time that no candidate knows.
type Millis = u64;

/// How the network treats a request.
#[derive(Clone, Copy, Debug)]
struct Fate {
    there: Millis,
    back: Millis,
    request_lost: bool,
    answer_lost: bool,
}

const PROMPT: Fate = Fate { there: 1, back: 1, request_lost: false, answer_lost: false };

/// The clocks of a candidate: where they began, and how fast they go, in thousandths.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    monotonic: Millis,
    rate: u64,
    wall: i64,
}

#[derive(Clone, Debug)]
enum Step {
    /// A candidate begins an attempt.
    Attempt,
    /// A request reaches the API.
    Arrives { number: u64, request: Request, fate: Fate },
    /// An answer reaches the candidate.
    Answered { number: u64, response: Response },
    /// The candidate waits no longer.
    TimedOut { number: u64 },
    /// The process is killed and started anew.
    Restarts,
}

struct Candidate {
    election: Election,
    clocks: Clocks,
    /// The request that is waited for: its number, itself, and when it was sent.
    waits_for: Option<(u64, Request, Instant)>,
}

struct World {
    start: Instant,
    now: Millis,
    candidates: Vec<Candidate>,
    lease: Option<Lease>,
    version: u64,
    steps: BTreeMap<(Millis, u64), (usize, Step)>,
    last: u64,
    fates: std::vec::IntoIter<Fate>,
}

impl World {
    fn new(clocks: Vec<Clocks>, fates: Vec<Fate>, restarts: Vec<(usize, Millis)>) -> Self {
        let new = |(number, clocks)| Candidate {
            election: Election::new(format!("candidate-{number}"), Durations::default()),
            clocks,
            waits_for: None,
        };
        let mut world = Self {
            start: Instant::now(),
            now: 0,
            candidates: clocks.into_iter().enumerate().map(new).collect(),
            lease: None,
            version: 0,
            steps: BTreeMap::new(),
            last: 0,
            fates: fates.into_iter(),
        };
        for candidate in 0..world.candidates.len() {
            world.later(0, candidate, Step::Attempt);
        }
        for (candidate, at) in restarts {
            world.later(at, candidate % world.candidates.len(), Step::Restarts);
        }
        world
    }

    fn later(&mut self, after: Millis, candidate: usize, step: Step) {
        self.last += 1;
        self.steps.insert((self.now + after, self.last), (candidate, step));
    }

    /// The clocks of a candidate.
    fn clocks(&self, candidate: usize) -> (Instant, Timestamp) {
        let Clocks { monotonic, rate, wall } = self.candidates[candidate].clocks;
        let passed = self.now * rate / 1000;
        let wall = Timestamp::from_millisecond(wall + i64::try_from(passed).unwrap()).unwrap();
        (self.start + Duration::from_millis(monotonic + passed), wall)
    }

    /// When a time of a candidate's clock has passed for sure.
    fn real(&self, candidate: usize, local: Duration) -> Millis {
        let millis = u64::try_from(local.as_millis()).unwrap();
        millis * 1000 / self.candidates[candidate].clocks.rate + 1
    }

    fn send(&mut self, candidate: usize, request: Request) {
        let fate = self.fates.next().unwrap_or(PROMPT);
        self.last += 1;
        let (number, (sent, _)) = (self.last, self.clocks(candidate));
        self.candidates[candidate].waits_for = Some((number, request.clone(), sent));
        if !fate.request_lost {
            self.later(fate.there, candidate, Step::Arrives { number, request, fate });
        }
        let timeout = self.real(candidate, Durations::default().renew_deadline / 2);
        self.later(timeout, candidate, Step::TimedOut { number });
    }

    /// An action of the API server.
    fn serve(&mut self, request: Request) -> Response {
        match request {
            Request::Get => match &self.lease {
                Some(lease) => Response::Lease(Box::new(lease.clone())),
                None => Response::NotFound,
            },
            Request::Create(_) if self.lease.is_some() => Response::Failed,
            Request::Create(lease) => self.store(*lease),
            Request::Replace(lease) | Request::Renew(lease) => match &self.lease {
                Some(stored) if stored.metadata.resource_version == lease.metadata.resource_version => {
                    self.store(*lease)
                }
                _ => Response::Failed,
            },
        }
    }

    fn store(&mut self, mut lease: Lease) -> Response {
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        Response::Lease(Box::new(lease))
    }

    fn answer(&mut self, candidate: usize, number: u64, response: Response) {
        let waits_for = &mut self.candidates[candidate].waits_for;
        if waits_for.as_ref().is_none_or(|(awaited, _, _)| *awaited != number) {
            return;
        }
        let Some((_, request, sent)) = waits_for.take() else { return };
        let (now, wall) = self.clocks(candidate);
        let election = &mut self.candidates[candidate].election;
        if let Some(next) = election.answer(&request, sent, response, now, wall) {
            self.send(candidate, next);
        } else {
            let pause = self.real(candidate, Durations::default().retry_period);
            self.later(pause, candidate, Step::Attempt);
        }
    }

    fn perform(&mut self, candidate: usize, step: Step) {
        match step {
            Step::Attempt if self.candidates[candidate].waits_for.is_none() => {
                let (now, wall) = self.clocks(candidate);
                let request = self.candidates[candidate].election.begin(now, wall);
                self.send(candidate, request);
            }
            Step::Attempt => {}
            Step::Arrives { number, request, fate } => {
                let response = self.serve(request);
                if !fate.answer_lost {
                    self.later(fate.back, candidate, Step::Answered { number, response });
                }
            }
            Step::Answered { number, response } => self.answer(candidate, number, response),
            Step::TimedOut { number } => self.answer(candidate, number, Response::Failed),
            Step::Restarts => {
                let name = format!("candidate-{candidate}");
                self.candidates[candidate].election = Election::new(name, Durations::default());
                self.candidates[candidate].waits_for = None;
                self.later(0, candidate, Step::Attempt);
            }
        }
    }

    fn leaders(&self) -> Vec<usize> {
        let leads =
            |candidate: &usize| self.candidates[*candidate].election.is_leader(self.clocks(*candidate).0);
        (0..self.candidates.len()).filter(leads).collect()
    }

    /// Runs until a time. A candidate begins to lead in a step, so a check after each step finds any two leaders.
    fn run(&mut self, until: Millis) -> Result<(), TestCaseError> {
        while let Some(entry) = self.steps.first_entry() {
            let (at, _) = *entry.key();
            if at > until {
                break;
            }
            let (candidate, step) = entry.remove();
            self.now = at;
            let shown = format!("{step:?}");
            self.perform(candidate, step);
            let leaders = self.leaders();
            prop_assert!(leaders.len() <= 1, "{leaders:?} lead at {at} ms after {shown} of {candidate}");
        }
        self.now = until;
        Ok(())
    }
}

fn fate() -> impl Strategy<Value = Fate> {
    let delay = || prop_oneof![4 => 0_u64..50, 2 => 0_u64..6_000, 1 => 0_u64..40_000];
    (delay(), delay(), prop::bool::weighted(0.15), prop::bool::weighted(0.15))
        .prop_map(|(there, back, request_lost, answer_lost)| Fate { there, back, request_lost, answer_lost })
}

fn clocks() -> impl Strategy<Value = Clocks> {
    // No clock is one and a half times as fast as another.
    (0_u64..1_000_000, 820_u64..1_200, -100_000_000_i64..100_000_000)
        .prop_map(|(monotonic, rate, wall)| Clocks { monotonic, rate, wall })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn there_are_never_two_leaders_and_there_is_one_once_the_network_works(
        clocks in prop::collection::vec(clocks(), 2..5),
        fates in prop::collection::vec(fate(), 0..400),
        restarts in prop::collection::vec((0_usize..5, 0_u64..300_000), 0..6),
    ) {
        let mut world = World::new(clocks, fates, restarts);
        world.run(300_000)?;
        world.fates = Vec::new().into_iter();
        // Earlier requests may arrive for a while, and a lease that they renew has to expire.
        world.run(420_000)?;
        let leaders = world.leaders();
        prop_assert_eq!(leaders.len(), 1, "no candidate leads");
        world.run(480_000)?;
        prop_assert_eq!(world.leaders(), leaders, "and it stays the leader");
    }
}
