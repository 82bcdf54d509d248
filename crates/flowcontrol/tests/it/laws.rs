//! What holds whatever happens to a level.

use std::collections::BTreeMap;
use std::time::Duration;

use plumb_flowcontrol::queue_set::{Arrival, Cancellation, QueueSet, Queuing, RequestId, Started, WhenFull};
use plumb_flowcontrol::work::WorkEstimate;
use proptest::prelude::{Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::test_runner::TestCaseError;

#[derive(Clone, Debug)]
enum Step {
    Start {
        flow: u64,
        seats: u32,
        lingers: bool,
        when_full: WhenFull,
    },
    /// Ends the request with this index among those that have not ended, in whichever state it is.
    End(usize),
    Release(usize),
    Limit(u32),
    Queues(u32),
    Reject,
    Sleep(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let when_full = prop_oneof![
        8 => Just(WhenFull::Reject),
        1 => Just(WhenFull::Wait),
        1 => Just(WhenFull::Dispatch),
    ];
    let start =
        (0_u64..6, 1_u32..6, any::<bool>(), when_full).prop_map(|(flow, seats, lingers, when_full)| {
            Step::Start { flow: flow.wrapping_mul(0x9E37_79B9_7F4A_7C15), seats, lingers, when_full }
        });
    let step = prop_oneof![
        10 => start,
        8 => any::<usize>().prop_map(Step::End),
        3 => any::<usize>().prop_map(Step::Release),
        1 => (0_u32..8).prop_map(Step::Limit),
        1 => (4_u32..32).prop_map(Step::Queues),
        1 => Just(Step::Reject),
        5 => (0_u64..50).prop_map(Step::Sleep),
    ];
    prop::collection::vec(step, 1..200)
}

/// A level, and what its caller knows.
struct Model {
    level: QueueSet<u32, u32>,
    queuing: Queuing,
    limit: u32,
    now: Duration,
    next: u32,
    waiting: BTreeMap<u32, RequestId>,
    executing: BTreeMap<u32, RequestId>,
    lingering: Vec<RequestId>,
}

impl Model {
    fn new() -> Self {
        let queuing = Queuing::Queue { queues: 8, hand_size: 3, queue_length_limit: 4 };
        Self {
            level: QueueSet::new(queuing, 4, Duration::ZERO),
            queuing,
            limit: 4,
            now: Duration::ZERO,
            next: 0,
            waiting: BTreeMap::new(),
            executing: BTreeMap::new(),
            lingering: Vec::new(),
        }
    }

    fn wake(&mut self, woken: Vec<u32>) -> Result<(), TestCaseError> {
        for ticket in woken {
            let id = self.waiting.remove(&ticket);
            prop_assert!(id.is_some(), "a ticket is given back once, and only while its request waits");
            self.executing.extend(id.map(|id| (ticket, id)));
        }
        Ok(())
    }

    fn perform(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let mut woken = Vec::new();
        match step {
            Step::Sleep(milliseconds) => self.now += Duration::from_millis(*milliseconds),
            Step::Start { flow, seats, lingers, when_full } => {
                let latency = Duration::from_millis(if *lingers { 5 } else { 0 });
                let work = WorkEstimate {
                    initial_seats: *seats,
                    final_seats: if *lingers { 3 } else { 0 },
                    additional_latency: latency,
                };
                let ticket = self.next;
                self.next += 1;
                let arrival = Arrival { flow_hash: *flow, work, when_full: *when_full, details: ticket };
                match self.level.start(arrival, self.now, &mut woken) {
                    Started::Dispatched(id) => {
                        self.executing.insert(ticket, id);
                    }
                    Started::Queued(id) => {
                        self.level.add_ticket(id, ticket);
                        self.waiting.insert(ticket, id);
                    }
                    Started::Rejected(_) => prop_assert_eq!(*when_full, WhenFull::Reject),
                }
            }
            Step::End(which) => self.end(*which, &mut woken),
            Step::Release(which) => {
                if !self.lingering.is_empty() {
                    let id = self.lingering.swap_remove(which % self.lingering.len());
                    self.level.release(id, self.now, &mut woken);
                }
            }
            Step::Limit(limit) => self.limit = *limit,
            Step::Queues(queues) => {
                self.queuing = Queuing::Queue { queues: *queues, hand_size: 3, queue_length_limit: 4 };
            }
            Step::Reject => self.queuing = Queuing::Reject,
        }
        self.level.configure(self.queuing, self.limit, self.now, &mut woken);
        self.wake(woken)
    }

    /// A client goes away, whatever the state of its request; a request that executes comes to its end.
    fn end(&mut self, which: usize, woken: &mut Vec<u32>) {
        let all: Vec<(u32, RequestId)> =
            self.waiting.iter().chain(&self.executing).map(|(ticket, id)| (*ticket, *id)).collect();
        if all.is_empty() {
            return;
        }
        let (ticket, id) = all[which % all.len()];
        if self.level.cancel(id, Cancellation::Disconnected, self.now, woken) {
            self.waiting.remove(&ticket);
        } else {
            self.executing.remove(&ticket);
            let lingers = self.level.finish(id, self.now, woken);
            self.lingering.extend(lingers.map(|_| id));
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let occupancy = self.level.occupancy();
        prop_assert_eq!(occupancy.waiting as usize, self.waiting.len());
        prop_assert_eq!(occupancy.executing as usize, self.executing.len());
        let in_queues: u32 =
            self.level.dump_queues().map(|queue| u32::try_from(queue.waiting).unwrap()).sum();
        prop_assert_eq!(occupancy.waiting, in_queues);
        let active =
            self.level.dump_queues().filter(|queue| queue.waiting > 0 || queue.executing > 0).count();
        prop_assert_eq!(occupancy.active_queues as usize, active);
        prop_assert_eq!(self.level.dump_requests().count(), self.waiting.len() + self.executing.len());
        // No wake-up is lost: as long as a request waits, something holds seats that it needs, or there are none.
        prop_assert!(occupancy.waiting == 0 || occupancy.seats_in_use > 0 || self.limit == 0);
        Ok(())
    }
}

proptest! {
    #[test]
    fn no_seat_and_no_wake_up_is_lost_and_every_request_is_dispatched_in_the_end(steps in steps()) {
        let mut model = Model::new();
        for step in &steps {
            model.perform(step)?;
            model.check()?;
        }
        // Everything that executes finishes, and nothing new comes.
        model.limit = model.limit.max(1);
        let mut rounds = 0;
        while !(model.waiting.is_empty() && model.executing.is_empty() && model.lingering.is_empty()) {
            model.perform(&Step::Sleep(1))?;
            model.perform(&Step::Release(0))?;
            let executing = model.executing.pop_first();
            if let Some((ticket, id)) = executing {
                let mut woken = Vec::new();
                let lingers = model.level.finish(id, model.now, &mut woken);
                model.lingering.extend(lingers.map(|_| id));
                model.wake(woken)?;
                prop_assert!(!model.waiting.contains_key(&ticket));
            }
            rounds += 1;
            prop_assert!(rounds < 10_000, "a request starves");
        }
        let occupancy = model.level.occupancy();
        prop_assert_eq!((occupancy.seats_in_use, occupancy.seats_waiting, occupancy.active_queues), (0, 0, 0));
        prop_assert_eq!(model.level.dump_queues().count(), 0);
        prop_assert!(model.level.is_idle());
    }
}

#[test]
fn busy_flows_get_about_equal_parts_of_the_seats() {
    let table: [&[(u32, u64)]; 5] = [
        &[(1, 3), (1, 3)],
        &[(1, 3), (1, 30), (1, 1)],
        &[(3, 5), (1, 5)],
        &[(2, 1), (1, 16)],
        &[(3, 4), (1, 19), (2, 7), (1, 3)],
    ];
    for work in table {
        let got = seat_milliseconds(work);
        let (least, most) = (*got.iter().min().unwrap(), *got.iter().max().unwrap());
        // Until it ends, a request counts as three milliseconds, which is much for a flow of shorter ones; and wide requests leave seats
        // unused now and then.
        assert!(least * 2 >= most, "seat-milliseconds of {work:?}: {got:?}");
    }
}

/// The seat-time of flows that always have requests waiting, in queues of their own, by the seats and the duration of their requests.
fn seat_milliseconds(work: &[(u32, u64)]) -> Vec<u64> {
    const ROUNDS: u64 = 4_000;
    // One queue per flow: the hash is the queue.
    let flows = u32::try_from(work.len()).unwrap();
    let queuing = Queuing::Queue { queues: flows, hand_size: 1, queue_length_limit: 1_000 };
    let mut level = QueueSet::<usize, ()>::new(queuing, 6, Duration::ZERO);
    let mut got = vec![0_u64; work.len()];
    let mut ids = Vec::new();
    let mut ends: Vec<(u64, RequestId)> = Vec::new();
    for now in 0..ROUNDS {
        let time = Duration::from_millis(now);
        let mut woken = Vec::new();
        let due: Vec<RequestId> = ends.iter().filter(|(end, _)| *end <= now).map(|(_, id)| *id).collect();
        ends.retain(|(end, _)| *end > now);
        for id in due {
            level.finish(id, time, &mut woken);
        }
        for (flow, (seats, _)) in work.iter().enumerate() {
            let waiting = level.dump_queues().find(|queue| queue.index as usize == flow);
            for _ in waiting.map_or(0, |queue| queue.waiting)..8 {
                let work = WorkEstimate { initial_seats: *seats, ..WorkEstimate::ONE_SEAT };
                let arrival =
                    Arrival { flow_hash: flow as u64, work, when_full: WhenFull::Reject, details: () };
                match level.start(arrival, time, &mut woken) {
                    Started::Queued(id) => {
                        level.add_ticket(id, ids.len());
                        ids.push((flow, id));
                    }
                    Started::Dispatched(id) => {
                        woken.push(ids.len());
                        ids.push((flow, id));
                    }
                    Started::Rejected(why) => panic!("{why:?}"),
                }
            }
        }
        for ticket in woken {
            let (flow, id) = ids[ticket];
            let (seats, length) = work[flow];
            got[flow] += u64::from(seats) * length;
            ends.push((now + length, id));
        }
    }
    got
}
