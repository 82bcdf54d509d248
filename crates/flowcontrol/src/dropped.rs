//! After which time a client should retry whose request was rejected.

use std::collections::VecDeque;
use std::time::Duration;

/// The longest time.
const LONGEST: u64 = 32;

/// The rejected requests of a priority level, by second. As TCP's congestion window, the time doubles while requests are rejected, and
/// gets shorter by a second at a time when they are not.
#[derive(Debug)]
pub struct DroppedRequests {
    /// The seconds before the present one in which requests were rejected, and how many.
    history: VecDeque<(u64, u64)>,
    second: u64,
    count: u64,
    retry_after: u64,
    /// When the time was doubled; it has to pass before it is doubled again.
    doubled: Option<u64>,
}

impl Default for DroppedRequests {
    fn default() -> Self {
        Self { history: VecDeque::new(), second: 0, count: 0, retry_after: 1, doubled: None }
    }
}

impl DroppedRequests {
    /// Counts a rejected request, and returns after how many seconds it should be retried.
    pub fn record(&mut self, now: Duration) -> u32 {
        let second = now.as_secs();
        if second > self.second {
            self.history.push_back((self.second, self.count));
            let oldest = second.saturating_sub((2 * self.retry_after).min(LONGEST));
            while self.history.front().is_some_and(|(at, _)| *at < oldest) {
                self.history.pop_front();
            }
            self.second = second;
            self.count = 0;
            self.update(second);
        }
        self.count += 1;
        // At most LONGEST.
        u32::try_from(self.retry_after).unwrap_or(1)
    }

    fn update(&mut self, now: u64) {
        let since = now.saturating_sub(self.retry_after);
        let recent: u64 = self.history.iter().filter(|(at, _)| *at >= since).map(|(_, count)| count).sum();
        let may_double = self.doubled.is_none_or(|at| now.saturating_sub(at) >= self.retry_after);
        if may_double && recent >= 3 * self.retry_after {
            self.retry_after = (2 * self.retry_after).min(LONGEST);
            self.doubled = Some(now);
        } else if recent < self.retry_after && self.retry_after > 1 {
            self.retry_after -= 1;
        }
    }
}
