//! The order of the queue is total.

use std::cmp::Ordering;

use plumb_resize::qos::QosClass;
use plumb_resize::queue::DeferredResize;
use plumb_testkit::total_order;
use proptest::collection::vec;
use proptest::prelude::*;

/// Resizes that often agree in all but one thing.
fn waiting() -> impl Strategy<Value = DeferredResize> {
    let qos = prop_oneof![Just(QosClass::Guaranteed), Just(QosClass::Burstable), Just(QosClass::BestEffort)];
    let since = prop_oneof![Just(None), (0i64..3).prop_map(Some)];
    ("[ab]", any::<bool>(), -1i32..2, qos, since)
        .prop_map(|(pod, grows, priority, qos, since)| DeferredResize { pod, grows, priority, qos, since })
}

proptest! {
    #[test]
    fn it_is_total(a in waiting(), b in waiting(), c in waiting()) {
        prop_assert_eq!(a.cmp(&b) == Ordering::Equal, a == b);
        prop_assert_eq!(a.partial_cmp(&b), Some(a.cmp(&b)));
        prop_assert_eq!(total_order(&[a, b, c], Ord::cmp), Ok(()));
    }

    #[test]
    fn it_does_not_matter_in_which_order_they_came(
        (queue, shuffled) in vec(waiting(), 0..12).prop_flat_map(|queue| (Just(queue.clone()), Just(queue).prop_shuffle()))
    ) {
        let sorted = |mut queue: Vec<DeferredResize>| {
            queue.sort();
            queue
        };
        let once = sorted(queue);
        prop_assert_eq!(&sorted(shuffled), &once);
        prop_assert_eq!(&sorted(once.clone()), &once);
        let grows: Vec<bool> = once.iter().map(|waiting| waiting.grows).collect();
        prop_assert!(grows.is_sorted(), "shrinks first");
    }
}
