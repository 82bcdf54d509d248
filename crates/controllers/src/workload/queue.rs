//! Which objects are to be looked at, and when.
//!
//! ```text
//!            touched                     taken                 done
//!   (idle) ──────────▶ ready ──────────────────▶ busy ──────────────▶ (idle)
//!                        ▲                        │ touched meanwhile, or failed: again
//!                        └──── later, at a time ◀─┘
//! ```
//!
//! An object is in it once, however often it is touched, and nobody takes one that somebody is busy with. One that took
//! long rests for longer: of a workload whose thousand pods become ready one by one each is not news of its own.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use plumb_follow::Place;
use tokio::sync::Notify;

/// How long the first and the longest wait after failures are.
const FIRST_WAIT: SignedDuration = SignedDuration::from_millis(5);
const LONGEST_WAIT: SignedDuration = SignedDuration::from_secs(30);

/// How many times as long as looking at an object took it is left alone afterwards, so that an object which is touched
/// all the time is looked at for a quarter of it; and for how long at most, so that nobody sees the difference.
const REST: i32 = 3;
const LONGEST_REST: SignedDuration = SignedDuration::from_millis(50);
/// How many rests may be over before they are forgotten.
const FORGET: usize = 1024;

/// Objects that are to be looked at.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Place>,
    /// What is in `ready`, or is to be as soon as nobody is busy with it.
    due: HashSet<Place>,
    /// What somebody is busy with, and since when.
    busy: HashMap<Place, Timestamp>,
    /// Until when objects are left alone.
    rests: HashMap<Place, Timestamp>,
    later: BTreeSet<(Timestamp, Place)>,
    /// When what is in `later` is due: an object waits for one time only, the first.
    alarms: HashMap<Place, Timestamp>,
    failures: HashMap<Place, u32>,
}

/// How looking at an object went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Went {
    /// All was done.
    Well,
    /// All was done, and it is to be looked at again now.
    Again,
    /// Something failed: it is looked at again after a wait, which grows with each failure.
    Badly,
}

impl Queue {
    /// An object is to be looked at now.
    pub fn touch(&self, at: Place) {
        self.state().touch(at);
        self.changed.notify_one();
    }

    /// An object is to be looked at when its time has come, if nobody looks at it before.
    pub fn touch_at(&self, at: Place, when: Timestamp) {
        self.state().alarm(at, when);
        self.changed.notify_one();
    }

    /// The next object to look at, which whoever takes it is busy with until it says that it is done.
    pub fn take(&self, now: Timestamp) -> Option<Place> {
        let mut state = self.state();
        while state.later.first().is_some_and(|(when, _)| *when <= now) {
            if let Some((_, at)) = state.later.pop_first() {
                state.alarms.remove(&at);
                state.touch(at);
            }
        }
        let at = loop {
            let at = state.ready.pop_front()?;
            state.due.remove(&at);
            match state.rests.get(&at).copied().filter(|until| *until > now) {
                Some(until) => state.alarm(at, until),
                None => break at,
            }
        };
        // Whoever looks now says anew when to look again.
        if let Some(when) = state.alarms.remove(&at) {
            state.later.remove(&(when, at.clone()));
        }
        state.busy.insert(at.clone(), now);
        Some(at)
    }

    /// Nobody is busy any more with an object.
    pub fn done(&self, at: Place, went: Went, now: Timestamp) {
        let mut state = self.state();
        if let Some(since) = state.busy.remove(&at) {
            state.rest(at.clone(), now.duration_since(since), now);
        }
        match went {
            Went::Well | Went::Again => {
                state.failures.remove(&at);
            }
            Went::Badly => {
                let failures = state.failures.entry(at.clone()).or_default();
                // Twice as long each time, up to the bound.
                let wait = FIRST_WAIT.saturating_mul(1 << (*failures).min(20)).min(LONGEST_WAIT);
                *failures += 1;
                let when = now.checked_add(wait).unwrap_or(Timestamp::MAX);
                state.alarm(at.clone(), when);
            }
        }
        if state.due.remove(&at) || went == Went::Again {
            state.touch(at);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Makes all objects ready that somebody was busy with who is no more: the task that took them panicked or was
    /// restarted. To be called before the first is taken.
    pub fn requeue_busy(&self) {
        let mut state = self.state();
        for (at, _) in std::mem::take(&mut state.busy) {
            state.due.remove(&at);
            state.touch(at);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// When the next object is due that waits for a time.
    pub fn next_at(&self) -> Option<Timestamp> {
        self.state().later.first().map(|(when, _)| *when)
    }

    /// Waits until something was added or done since this was last waited for.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits until something was added or done, or until the next object is due, seen from this moment.
    pub async fn due(&self, now: Timestamp) {
        let wait = self.next_at().map(|when| when.duration_since(now).try_into().unwrap_or_default());
        tokio::select! {
            () = self.changed() => {}
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each step leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn touch(&mut self, at: Place) {
        if self.due.insert(at.clone()) && !self.busy.contains_key(&at) {
            self.ready.push_back(at);
        }
    }

    fn rest(&mut self, at: Place, took: SignedDuration, now: Timestamp) {
        let rest = took.saturating_mul(REST).min(LONGEST_REST);
        if self.rests.len() >= FORGET {
            self.rests.retain(|_, until| *until > now);
        }
        match now.checked_add(rest) {
            Ok(until) if until > now => self.rests.insert(at, until),
            _ => self.rests.remove(&at),
        };
    }

    fn alarm(&mut self, at: Place, when: Timestamp) {
        match self.alarms.get(&at) {
            Some(before) if *before <= when => return,
            Some(before) => self.later.remove(&(*before, at.clone())),
            None => false,
        };
        self.alarms.insert(at.clone(), when);
        self.later.insert((when, at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(name: &str) -> Place {
        (String::new(), name.to_owned())
    }

    #[test]
    fn what_is_touched_often_is_taken_once_and_by_one() {
        let (queue, now) = (Queue::default(), Timestamp::UNIX_EPOCH);
        queue.touch(at("a"));
        queue.touch(at("a"));
        assert_eq!(queue.take(now), Some(at("a")));
        assert_eq!(queue.take(now), None);
        queue.touch(at("a"));
        assert_eq!(queue.take(now), None, "somebody is busy with it");
        queue.done(at("a"), Went::Well, now);
        assert_eq!(queue.take(now), Some(at("a")));
        queue.done(at("a"), Went::Well, now);
        assert_eq!(queue.take(now), None);
    }

    #[test]
    fn what_a_task_was_busy_with_that_was_restarted_is_taken_again_once() {
        let (queue, now) = (Queue::default(), Timestamp::UNIX_EPOCH);
        for name in ["a", "b", "c"] {
            queue.touch(at(name));
        }
        assert_eq!([queue.take(now), queue.take(now)], [Some(at("a")), Some(at("b"))]);
        queue.touch(at("a"));
        queue.requeue_busy();
        let mut again = [queue.take(now), queue.take(now), queue.take(now)];
        again.sort();
        assert_eq!(again, [Some(at("a")), Some(at("b")), Some(at("c"))]);
        assert_eq!(queue.take(now), None);
    }

    #[test]
    fn what_fails_waits_longer_each_time_until_it_goes_well() {
        let (queue, mut now) = (Queue::default(), Timestamp::UNIX_EPOCH);
        queue.touch(at("a"));
        let mut waits = Vec::new();
        for _ in 0..16 {
            assert_eq!(queue.take(now), Some(at("a")));
            queue.done(at("a"), Went::Badly, now);
            let next = queue.next_at().unwrap();
            waits.push(next.duration_since(now).as_millis());
            assert_eq!(queue.take(now), None);
            now = next;
        }
        assert_eq!(waits[..4], [5, 10, 20, 40]);
        assert_eq!(waits[15], 30_000);
        queue.take(now);
        queue.done(at("a"), Went::Well, now);
        queue.touch(at("a"));
        queue.take(now);
        queue.done(at("a"), Went::Badly, now);
        assert_eq!(queue.next_at().unwrap().duration_since(now).as_millis(), 5);
    }

    #[test]
    fn what_took_long_is_left_alone_for_longer_and_then_looked_at() {
        let after = |millis| Timestamp::UNIX_EPOCH.checked_add(SignedDuration::from_millis(millis)).unwrap();
        for (took, again) in [(0, 0), (4, 16), (400, 450)] {
            let queue = Queue::default();
            queue.touch(at("a"));
            assert_eq!(queue.take(after(0)), Some(at("a")));
            queue.done(at("a"), Went::Well, after(took));
            queue.touch(at("a"));
            queue.touch(at("b"));
            let others = if again == took { [Some(at("a")), Some(at("b"))] } else { [Some(at("b")), None] };
            assert_eq!([queue.take(after(took)), queue.take(after(took))], others, "{took}");
            if again > took {
                assert_eq!(queue.next_at(), Some(after(again)));
                assert_eq!(queue.take(after(again)), Some(at("a")));
            }
        }
    }

    #[test]
    fn a_time_that_was_asked_for_comes() {
        let (queue, now) = (Queue::default(), Timestamp::UNIX_EPOCH);
        let later = now.checked_add(SignedDuration::from_secs(9)).unwrap();
        queue.touch_at(at("a"), later);
        assert_eq!((queue.take(now), queue.next_at()), (None, Some(later)));
        assert_eq!(queue.take(later), Some(at("a")));
        queue.touch_at(at("a"), now);
        queue.touch_at(at("a"), later);
        assert_eq!(queue.next_at(), Some(now), "the first of two times");
        queue.done(at("a"), Went::Again, now);
        assert_eq!(queue.take(now), Some(at("a")));
        assert_eq!(queue.next_at(), None, "whoever looks says anew when to look again");
    }
}
