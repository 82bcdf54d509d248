use plumb_flowcontrol::shuffle::{Hand, MAX_HAND, MAX_HASH_BITS, required_entropy_bits};
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

#[test]
fn a_hand_needs_as_many_bits_as_upstream_says() {
    for (deck, hand, bits) in [(64, 8, 48), (128, 6, 42), (1, 1, 0), (10_000_000, 2, 47), (128, 9, 63)] {
        assert_eq!(required_entropy_bits(deck, hand), bits, "{hand} of {deck}");
    }
    assert!(required_entropy_bits(u32::MAX, u32::MAX) > MAX_HASH_BITS);
    // No valid hand is larger than the array that holds it.
    let larger = u32::try_from(MAX_HAND).unwrap() + 1;
    assert!(required_entropy_bits(larger, larger) > MAX_HASH_BITS);
}

#[test]
fn hashes_deal_every_hand_equally_often() {
    let mut counts = std::collections::BTreeMap::new();
    for hash in 0..(5 * 4 * 3 * 100) {
        *counts.entry(Hand::deal(5, 3, hash).queues().to_vec()).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 5 * 4 * 3);
    assert!(counts.values().all(|count| *count == 100));
}

proptest! {
    #[test]
    fn the_queues_of_a_hand_are_distinct_and_exist(deck in 1_u32..2000, size in 1_u32..=15, hash in any::<u64>()) {
        let hand = Hand::deal(deck, size, hash);
        let mut queues = hand.queues().to_vec();
        prop_assert_eq!(queues.len(), size.min(deck) as usize);
        prop_assert!(queues.iter().all(|queue| *queue < deck));
        queues.sort_unstable();
        queues.dedup();
        prop_assert_eq!(queues.len(), size.min(deck) as usize);
    }
}
