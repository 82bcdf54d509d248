use plumb_resize::quantity::Format::{self, BinarySi, DecimalExponent, DecimalSi};
use plumb_resize::quantity::{Operation, Quantity, QuantityError};
use proptest::prelude::*;

use super::{UNIT, of_nanos, q};

fn formats() -> impl Strategy<Value = Format> {
    prop_oneof![Just(DecimalSi), Just(BinarySi), Just(DecimalExponent)]
}

/// Billionths of every size, and round numbers of both kinds more often than chance would have them.
fn nanos() -> impl Strategy<Value = i128> {
    prop_oneof![
        any::<i128>(),
        any::<i64>().prop_map(i128::from),
        (any::<i64>(), 0u32..19).prop_map(|(n, places)| i128::from(n) * 10i128.pow(places)),
        (-2048i128..2048, 0u32..7).prop_map(|(n, step)| (n << (10 * step)) * UNIT),
    ]
}

fn quantities() -> impl Strategy<Value = Quantity> {
    (nanos(), formats()).prop_map(|(nanos, format)| of_nanos(nanos, format))
}

/// Texts shaped like a quantity, right or nearly so.
const TEXTS: &str =
    "[+-]?[0-9]{0,22}(\\.[0-9]{0,24})?(|[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2}|[a-zA-Z]{1,2})";

proptest! {
    #[test]
    fn written_text_reads_back_to_the_same_value(quantity in quantities()) {
        prop_assert_eq!(quantity.to_string().parse(), Ok(quantity));
    }

    #[test]
    fn canonical_form_stays_as_it_is(quantity in quantities()) {
        let text = quantity.to_string();
        prop_assert_eq!(q(&text).with_format(quantity.format()).to_string(), text);
    }

    #[test]
    fn order_is_that_of_the_values(a in nanos(), b in nanos(), x in formats(), y in formats()) {
        prop_assert_eq!(of_nanos(a, x).cmp(&of_nanos(b, y)), a.cmp(&b));
        prop_assert_eq!(of_nanos(a, x) == of_nanos(b, y), a == b);
    }

    #[test]
    fn any_bytes_can_be_tried(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = Quantity::parse(&bytes);
    }

    #[test]
    fn near_misses_can_be_tried(text in "[+-]?[0-9.]{0,60}[eEinumkKMGTP]{0,3}[+-]?[0-9]{0,21}") {
        if let Ok(quantity) = text.parse::<Quantity>() {
            prop_assert_eq!(quantity.to_string().parse(), Ok(quantity));
        }
    }

    #[test]
    fn sums_and_products_agree_with_plain_arithmetic(a in nanos(), b in nanos(), factor in any::<i64>()) {
        let (x, y) = (of_nanos(a, DecimalSi), of_nanos(b, BinarySi));
        let exact = |nanos: Option<i128>| nanos.map(|nanos| of_nanos(nanos, DecimalSi));
        prop_assert_eq!(x.checked_add(y).ok(), exact(a.checked_add(b)));
        prop_assert_eq!(x.checked_sub(y).ok(), exact(a.checked_sub(b)));
        prop_assert_eq!(x.checked_mul(factor).ok(), exact(a.checked_mul(i128::from(factor))));
    }

    #[test]
    fn scaling_agrees_with_plain_arithmetic(nanos in any::<i64>(), by in any::<i64>(), of in any::<i64>()) {
        prop_assume!(of != 0);
        let product = i128::from(nanos) * i128::from(by);
        let rounded = product / i128::from(of) + (product % i128::from(of)).signum() * i128::from(of.signum());
        prop_assert_eq!(of_nanos(i128::from(nanos), DecimalSi).checked_scale(by, of), Ok(of_nanos(rounded, DecimalSi)));
    }

    #[test]
    fn scaling_up_and_back_changes_nothing_or_is_refused(quantity in quantities(), by in 1i64..) {
        match quantity.checked_mul(by) {
            Ok(scaled) => prop_assert_eq!(scaled.checked_scale(1, by), Ok(quantity)),
            Err(error) => prop_assert_eq!(error, QuantityError::Overflow(Operation::Mul)),
        }
        prop_assert_eq!(quantity.checked_scale(by, by), Ok(quantity));
    }

    #[test]
    fn rounding_goes_up_by_less_than_one(quantity in quantities()) {
        if let Ok(units) = quantity.units() {
            let excess = Quantity::from_units(units).checked_sub(quantity).unwrap();
            prop_assert!(excess.is_zero() || excess.is_negative() == quantity.is_negative());
            prop_assert!(excess < Quantity::from_units(1) && excess > Quantity::from_units(-1));
        }
        if let Ok(milli) = quantity.milli() {
            let excess = Quantity::from_milli(milli).checked_sub(quantity).unwrap();
            prop_assert!(excess.is_zero() || excess.is_negative() == quantity.is_negative());
            prop_assert!(excess < Quantity::from_milli(1) && excess > Quantity::from_milli(-1));
        }
    }

    #[test]
    fn the_wire_form_has_the_value_of_the_input(text in TEXTS) {
        let value = text.parse::<Quantity>();
        let wire = Quantity::wire_form(&text).and_then(|wire| wire.parse::<Quantity>());
        prop_assert_eq!(wire, value);
    }

    #[test]
    fn a_sign_turns_the_value_round(text in TEXTS) {
        let text = text.trim_start_matches(['+', '-']);
        if let Ok(quantity) = text.parse::<Quantity>() {
            prop_assert_eq!(format!("-{text}").parse(), Quantity::ZERO.checked_sub(quantity));
        }
    }
}
