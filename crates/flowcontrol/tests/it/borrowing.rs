use plumb_flowcontrol::borrowing::{Borrower, Class, Demand, DemandStats, SeatLimits, adjust, allocate};
use proptest::prelude::{Strategy, prop, prop_assert, proptest};

fn borrower(nominal: u32, lower: u32, upper: u32, demand: f64) -> Borrower {
    let last = Demand { average: demand, high_watermark: demand, ..Demand::default() };
    Borrower {
        is_exempt: false,
        limits: SeatLimits { nominal, lower, upper },
        current: nominal,
        demand: DemandStats { last, smoothed: demand },
    }
}

#[test]
fn a_busy_level_borrows_from_an_idle_one_and_leaves_its_lower_limit() {
    let levels = [borrower(100, 50, 1000, 0.0), borrower(100, 50, 1000, 400.0)];
    let adjusted = adjust(&levels);
    assert_eq!(adjusted.limits, [50, 150]);
    let levels = [borrower(100, 50, 1000, 0.0), borrower(100, 50, 120, 400.0)];
    assert_eq!(adjust(&levels).limits, [80, 120], "the upper limit binds");
}

#[test]
fn two_busy_levels_have_their_nominal_limits() {
    let levels = [borrower(100, 10, 1000, 500.0), borrower(50, 10, 1000, 500.0)];
    assert_eq!(adjust(&levels).limits, [100, 50]);
}

#[test]
fn exempt_requests_take_seats_from_the_others_down_to_their_lower_limits() {
    let exempt = |demand| Borrower { is_exempt: true, ..borrower(0, 0, 200, demand) };
    let busy = || borrower(100, 40, 1000, 500.0);
    assert_eq!(adjust(&[exempt(60.0), busy(), busy()]).limits, [60, 70, 70]);
    assert_eq!(adjust(&[exempt(500.0), busy(), busy()]).limits, [500, 40, 40]);
}

#[test]
fn the_smoothed_demand_rises_at_once_and_falls_slowly() {
    let mut stats = DemandStats::default();
    let period = std::time::Duration::from_secs(10);
    stats.update(Demand { duration: period, average: 80.0, deviation: 20.0, high_watermark: 120.0 });
    assert!((stats.smoothed - 100.0).abs() < 1e-9);
    stats.update(Demand { duration: period, ..Demand::default() });
    assert!((stats.smoothed - 97.7).abs() < 1e-9);
}

#[test]
fn a_sum_that_the_bounds_do_not_allow_has_no_allocation() {
    let class = Class { target: 10.0, lower: 10.0, upper: 20.0 };
    assert_eq!(allocate(5.0, &[class]), None);
    assert_eq!(allocate(25.0, &[class]), None);
    assert_eq!(allocate(0.0, &[]), None);
    assert!(allocate(15.0, &[class]).is_some());
}

fn classes() -> impl Strategy<Value = Vec<Class>> {
    let class = (0_u32..100, 0_u32..100, 0_u32..100).prop_map(|(lower, more, most)| Class {
        lower: f64::from(lower),
        target: f64::from(lower + more),
        upper: f64::from(lower + most),
    });
    prop::collection::vec(class, 1..8)
}

proptest! {
    #[test]
    fn an_allocation_adds_up_and_each_part_is_fair_or_at_a_bound(classes in classes(), part in 0.0_f64..=1.0) {
        let lower: f64 = classes.iter().map(|class| class.lower).sum();
        let upper: f64 = classes.iter().map(|class| class.upper).sum();
        let sum = lower + (upper - lower) * part;
        let (parts, fraction) = allocate(sum, &classes).unwrap();
        prop_assert!((parts.iter().sum::<f64>() - sum).abs() < 1e-3, "{parts:?} of {sum}");
        for (part, class) in parts.iter().zip(&classes) {
            let fair = fraction * class.target.max(0.001);
            let expected = fair.min(class.upper).max(class.lower);
            prop_assert!((part - expected).abs() < 1e-6);
        }
    }
}
