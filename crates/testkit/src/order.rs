//! Whether a comparison is a total order.
//!
//! `slice::sort_by` may panic on a comparison that is not a total order, and a binary search misses elements. So every
//! hand-written comparison is tested with generated values:
//!
//! ```
//! use plumb_testkit::total_order;
//!
//! assert_eq!(total_order(&[3, 1, 2], Ord::cmp), Ok(()));
//! let cyclic = |a: &i32, b: &i32| (a - b).rem_euclid(3).cmp(&1);
//! assert!(total_order(&[0, 1, 2], cyclic).is_err());
//! ```

use std::cmp::Ordering;
use std::fmt::Debug;

/// Checks that a comparison is a total preorder of some values: each equals itself, turning a pair around turns the
/// answer around, and what holds from the first to the second and from the second to the third holds from the first to
/// the third. All triples are tried, so a handful of values per case is plenty.
pub fn total_order<T: Debug>(values: &[T], compare: impl Fn(&T, &T) -> Ordering) -> Result<(), String> {
    for a in values {
        if compare(a, a).is_ne() {
            return Err(format!("not reflexive: {a:?}"));
        }
        for b in values {
            let order = compare(a, b);
            if compare(b, a) != order.reverse() {
                return Err(format!("not antisymmetric: {a:?} is {order:?} than {b:?}"));
            }
            for c in values {
                let (next, whole) = (compare(b, c), compare(a, c));
                let implied = match (order, next) {
                    (Ordering::Equal, next) => Some(next),
                    (order, Ordering::Equal) => Some(order),
                    (order, next) => (order == next).then_some(order),
                };
                if implied.is_some_and(|implied| implied != whole) {
                    return Err(format!(
                        "not transitive: {a:?} is {order:?} than {b:?}, that is {next:?} than {c:?}, but the first is {whole:?} than the last"
                    ));
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_law_is_checked() {
        let always = |order: Ordering| move |_: &i32, _: &i32| order;
        assert_eq!(total_order(&[1, 2, 3], always(Ordering::Equal)), Ok(()));
        assert!(total_order(&[1], always(Ordering::Less)).unwrap_err().contains("reflexive"));
        let one_sided = |a: &i32, b: &i32| if a < b { Ordering::Less } else { Ordering::Equal };
        assert!(total_order(&[1, 2], one_sided).unwrap_err().contains("antisymmetric"));
        let near = |a: &i32, b: &i32| if a.abs_diff(*b) < 2 { Ordering::Equal } else { a.cmp(b) };
        assert!(total_order(&[1, 2, 3], near).unwrap_err().contains("transitive"));
    }
}
