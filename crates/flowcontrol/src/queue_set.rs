//! The requests of one priority level: which are waiting, which are executing, and which one is dispatched next.
//!
//! A [`QueueSet`] is a state machine. Each call has the present time, and adds to a list the tickets of waiting requests that it has
//! dispatched, for the caller to wake. Every request that was started ends with [`finish`](QueueSet::finish) or
//! [`cancel`](QueueSet::cancel), whichever state it is in by then, so that no seat is lost when a waiting request is cancelled in the
//! moment in which it is dispatched.
//!
//! ```text
//!   start ──▶ rejected
//!     │
//!     ├─────▶ waiting ───────▶ executing ── finish ──▶ (seats still occupied ── release ──▶) gone
//!     └──────────┬───────────────▲
//!                └ cancel ▶ gone
//! ```
//!
//! Queues are served fairly as in KEP-1040: in a virtual world every queue with requests gets an equal part of the seats at every
//! instant, and of the waiting requests at the heads of queues the one is dispatched that would be finished first there. R, the progress
//! meter, is the seat-time that each such queue has got so far.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use crate::borrowing::{Demand, DemandIntegrator};
use crate::queue::{Queue, QueueSum, SeatTime};
use crate::shuffle::Hand;
use crate::slab::{Index, Slab};
use crate::work::WorkEstimate;

/// The assumed duration of a request, corrected when it is known: upstream's `estimatedServiceDuration`.
const ESTIMATED_SERVICE: Duration = Duration::from_millis(3);

/// What becomes of requests beyond the seats of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queuing {
    /// They are dispatched: the level has no limit.
    Exempt,
    /// They are rejected.
    Reject,
    /// They wait in queues.
    Queue {
        /// The number of queues.
        queues: u32,
        /// How many of them a flow may use.
        hand_size: u32,
        /// The most requests that wait in one queue.
        queue_length_limit: u32,
    },
}

/// What becomes of a request that finds its queue full, or no seat in a level without queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It is rejected.
    Reject,
    /// It waits. In a level without queues it is dispatched.
    Wait,
    /// It is dispatched at once, whatever the limit: it has had a seat before.
    Dispatch,
}

/// A request that arrives.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<D> {
    /// The hash of the flow, from which its hand of queues is dealt.
    pub flow_hash: u64,
    /// Its seats.
    pub work: WorkEstimate,
    /// What becomes of it if there is no capacity for it.
    pub when_full: WhenFull,
    /// What dumps show of it.
    pub details: D,
}

/// A started request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(Index);

/// The outcome of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// It is executing.
    Dispatched(RequestId),
    /// It is waiting. The caller adds a ticket before it makes another call.
    Queued(RequestId),
    /// It is rejected.
    Rejected(Rejection),
}

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The level has no queues and no free seat.
    ConcurrencyLimit,
    /// Its queue is full.
    QueueFull,
    /// It waited for too long.
    TimeOut,
}

impl Rejection {
    /// The reason in upstream's metrics.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::QueueFull => "queue-full",
            Self::TimeOut => "time-out",
        }
    }
}

/// Why a request is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancellation {
    /// It waited for too long.
    TimedOut,
    /// Its client has disconnected.
    Disconnected,
}

/// The requests of one priority level. `T` is the ticket of a waiting request, `D` is what dumps show of a request.
#[derive(Debug)]
pub struct QueueSet<T, D> {
    queuing: Queuing,
    limit: u32,
    /// The queues that are in use, by their index. Those beyond the configured number are drained, and then they are gone.
    queues: BTreeMap<u32, Queue>,
    requests: Slab<Request<T, D>>,
    /// The progress meter R, at `last`.
    r: SeatTime,
    last: Duration,
    /// The queue of the last dispatch. The next one is tried first, among those with equal virtual finish times.
    robin: u32,
    enqueues: usize,
    waiting: u32,
    executing: u32,
    seats_in_use: u32,
    seats_waiting: u32,
    active_queues: u32,
    demand: DemandIntegrator,
    totals: Totals,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Dispatched requests.
    pub dispatched: u64,
    /// Rejected requests, those included that waited in vain.
    pub rejected: u64,
    /// Requests that waited for too long.
    pub timed_out: u64,
    /// Requests whose client disconnected while they waited.
    pub cancelled: u64,
    /// Dispatches that failed because the next request needs more seats than are free.
    pub no_accommodation: u64,
}

/// The present state of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// The present limit of seats.
    pub limit: u32,
    /// Waiting requests.
    pub waiting: u32,
    /// Their seats.
    pub seats_waiting: u32,
    /// Executing requests.
    pub executing: u32,
    /// Their seats, and those that are still occupied after a response.
    pub seats_in_use: u32,
    /// Queues with waiting or executing requests.
    pub active_queues: u32,
    /// The progress meter.
    pub r: SeatTime,
    /// Counts since the start.
    pub totals: Totals,
}

#[derive(Debug)]
struct Request<T, D> {
    queue: Option<u32>,
    state: State,
    work: WorkEstimate,
    total_work: SeatTime,
    arrival_r: SeatTime,
    arrived: Duration,
    started: Duration,
    ticket: Option<T>,
    details: D,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Executing,
    /// It has finished, and occupies its seats during the additional latency.
    Lingering,
}

/// A queue in a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueDump {
    /// Its index.
    pub index: u32,
    /// How many requests wait in it.
    pub waiting: usize,
    /// How many of its requests are executing.
    pub executing: u32,
    /// Their seats.
    pub seats_in_use: u32,
    /// When its next request is dispatched in the virtual world.
    pub next_dispatch_r: SeatTime,
    /// Sums over its waiting requests.
    pub sum: QueueSum,
}

/// A request in a dump.
#[derive(Clone, Copy, Debug)]
pub struct RequestDump<'a, D> {
    /// Its queue, if it has one.
    pub queue: Option<u32>,
    /// Its place among the waiting requests of the queue; `None` if it is executing.
    pub position: Option<usize>,
    /// Its seats.
    pub work: WorkEstimate,
    /// When it arrived.
    pub arrived: Duration,
    /// When it was dispatched, if it was.
    pub started: Option<Duration>,
    /// What the caller knows of it.
    pub details: &'a D,
}

impl<T, D> QueueSet<T, D> {
    /// A level without requests.
    pub fn new(queuing: Queuing, limit: u32, now: Duration) -> Self {
        Self {
            queuing,
            limit,
            queues: BTreeMap::new(),
            requests: Slab::default(),
            r: SeatTime::default(),
            last: now,
            robin: 0,
            enqueues: 0,
            waiting: 0,
            executing: 0,
            seats_in_use: 0,
            seats_waiting: 0,
            active_queues: 0,
            demand: DemandIntegrator::new(now),
            totals: Totals::default(),
        }
    }

    /// Changes the configuration and the limit of seats. Requests that are waiting stay in their queues.
    pub fn configure(&mut self, queuing: Queuing, limit: u32, now: Duration, dispatched: &mut Vec<T>) {
        self.advance(now);
        self.queuing = queuing;
        self.limit = limit;
        self.dispatch(dispatched);
    }

    /// Starts a request.
    pub fn start(&mut self, arrival: Arrival<D>, now: Duration, dispatched: &mut Vec<T>) -> Started {
        self.advance(now);
        let Arrival { flow_hash, work, when_full, details } = arrival;
        let total_work = SeatTime::new(work.initial_seats, ESTIMATED_SERVICE)
            + SeatTime::new(work.final_seats, work.additional_latency);
        let request = Request {
            queue: None,
            state: State::Waiting,
            work,
            total_work,
            arrival_r: self.r,
            arrived: now,
            started: now,
            ticket: None,
            details,
        };
        let (queues, hand_size, queue_length_limit) = match self.queuing {
            Queuing::Queue { queues, hand_size, queue_length_limit } if when_full != WhenFull::Dispatch => {
                (queues, hand_size, queue_length_limit)
            }
            _ if when_full == WhenFull::Reject && !self.accommodates(work.max_seats()) => {
                self.totals.rejected += 1;
                return Started::Rejected(Rejection::ConcurrencyLimit);
            }
            _ => {
                let id = self.requests.insert(request);
                self.execute(id);
                return Started::Dispatched(RequestId(id));
            }
        };
        let index = self.choose_queue(Hand::deal(queues, hand_size, flow_hash));
        let length = self.queues.get(&index).map_or(0, |queue| queue.waiting.len());
        let is_full = usize::try_from(queue_length_limit).is_ok_and(|most| length >= most);
        if self.seats_in_use >= self.limit && is_full && when_full == WhenFull::Reject {
            self.totals.rejected += 1;
            return Started::Rejected(Rejection::QueueFull);
        }
        let id = self.requests.insert(Request { queue: Some(index), ..request });
        self.activate(index);
        let seats = work.max_seats();
        // Nothing else waits, so there is nothing to choose from, and no need to pass through the queue.
        if self.waiting == 0 && self.seats_in_use < self.limit && self.accommodates(seats) {
            self.robin = index;
            self.execute(id);
            return Started::Dispatched(RequestId(id));
        }
        self.enqueue(index, id);
        self.dispatch(dispatched);
        match self.requests.get(id).map(|request| request.state) {
            Some(State::Waiting) => Started::Queued(RequestId(id)),
            _ => Started::Dispatched(RequestId(id)),
        }
    }

    /// Adds the ticket of a request that was queued.
    pub fn add_ticket(&mut self, id: RequestId, ticket: T) {
        if let Some(request) = self.requests.get_mut(id.0).filter(|request| request.state == State::Waiting) {
            request.ticket = Some(ticket);
        }
    }

    /// Finishes a request that is executing. Returns for how long it still occupies its seats, if it does; the caller then calls
    /// [`release`](Self::release).
    pub fn finish(&mut self, id: RequestId, now: Duration, dispatched: &mut Vec<T>) -> Option<Duration> {
        self.advance(now);
        let request = self.requests.get_mut(id.0).filter(|request| request.state == State::Executing)?;
        request.state = State::Lingering;
        let WorkEstimate { initial_seats, additional_latency, .. } = request.work;
        let actual = now.saturating_sub(request.started);
        let index = request.queue;
        self.executing -= 1;
        if let Some((index, queue)) = index.and_then(|index| Some((index, self.queues.get_mut(&index)?))) {
            queue.executing -= 1;
            // Its duration is known now.
            queue.next_dispatch_r -= SeatTime::new(initial_seats, ESTIMATED_SERVICE);
            queue.next_dispatch_r += SeatTime::new(initial_seats, actual);
            if !queue.is_active() {
                self.active_queues -= 1;
            }
            self.bound_next_dispatch(index);
        }
        if additional_latency.is_zero() {
            self.release_seats(id.0);
        }
        self.dispatch(dispatched);
        (!additional_latency.is_zero()).then_some(additional_latency)
    }

    /// Releases the seats of a request that has finished.
    pub fn release(&mut self, id: RequestId, now: Duration, dispatched: &mut Vec<T>) {
        self.advance(now);
        if self.requests.get(id.0).is_some_and(|request| request.state == State::Lingering) {
            self.release_seats(id.0);
            self.dispatch(dispatched);
        }
    }

    /// Cancels a request. Returns whether it was still waiting; if it has been dispatched meanwhile, it is executing, and the caller
    /// finishes it.
    pub fn cancel(
        &mut self,
        id: RequestId,
        why: Cancellation,
        now: Duration,
        dispatched: &mut Vec<T>,
    ) -> bool {
        self.advance(now);
        let Some(request) = self.requests.get(id.0).filter(|request| request.state == State::Waiting) else {
            return false;
        };
        if let Some(index) = request.queue {
            let position = self
                .queues
                .get(&index)
                .and_then(|queue| queue.waiting.iter().position(|waiting| *waiting == id.0));
            if let Some(position) = position {
                self.remove_waiting(index, position);
            }
            self.requests.remove(id.0);
            if let Some(queue) = self.queues.get(&index)
                && !queue.is_active()
            {
                self.active_queues -= 1;
            }
            self.bound_next_dispatch(index);
            self.remove_if_unused(index);
        }
        self.totals.rejected += 1;
        match why {
            Cancellation::TimedOut => self.totals.timed_out += 1,
            Cancellation::Disconnected => self.totals.cancelled += 1,
        }
        self.observe_demand();
        // It may have been too wide for the free seats, which are enough for others.
        self.dispatch(dispatched);
        true
    }

    /// The seat demand since the last call.
    pub fn take_demand(&mut self, now: Duration) -> Demand {
        self.advance(now);
        self.demand.reset(now)
    }

    /// The present state.
    pub fn occupancy(&self) -> Occupancy {
        Occupancy {
            limit: self.limit,
            waiting: self.waiting,
            seats_waiting: self.seats_waiting,
            executing: self.executing,
            seats_in_use: self.seats_in_use,
            active_queues: self.active_queues,
            r: self.r,
            totals: self.totals,
        }
    }

    /// Whether no request is waiting or executing.
    pub fn is_idle(&self) -> bool {
        self.waiting == 0 && self.executing == 0
    }

    /// What dumps show of a request.
    pub fn details(&self, id: RequestId) -> Option<&D> {
        self.requests.get(id.0).map(|request| &request.details)
    }

    /// How many requests wait in the queue of a request.
    pub fn queue_length(&self, id: RequestId) -> usize {
        let index = self.requests.get(id.0).and_then(|request| request.queue);
        index.and_then(|index| self.queues.get(&index)).map_or(0, |queue| queue.waiting.len())
    }

    /// The queues that are in use.
    pub fn dump_queues(&self) -> impl Iterator<Item = QueueDump> {
        self.queues.iter().map(|(index, queue)| QueueDump {
            index: *index,
            waiting: queue.waiting.len(),
            executing: queue.executing,
            seats_in_use: queue.seats_in_use,
            next_dispatch_r: queue.next_dispatch_r,
            sum: queue.sum,
        })
    }

    /// The requests that are waiting or executing.
    pub fn dump_requests(&self) -> impl Iterator<Item = RequestDump<'_, D>> {
        let waiting = self.queues.values().flat_map(|queue| queue.waiting.iter().enumerate());
        let waiting = waiting.filter_map(|(position, id)| Some((Some(position), self.requests.get(*id)?)));
        let executing = self.requests.iter().filter(|request| request.state == State::Executing);
        waiting.chain(executing.map(|request| (None, request))).map(|(position, request)| RequestDump {
            queue: request.queue,
            position,
            work: request.work,
            arrived: request.arrived,
            started: position.is_none().then_some(request.started),
            details: &request.details,
        })
    }

    /// Advances the progress meter, as the present requests have shared the seats since the last call.
    fn advance(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.last);
        self.last = self.last.max(now);
        if self.active_queues > 0 {
            let seats = self.seats_in_use.saturating_add(self.seats_waiting).min(self.limit);
            self.r += SeatTime::shared(seats, elapsed, self.active_queues);
        }
    }

    /// The queue of the hand with the least waiting work. The order in which they are tried rotates, since hands of different flows
    /// overlap.
    fn choose_queue(&mut self, hand: Hand) -> u32 {
        let hand = hand.queues();
        let offset = self.enqueues % hand.len().max(1);
        self.enqueues = self.enqueues.wrapping_add(1);
        let (before, after) = hand.split_at(offset.min(hand.len()));
        let work = |index: &u32| self.queues.get(index).map_or(SeatTime::default(), |queue| queue.sum.work);
        // The first of several with the least.
        after.iter().chain(before).copied().min_by_key(work).unwrap_or(0)
    }

    /// Whether there are enough free seats. A request that needs more than the limit is dispatched once nothing else is executing.
    fn accommodates(&self, seats: u32) -> bool {
        match self.queuing {
            Queuing::Exempt => true,
            _ if seats > self.limit => self.executing == 0,
            _ => self.seats_in_use.saturating_add(seats) <= self.limit,
        }
    }

    /// Begins the use of a queue, if it has no requests.
    fn activate(&mut self, index: u32) {
        let r = self.r;
        let queue = self.queues.entry(index).or_default();
        if !queue.is_active() {
            queue.next_dispatch_r = r;
            self.active_queues += 1;
        }
    }

    fn enqueue(&mut self, index: u32, id: Index) {
        let Some(request) = self.requests.get(id) else { return };
        let (work, total_work) = (request.work, request.total_work);
        if let Some(queue) = self.queues.get_mut(&index) {
            queue.waiting.push_back(id);
            queue.sum.initial_seats += u64::from(work.initial_seats);
            queue.sum.max_seats += u64::from(work.max_seats());
            queue.sum.work += total_work;
        }
        self.waiting += 1;
        self.seats_waiting = self.seats_waiting.saturating_add(work.max_seats());
        self.observe_demand();
        self.bound_next_dispatch(index);
    }

    /// Takes a waiting request out of its queue.
    fn remove_waiting(&mut self, index: u32, position: usize) -> Option<Index> {
        let queue = self.queues.get_mut(&index)?;
        let id = queue.waiting.remove(position)?;
        let request = self.requests.get(id)?;
        queue.sum.initial_seats -= u64::from(request.work.initial_seats);
        queue.sum.max_seats -= u64::from(request.work.max_seats());
        queue.sum.work -= request.total_work;
        self.waiting -= 1;
        self.seats_waiting = self.seats_waiting.saturating_sub(request.work.max_seats());
        Some(id)
    }

    /// Dispatches as many requests as there are seats for.
    fn dispatch(&mut self, dispatched: &mut Vec<T>) {
        while self.waiting > 0 && (self.seats_in_use < self.limit || self.queuing == Queuing::Exempt) {
            let Some((index, seats)) = self.next_queue() else { return };
            if !self.accommodates(seats) {
                self.totals.no_accommodation += 1;
                return;
            }
            let Some(id) = self.remove_waiting(index, 0) else { return };
            self.robin = index;
            self.fit_final_seats(id);
            self.execute(id);
            dispatched.extend(self.requests.get_mut(id).and_then(|request| request.ticket.take()));
            self.bound_next_dispatch(index);
        }
    }

    /// The queue whose first request is finished first in the virtual world, and the seats of that request.
    fn next_queue(&self) -> Option<(u32, u32)> {
        let round =
            self.queues.range((Excluded(self.robin), Unbounded)).chain(self.queues.range(..=self.robin));
        let heads = round.filter_map(|(index, queue)| {
            let head = self.requests.get(*queue.waiting.front()?)?;
            Some((queue.next_dispatch_r + head.total_work, *index, head.work.max_seats()))
        });
        // The first of several with the least.
        heads.min_by_key(|(finish, ..)| *finish).map(|(_, index, seats)| (index, seats))
    }

    /// Spreads the work after the response over fewer seats and a longer time, if the level has fewer.
    fn fit_final_seats(&mut self, id: Index) {
        let limit = self.limit;
        if let Some(request) = self.requests.get_mut(id)
            && request.work.final_seats > limit
            && limit > 0
        {
            let WorkEstimate { final_seats, additional_latency, .. } = request.work;
            request.work.additional_latency = SeatTime::new(final_seats, additional_latency).per_seat(limit);
            request.work.final_seats = limit;
        }
    }

    fn execute(&mut self, id: Index) {
        let now = self.last;
        let Some(request) = self.requests.get_mut(id) else { return };
        request.state = State::Executing;
        request.started = now;
        let seats = request.work.max_seats();
        let total_work = request.total_work;
        let queue = request.queue.and_then(|index| self.queues.get_mut(&index));
        if let Some(queue) = queue {
            queue.executing += 1;
            queue.seats_in_use = queue.seats_in_use.saturating_add(seats);
            queue.next_dispatch_r += total_work;
        }
        self.executing += 1;
        self.seats_in_use = self.seats_in_use.saturating_add(seats);
        self.totals.dispatched += 1;
        self.observe_demand();
    }

    fn release_seats(&mut self, id: Index) {
        let Some(request) = self.requests.remove(id) else { return };
        let seats = request.work.max_seats();
        self.seats_in_use = self.seats_in_use.saturating_sub(seats);
        if let Some(index) = request.queue {
            if let Some(queue) = self.queues.get_mut(&index) {
                queue.seats_in_use = queue.seats_in_use.saturating_sub(seats);
            }
            self.remove_if_unused(index);
        }
        self.observe_demand();
    }

    fn remove_if_unused(&mut self, index: u32) {
        if self.queues.get(&index).is_some_and(Queue::is_unused) {
            self.queues.remove(&index);
        }
    }

    /// Dispatch does not precede arrival in the virtual world either: a queue that does not use its part of the seats would
    /// otherwise save it up, and keep the others waiting later.
    fn bound_next_dispatch(&mut self, index: u32) {
        if let Some(queue) = self.queues.get_mut(&index)
            && let Some(head) = queue.waiting.front().and_then(|id| self.requests.get(*id))
        {
            queue.next_dispatch_r = queue.next_dispatch_r.max(head.arrival_r);
        }
    }

    fn observe_demand(&mut self) {
        self.demand.set(self.last, self.seats_in_use.saturating_add(self.seats_waiting));
    }
}
