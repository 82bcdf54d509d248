//! The order in which deferred resizes are retried.

use std::cmp::{Ordering, Reverse};

use crate::qos::QosClass;

/// A deferred resize.
///
/// Its order is the order in which resizes are tried: first those that request no more than is allocated, since they
/// can only free capacity; then by priority, class and age; and last by pod, so that no two are ever equal unless
/// they are the same.
///
/// ```
/// use plumb_resize::qos::QosClass;
/// use plumb_resize::queue::DeferredResize;
///
/// let wait = |pod: &str, grows, priority| DeferredResize {
///     pod: pod.to_owned(), grows, priority, qos: QosClass::Burstable, since: Some(0),
/// };
/// let mut queue = vec![wait("a", true, 0), wait("b", true, 1000), wait("c", false, 0)];
/// queue.sort();
/// assert_eq!(queue.iter().map(|w| w.pod.as_str()).collect::<Vec<_>>(), ["c", "b", "a"]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeferredResize {
    /// The pod's uid.
    pub pod: String,
    /// Whether it requests more cpu or more memory than it is allocated.
    pub grows: bool,
    /// `spec.priority`, zero if it has none.
    pub priority: i32,
    /// The pod's QoS class; the better protected one precedes.
    pub qos: QosClass,
    /// Since when it has been waiting, on any clock that all of the queue share. One that has not been tried yet
    /// comes last.
    pub since: Option<i64>,
}

impl DeferredResize {
    fn key(&self) -> (bool, Reverse<i32>, QosClass, bool, Option<i64>, &str) {
        (self.grows, Reverse(self.priority), self.qos, self.since.is_none(), self.since, &self.pod)
    }
}

impl Ord for DeferredResize {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for DeferredResize {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::QosClass::{Burstable, Guaranteed};
    use super::*;

    #[test]
    fn shrinks_come_first_then_priority_then_class_then_age() {
        let wait = |pod: &str, grows, priority, qos, since| DeferredResize {
            pod: pod.to_owned(),
            grows,
            priority,
            qos,
            since,
        };
        let expected = vec![
            wait("shrinks", false, -10, Burstable, None),
            wait("important", true, 2_000, Burstable, Some(9)),
            wait("guaranteed", true, 0, Guaranteed, Some(9)),
            wait("older", true, 0, Burstable, Some(1)),
            wait("as old, by name: a", true, 0, Burstable, Some(5)),
            wait("as old, by name: b", true, 0, Burstable, Some(5)),
            wait("not tried yet", true, 0, Burstable, None),
        ];
        let mut queue = expected.clone();
        queue.reverse();
        queue.sort();
        assert_eq!(queue, expected);
    }
}
