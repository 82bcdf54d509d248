//! How often pods are changed.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use plumb_controller_runtime::Clock;
use tokio::time::Instant;

/// How many changes there may be per second, and how many at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Per second; no limit if it is not positive.
    pub per_second: f64,
    /// At once, at least one.
    pub burst: u32,
}

impl Default for RateLimit {
    /// No limit, as upstream has it.
    fn default() -> Self {
        Self { per_second: -1.0, burst: 1 }
    }
}

/// A token bucket. Clones share it.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    limit: RateLimit,
    clock: Clock,
    /// When the bucket would be full.
    full_at: Arc<Mutex<Option<Instant>>>,
}

impl RateLimiter {
    /// A full bucket.
    pub fn new(limit: RateLimit, clock: Clock) -> Self {
        Self { limit, clock, full_at: Arc::default() }
    }

    /// Waits until there may be one more change. Callers are served in order.
    pub async fn acquire(&self) {
        let wait = self.take();
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    /// Takes a token, and returns when it is available.
    fn take(&self) -> Duration {
        if self.limit.per_second <= 0.0 || self.limit.per_second.is_nan() {
            return Duration::ZERO;
        }
        let now = self.clock.monotonic();
        let each = Duration::try_from_secs_f64(1.0 / self.limit.per_second).unwrap_or(Duration::MAX);
        let burst = each.saturating_mul(self.limit.burst.max(1));
        let mut full_at = self.full_at.lock();
        let next = full_at.unwrap_or(now).max(now).checked_add(each);
        // A limit of less than one change in centuries allows one.
        let Some(next) = next else { return Duration::ZERO };
        *full_at = Some(next);
        next.saturating_duration_since(now).saturating_sub(burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_allowed_at_once_and_the_rest_at_the_rate() {
        let limiter = RateLimiter::new(RateLimit { per_second: 2.0, burst: 3 }, Clock::default());
        let began = Instant::now();
        let mut at = Vec::new();
        for _ in 0..6 {
            limiter.acquire().await;
            at.push(began.elapsed().as_millis());
        }
        assert_eq!(at, [0, 0, 0, 500, 1000, 1500]);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(limiter.take(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_limit_nothing_waits() {
        let limiter = RateLimiter::new(RateLimit::default(), Clock::default());
        for _ in 0..1000 {
            assert_eq!(limiter.take(), Duration::ZERO);
        }
    }
}
