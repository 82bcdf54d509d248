//! A bounded pool that many users share, such that none of them can take all of it.
//!
//! A user may hold `factor` times the free part: with a factor of 3, one user alone gets three quarters of a pool,
//! and two concurrent users get three sevenths each. No configuration assigns shares. The next user finds a free
//! part, unless several others each took as much as they could and have not released it since.
//!
//! The pool counts the share of each user in two tables by two hashes of the name, and the smaller count is the
//! user's (a count-min sketch). So a request costs one hash and four additions, takes no lock and allocates nothing,
//! and the
//! tables do not grow with the number of users. Two users share a count in one of a million cases, and which ones they
//! are differs from process to process.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The unit in which pools count bytes of lists, events and bodies.
pub(crate) const UNIT: usize = 1 << 10;

/// The counts of one table.
const WIDTH: usize = 1024;

/// A pool of permits, or of bytes.
pub(crate) struct Pool {
    free: Arc<Semaphore>,
    all: usize,
    /// How many times the free part one user may hold.
    factor: usize,
    held: Counts,
    rejected: Rejected,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("all", &self.all).field("taken", &self.taken()).finish_non_exhaustive()
    }
}

/// How often a pool was refused to a request.
#[derive(Debug, Default)]
pub(crate) struct Rejected {
    /// Because no permit was free.
    pub(crate) full: AtomicU64,
    /// Because the user held too much of it.
    pub(crate) user: AtomicU64,
}

/// The pool refuses the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

impl Pool {
    /// A pool of `all`, of which one user may hold `factor` times the free part.
    pub(crate) fn new(all: usize, factor: usize) -> Arc<Self> {
        let all = all.min(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            free: Arc::new(Semaphore::new(all)),
            all,
            factor,
            held: Counts::new(),
            rejected: Rejected::default(),
        })
    }

    /// Takes `many` for a user, without waiting.
    pub(crate) fn try_take(self: &Arc<Self>, user: &str, many: usize) -> Result<Held, Exhausted> {
        let units = u32::try_from(many).unwrap_or(u32::MAX);
        let Ok(permit) = Arc::clone(&self.free).try_acquire_many_owned(units) else {
            self.rejected.full.fetch_add(1, Relaxed);
            return Err(Exhausted);
        };
        let at = self.held.places(user);
        let held = self.held.add(at, many);
        // Dropped when refused, which also subtracts its count.
        let share = Held { permit: Some(permit), counted: Some((Arc::clone(self), at, many)) };
        // One more than is free, so that the last one can be had.
        let free = self.free.available_permits().saturating_add(1);
        if held > free.saturating_mul(self.factor) {
            self.rejected.user.fetch_add(1, Relaxed);
            return Err(Exhausted);
        }
        Ok(share)
    }

    /// Waits for one, in line with all others who wait. It counts for no user.
    pub(crate) async fn take_in_line(&self) -> Result<Held, Exhausted> {
        // It is an error only once the semaphore is closed, which never happens.
        let permit = Arc::clone(&self.free).acquire_owned().await.map_err(|_| Exhausted)?;
        Ok(Held { permit: Some(permit), counted: None })
    }

    /// How much of it there is.
    pub(crate) fn all(&self) -> usize {
        self.all
    }

    /// How much of it is taken.
    pub(crate) fn taken(&self) -> usize {
        self.all.saturating_sub(self.free.available_permits())
    }

    pub(crate) fn rejected(&self) -> &Rejected {
        &self.rejected
    }
}

/// A share of a pool, which is released when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Held {
    permit: Option<OwnedSemaphorePermit>,
    counted: Option<(Arc<Pool>, [usize; 2], usize)>,
}

impl Held {
    /// Adds another share of the same pool and user.
    pub(crate) fn merge(&mut self, mut other: Self) {
        match (&mut self.permit, other.permit.take()) {
            (Some(permit), Some(more)) => permit.merge(more),
            (none, more) => *none = more,
        }
        match (&mut self.counted, other.counted.take()) {
            (Some((_, _, many)), Some((_, _, more))) => *many += more,
            (none, more) => *none = more,
        }
    }

    /// The size of the share.
    pub(crate) fn many(&self) -> usize {
        self.counted.as_ref().map_or(0, |(_, _, many)| *many)
    }

    /// Releases all but `many`.
    pub(crate) fn shrink(&mut self, many: usize) {
        if let Some((pool, at, held)) = &mut self.counted
            && *held > many
        {
            pool.held.subtract(*at, *held - many);
            let excess = self.permit.as_mut().and_then(|permit| permit.split(*held - many));
            drop(excess);
            *held = many;
        }
    }

    /// Releases the permit, and leaves the count of the user.
    pub(crate) fn release_permit(&mut self) -> bool {
        self.permit.take().is_some()
    }

    /// Waits for a permit instead of the one that was released.
    pub(crate) async fn take_again(pool: &Pool) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&pool.free).acquire_owned().await.ok()
    }

    /// Restores the permit.
    pub(crate) fn restore_permit(&mut self, permit: Option<OwnedSemaphorePermit>) {
        self.permit = permit;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((pool, at, many)) = self.counted.take() {
            pool.held.subtract(at, many);
        }
    }
}

/// How much each user holds.
struct Counts {
    hasher: RandomState,
    tables: [Box<[AtomicUsize]>; 2],
}

impl Counts {
    fn new() -> Self {
        let table = || (0..WIDTH).map(|_| AtomicUsize::new(0)).collect();
        Self { hasher: RandomState::new(), tables: [table(), table()] }
    }

    /// Where a user is counted in each of the tables.
    fn places(&self, user: &str) -> [usize; 2] {
        let hash = self.hasher.hash_one(user).to_le_bytes();
        let place = |low: u8, high: u8| usize::from(u16::from_le_bytes([low, high])) % WIDTH;
        [place(hash[0], hash[1]), place(hash[4], hash[5])]
    }

    /// Adds, and returns the count of the user.
    fn add(&self, at: [usize; 2], many: usize) -> usize {
        let added = |table: usize| self.tables[table][at[table]].fetch_add(many, Relaxed) + many;
        added(0).min(added(1))
    }

    fn subtract(&self, at: [usize; 2], many: usize) {
        self.tables[0][at[0]].fetch_sub(many, Relaxed);
        self.tables[1][at[1]].fetch_sub(many, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes permits one by one until the pool refuses.
    fn take_all(pool: &Arc<Pool>, user: &str) -> Vec<Held> {
        std::iter::from_fn(|| pool.try_take(user, 1).ok()).collect()
    }

    #[test]
    fn one_user_gets_three_quarters_and_leaves_some_for_the_next_user() {
        let pool = Pool::new(400, 3);
        let first = take_all(&pool, "first");
        assert_eq!(first.len(), 300);
        let mut others = Vec::new();
        for i in 0..3 {
            let more = take_all(&pool, &format!("user-{i}"));
            assert!(!more.is_empty(), "user {i}");
            others.push(more);
        }
        assert_eq!(pool.rejected().full.load(Relaxed), 0);
        assert_eq!(pool.rejected().user.load(Relaxed), 4);
        drop((first, others));
        assert_eq!(pool.taken(), 0);
        assert_eq!(take_all(&pool, "first").len(), 300, "nothing stays counted");
    }

    #[test]
    fn a_pool_of_one_place_has_a_place() {
        let pool = Pool::new(1, 3);
        let held = take_all(&pool, "one");
        assert_eq!(held.len(), 1);
        assert_eq!(pool.rejected().full.load(Relaxed), 1);
    }

    #[test]
    fn bytes_are_merged_and_given_back_in_part() {
        let pool = Pool::new(100, 3);
        let mut held = pool.try_take("a", 30).unwrap();
        held.merge(pool.try_take("a", 30).unwrap());
        assert_eq!(pool.taken(), 60);
        assert_eq!(pool.try_take("a", 30).unwrap_err(), Exhausted, "90 of 100 for one user");
        held.shrink(10);
        assert_eq!(pool.taken(), 10);
        assert!(pool.try_take("a", 60).is_ok());
        drop(held);
        assert_eq!(pool.taken(), 0);
        assert_eq!(pool.held.add(pool.held.places("a"), 0), 0);
    }
}
