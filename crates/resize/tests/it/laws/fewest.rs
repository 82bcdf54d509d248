//! The fewest pods that free enough, compared with every selection there is.

use plumb_resize::fewest::{Candidate, fewest};
use plumb_resize::resource::Amounts;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// The sums of what a selection frees and costs.
fn sums(candidates: &[Candidate], picked: impl IntoIterator<Item = usize>) -> (Amounts, Vec<u32>) {
    let mut sums = (Amounts::ZERO, vec![0; 3]);
    for index in picked {
        sums.0 = sums.0.plus(candidates[index].frees);
        for (sum, cost) in sums.1.iter_mut().zip(&candidates[index].cost) {
            *sum += cost;
        }
    }
    sums
}

/// The lowest cost of all selections that free what is missing.
fn brute_force(missing: Amounts, candidates: &[Candidate]) -> Option<Vec<u32>> {
    let subsets = 0..1_usize << candidates.len();
    let sums =
        subsets.map(|set| sums(candidates, (0..candidates.len()).filter(|index| (set >> index) & 1 == 1)));
    sums.filter(|(freed, _)| missing.within(*freed)).map(|(_, cost)| cost).min()
}

fn candidate(largest: i64) -> impl Strategy<Value = Candidate> {
    let level = prop_oneof![Just([1, 0]), Just([0, 1])];
    (0..largest, 0..largest, 0..2_u32, level).prop_map(|(cpu, memory, protected, [high, low])| Candidate {
        frees: Amounts::new(cpu, memory),
        cost: vec![protected, high + low, high],
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, rng_seed: RngSeed::Fixed(43), ..ProptestConfig::default() })]

    #[test]
    fn they_cost_as_little_as_the_cheapest_of_all_selections(
        candidates in vec(candidate(6), 0..9),
        missing in (-1..14_i64, -1..14_i64),
    ) {
        let missing = Amounts::new(missing.0, missing.1);
        let found = fewest(missing, &candidates);
        let expected = brute_force(missing, &candidates);
        prop_assert_eq!(found.is_some(), expected.is_some());
        if let Some(found) = found {
            let (freed, cost) = sums(&candidates, found.iter().copied());
            prop_assert!(missing.within(freed));
            prop_assert!(found.is_sorted(), "{:?}", found);
            prop_assert_eq!(Some(cost), expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, rng_seed: RngSeed::Fixed(43), ..ProptestConfig::default() })]

    #[test]
    fn of_very_many_different_pods_enough_are_selected_and_none_can_be_spared(
        candidates in vec(candidate(1 << 40), 200),
        share in 1..100_i64,
    ) {
        let (all, _) = sums(&candidates, 0..candidates.len());
        let missing = Amounts::of(|r| all[r] / 100 * share);
        let found = fewest(missing, &candidates).unwrap();
        prop_assert!(missing.within(sums(&candidates, found.iter().copied()).0));
        for spared in &found {
            let others = found.iter().copied().filter(|index| index != spared);
            prop_assert!(!missing.within(sums(&candidates, others).0));
        }
    }
}
