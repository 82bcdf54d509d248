mod laws;

use std::borrow::Cow;
use std::collections::HashSet;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use plumb_resize::quantity::{Format, Operation, Quantity, QuantityError};

use Format::{BinarySi, DecimalExponent, DecimalSi};

const UNIT: i128 = 1_000_000_000;
const MAX: i128 = i64::MAX as i128 * UNIT;

fn q(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

fn of_nanos(nanos: i128, format: Format) -> Quantity {
    q(&format!("{nanos}n")).with_format(format)
}

/// Text, its value in billionths, its format.
const READ: &[(&str, i128, Format)] = &[
    ("0", 0, DecimalSi),
    ("0n", 0, DecimalSi),
    ("0u", 0, DecimalSi),
    ("0m", 0, DecimalSi),
    ("0Ki", 0, BinarySi),
    ("0k", 0, DecimalSi),
    ("0Mi", 0, BinarySi),
    ("0Gi", 0, BinarySi),
    ("0Ti", 0, BinarySi),
    ("0Ei", 0, BinarySi),
    ("0T", 0, DecimalSi),
    ("1", UNIT, DecimalSi),
    ("007", 7 * UNIT, DecimalSi),
    // Binary suffixes.
    ("1Ki", 1024 * UNIT, BinarySi),
    ("8Ki", 8 * 1024 * UNIT, BinarySi),
    ("7Mi", (7 << 20) * UNIT, BinarySi),
    ("6Gi", (6 << 30) * UNIT, BinarySi),
    ("5Ti", (5 << 40) * UNIT, BinarySi),
    ("4Pi", (4 << 50) * UNIT, BinarySi),
    ("3Ei", (3 << 60) * UNIT, BinarySi),
    ("10Ti", (10 << 40) * UNIT, BinarySi),
    ("100Ti", (100 << 40) * UNIT, BinarySi),
    // Decimal suffixes.
    ("5n", 5, DecimalSi),
    ("4u", 4_000, DecimalSi),
    ("3m", 3_000_000, DecimalSi),
    ("9", 9 * UNIT, DecimalSi),
    ("8k", 8_000 * UNIT, DecimalSi),
    ("50k", 50_000 * UNIT, DecimalSi),
    ("7M", 7_000_000 * UNIT, DecimalSi),
    ("6G", 6 * UNIT * UNIT, DecimalSi),
    ("5T", 5_000 * UNIT * UNIT, DecimalSi),
    ("40T", 40_000 * UNIT * UNIT, DecimalSi),
    ("300T", 300_000 * UNIT * UNIT, DecimalSi),
    ("2P", 2_000_000 * UNIT * UNIT, DecimalSi),
    ("1E", UNIT * UNIT * UNIT, DecimalSi),
    ("12E", 12 * UNIT * UNIT * UNIT, DecimalSi),
    ("1000E", 1000 * UNIT * UNIT * UNIT, DecimalSi),
    // Exponents.
    ("1E-3", 1_000_000, DecimalExponent),
    ("1e3", 1_000 * UNIT, DecimalExponent),
    ("1E6", 1_000_000 * UNIT, DecimalExponent),
    ("1e9", UNIT * UNIT, DecimalExponent),
    ("1E12", 1_000 * UNIT * UNIT, DecimalExponent),
    ("1e13", 10_000 * UNIT * UNIT, DecimalExponent),
    ("1e14", 100_000 * UNIT * UNIT, DecimalExponent),
    ("1e15", 1_000_000 * UNIT * UNIT, DecimalExponent),
    ("1E18", UNIT * UNIT * UNIT, DecimalExponent),
    ("0e2147483647", 0, DecimalExponent),
    // What looks like floating point.
    ("0.001", 1_000_000, DecimalSi),
    ("0.0005k", UNIT / 2, DecimalSi),
    ("0.005", 5_000_000, DecimalSi),
    ("0.05", 50_000_000, DecimalSi),
    ("0.5", UNIT / 2, DecimalSi),
    ("0.00050k", UNIT / 2, DecimalSi),
    ("0.50000", UNIT / 2, DecimalSi),
    ("0.5e0", UNIT / 2, DecimalExponent),
    ("0.5e-1", 50_000_000, DecimalExponent),
    ("0.5e-2", 5_000_000, DecimalExponent),
    ("100.035k", 100_035 * UNIT, DecimalSi),
    ("10.035M", 10_035_000 * UNIT, DecimalSi),
    ("1.2e3", 1_200 * UNIT, DecimalExponent),
    ("1.3E+6", 1_300_000 * UNIT, DecimalExponent),
    ("1.40e9", 1_400_000_000 * UNIT, DecimalExponent),
    ("1.53E12", 1_530 * UNIT * UNIT, DecimalExponent),
    ("1.6e15", 1_600_000 * UNIT * UNIT, DecimalExponent),
    ("1.7E18", 1_700_000_000 * UNIT * UNIT, DecimalExponent),
    ("9.01", 9_010_000_000, DecimalSi),
    ("8.1k", 8_100 * UNIT, DecimalSi),
    ("7.123456M", 7_123_456 * UNIT, DecimalSi),
    ("6.987654321G", 6_987_654_321 * UNIT, DecimalSi),
    ("5.444T", 5_444 * UNIT * UNIT, DecimalSi),
    ("40.1T", 40_100 * UNIT * UNIT, DecimalSi),
    ("300.2T", 300_200 * UNIT * UNIT, DecimalSi),
    ("2.5P", 2_500_000 * UNIT * UNIT, DecimalSi),
    ("1.01E", 1_010_000_000 * UNIT * UNIT, DecimalSi),
    // Finer than a billionth: rounded away from zero.
    ("3.001n", 4, DecimalSi),
    ("1.1E-9", 2, DecimalExponent),
    ("0.0000000001", 1, DecimalSi),
    ("0.0000000005", 1, DecimalSi),
    ("0.00000000050", 1, DecimalSi),
    ("0.5e-9", 1, DecimalExponent),
    ("0.9n", 1, DecimalSi),
    ("0.00000012345", 124, DecimalSi),
    ("0.00000012354", 124, DecimalSi),
    ("1e-2147483648", 1, DecimalExponent),
    ("1e-99999999999", 1, DecimalExponent),
    ("1e-9223372036854775808", 1, DecimalExponent),
    ("12345678901234567890123456789012345678901234567890e-50", 123_456_790, DecimalExponent),
    // Larger than binary notation goes: capped.
    ("8Ei", MAX, BinarySi),
    ("9Ei", MAX, BinarySi),
    ("9223372036854775807Ki", MAX, BinarySi),
    ("99999999999999999999999999999999999999999999999999Ki", MAX, BinarySi),
    ("7.9999999999999999999999999999999999Ei", MAX, BinarySi),
    // Binary with a fraction.
    ("100.035Ki", 102_435_840_000_000, BinarySi),
    ("0.5Mi", (1 << 19) * UNIT, BinarySi),
    ("0.05Gi", 53_687_091_200_000_000, BinarySi),
    ("0.025Ti", 27_487_790_694_400_000_000, BinarySi),
    ("0.1Ei", 115_292_150_460_684_697_600_000_000, BinarySi),
    ("1.00000000000000000000000000000000000000000000000000001Ki", 1024 * UNIT + 1, BinarySi),
    ("0.000000000001Ki", 2, DecimalSi),
    ("0.0009765625Ki", UNIT, BinarySi),
    ("0.0009765624Ki", 999_999_898, DecimalSi),
    // Odd, but read all the same.
    (".001", 1_000_000, DecimalSi),
    (".0001k", 100_000_000, DecimalSi),
    ("1.", UNIT, DecimalSi),
    ("1.G", UNIT * UNIT, DecimalSi),
    (".", 0, DecimalSi),
    ("k", 0, DecimalSi),
    ("Ti", 0, BinarySi),
    ("e-9", 0, DecimalExponent),
];

#[test]
fn a_text_reads_to_its_value_and_format_under_any_sign() {
    for &(text, nanos, format) in READ {
        for (sign, expected) in [("", nanos), ("+", nanos), ("-", -nanos)] {
            let read = q(&format!("{sign}{text}"));
            assert_eq!(read, of_nanos(expected, DecimalSi), "{sign}{text}");
            assert_eq!(read.format(), format, "{sign}{text}");
        }
    }
    assert_eq!((q("+"), q("-")), (Quantity::ZERO, Quantity::ZERO));
}

#[test]
fn a_text_that_is_no_quantity_is_refused_for_its_reason() {
    use QuantityError::{FormatWrong, Numeric, Suffix};
    let overflow = QuantityError::Overflow(Operation::Parse);
    let table: &[(&str, QuantityError)] = &[
        ("", FormatWrong),
        (" 1", FormatWrong),
        ("1 ", FormatWrong),
        ("1 Mi", FormatWrong),
        ("1.1.M", FormatWrong),
        ("..", FormatWrong),
        ("1+1.0M", FormatWrong),
        ("++1", Suffix),
        ("+-1", Suffix),
        ("0.1am", FormatWrong),
        ("aoeu", FormatWrong),
        ("Non-Numeric", FormatWrong),
        ("1,5", FormatWrong),
        ("1_000", FormatWrong),
        ("5e3m", FormatWrong),
        ("5e++3", FormatWrong),
        ("0x10", FormatWrong),
        ("NaN", FormatWrong),
        ("inf", FormatWrong),
        ("1\0", FormatWrong),
        ("١", FormatWrong),
        ("1µ", FormatWrong),
        ("0.1mi", Suffix),
        (".5i", Suffix),
        ("1i", Suffix),
        ("-3.01i", Suffix),
        ("-3.01e-", Suffix),
        ("5e", Suffix),
        ("5e+", Suffix),
        ("5ee3", Suffix),
        ("5Ei3", Suffix),
        ("5m3", Suffix),
        ("5K", Suffix),
        ("5ki", Suffix),
        ("5-", Suffix),
        ("5+3", Suffix),
        ("1e9223372036854775808", Suffix),
        ("1e-9223372036854775809", Suffix),
        ("Ei", Numeric),
        ("-.Pi", Numeric),
        ("e-10", Numeric),
        (".e-10", Numeric),
        ("170141183460469231731687303715884105728n", overflow),
        ("-170141183460469231731687303715884105729n", overflow),
        ("999999999999999999999999999999999999999999", overflow),
        ("1e30", overflow),
        ("1e2147483647", overflow),
        ("-1e2147483648", overflow),
        ("1e4294967299", overflow),
        ("1e9223372036854775807", overflow),
    ];
    for &(text, error) in table {
        assert_eq!(text.parse::<Quantity>(), Err(error), "{text:?}");
        assert_eq!(Quantity::parse(text.as_bytes()), Err(error), "{text:?}");
    }
    for bytes in [&b"\xff"[..], b"1\xff", b"1\xc3\x28", b"\xc2\xa01", b"1e\xff"] {
        assert_eq!(Quantity::parse(bytes), Err(FormatWrong), "{bytes:?}");
    }
}

#[test]
fn errors_read_as_the_api_server_writes_them() {
    let message = |text: &str| text.parse::<Quantity>().expect_err(text).to_string();
    assert_eq!(
        message("x"),
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
    assert_eq!(message("Ei"), "unable to parse numeric part of quantity");
    assert_eq!(message("1i"), "unable to parse quantity's suffix");
    assert_eq!(message("1e99"), "quantity out of range: reading it");
}

#[test]
fn the_ends_of_the_range_can_be_read_and_written() {
    for text in ["170141183460469231731687303715884105727n", "-170141183460469231731687303715884105728n"] {
        assert_eq!(q(text).to_string(), text);
    }
}

#[test]
fn a_quantity_is_written_in_canonical_form() {
    let table: &[(i128, Format, &str)] = &[
        (1 << 30, BinarySi, "1Gi"),
        (300 << 20, BinarySi, "300Mi"),
        (6 << 10, BinarySi, "6Ki"),
        (1001 << 30, BinarySi, "1001Gi"),
        (1 << 40, BinarySi, "1Ti"),
        (1 << 62, BinarySi, "4Ei"),
        (1024, BinarySi, "1Ki"),
        (1023, BinarySi, "1023"),
        (1025, BinarySi, "1025"),
        (5, BinarySi, "5"),
        (0, DecimalSi, "0"),
        (0, BinarySi, "0"),
        (0, DecimalExponent, "0"),
        (1_000_000_000, DecimalSi, "1G"),
        (300_000_000, DecimalSi, "300M"),
        (1_000_000_000_000, DecimalSi, "1T"),
        (1_234_567_000_000, DecimalSi, "1234567M"),
        (1_234_000, DecimalSi, "1234k"),
        (3_000, DecimalSi, "3k"),
        (1, DecimalExponent, "1"),
        (1_000_000_000, DecimalExponent, "1e9"),
        (300_000_000, DecimalExponent, "300e6"),
        (1_000_000_000_000, DecimalExponent, "1e12"),
        (3_000, DecimalExponent, "3e3"),
    ];
    let fractions: &[(i128, Format, &str)] = &[
        (500_000_000, BinarySi, "500m"),
        (1_024_000_000, BinarySi, "1024m"),
        (1_048_576_000_000, BinarySi, "1048576m"),
        (1_234_567_000_000, BinarySi, "1234567m"),
        (1_000_000, DecimalSi, "1m"),
        (80_000_000, DecimalSi, "80m"),
        (1_080_000_000, DecimalSi, "1080m"),
        (1, DecimalSi, "1n"),
        (80, DecimalSi, "80n"),
        (1_080, DecimalSi, "1080n"),
        (1_000, DecimalSi, "1u"),
        (80_000, DecimalSi, "80u"),
        (1_080_000, DecimalSi, "1080u"),
        (1_000_000, DecimalExponent, "1e-3"),
        (1, DecimalExponent, "1e-9"),
        (1_000, DecimalExponent, "1e-6"),
        (80_000_000, DecimalExponent, "80e-3"),
    ];
    let units = table.iter().map(|&(units, format, text)| (units * UNIT, format, text));
    for (nanos, format, text) in units.chain(fractions.iter().copied()) {
        assert_eq!(of_nanos(nanos, format).to_string(), text);
        if nanos != 0 {
            assert_eq!(of_nanos(-nanos, format).to_string(), format!("-{text}"));
        }
    }
}

#[test]
fn quantities_that_a_suffix_cannot_express_are_written_without_loss() {
    assert_eq!(q("1000000E").to_string(), "1000000E");
    assert_eq!(q("1000000E").with_format(DecimalExponent).to_string(), "1e24");
    let twice = q("4Ei").checked_add(q("4Ei")).unwrap();
    assert_eq!((twice.format(), twice.to_string().as_str()), (BinarySi, "9223372036854775808"));
    assert_eq!(Quantity::from_bytes(i64::MIN).to_string(), "-9223372036854775808");
    assert_eq!(Quantity::from_bytes(i64::MAX).to_string(), "9223372036854775807");
}

#[test]
fn a_written_quantity_can_be_padded_like_any_text() {
    assert_eq!(format!("[{:>6}|{:<6}|{:^6}]", q("650m"), q("1Gi"), Quantity::ZERO), "[  650m|1Gi   |  0   ]");
}

#[test]
fn the_api_server_keeps_what_passes_for_canonical_and_rewrites_the_rest() {
    let kept = [
        "0",
        "1",
        "-1",
        "+5",
        "007",
        "1.",
        "650m",
        "1.234",
        "12E3",
        "12e3",
        "1.500",
        "1500",
        "1Gi",
        "300Mi",
        "1025Ki",
        "0001Ki",
        "+1Ki",
        "1.Ki",
        "100.035k",
        "1e-9",
        "1e0",
        "12E",
        "123456789012345678",
    ];
    let rewritten = [
        ("00", "0"),
        ("-0", "0"),
        ("+", "0"),
        ("0Mi", "0"),
        ("0.5", "500m"),
        ("0.123", "123m"),
        (".5", "500m"),
        ("1.5", "1500m"),
        ("1.08", "1080m"),
        ("1000", "1k"),
        ("5.000", "5"),
        ("1000M", "1G"),
        ("0.001T", "1G"),
        ("1000u", "1m"),
        ("1000000m", "1k"),
        ("1080000000n", "1080m"),
        ("1024Mi", "1Gi"),
        ("307200Ki", "300Mi"),
        ("1025024Mi", "1001Gi"),
        ("1024Gi", "1Ti"),
        ("8Ki", "8Ki"),
        ("0.5Gi", "512Mi"),
        ("1.5Gi", "1536Mi"),
        (".001e12", "1e9"),
        ("0.001e0", "1e-3"),
        ("1000e-12", "1e-9"),
        ("1e4", "10e3"),
        ("1E4", "10e3"),
        ("1E5", "100e3"),
        (".001Ki", "1024m"),
        (".000001Ki", "1024u"),
        (".000000001Ki", "1024n"),
        (".000000000001Ki", "2n"),
        ("3.001n", "4n"),
        ("+1234567890123456789", "1234567890123456789"),
        ("1Pi", "1Pi"),
        ("9Ei", "9223372036854775807"),
    ];
    for text in kept {
        assert_eq!(Quantity::wire_form(text), Ok(Cow::Borrowed(text)));
    }
    for (text, wire) in rewritten {
        assert_eq!(Quantity::wire_form(text), Ok(Cow::Borrowed(wire)), "{text}");
    }
    assert_eq!(Quantity::wire_form("\t 1.234\n").unwrap(), "1.234");
    assert_eq!(Quantity::wire_form(" "), Err(QuantityError::FormatWrong));
    assert_eq!(Quantity::wire_form("1i"), Err(QuantityError::Suffix));
}

#[test]
fn whole_and_milli_values_round_away_from_zero() {
    let table = [
        ("1n", 1, 1),
        ("1u", 1, 1),
        ("1m", 1, 1),
        ("1", 1_000, 1),
        ("100", 100_000, 100),
        ("9.01", 9_010, 10),
        ("999.9m", 1_000, 1),
        ("1.0001", 1_001, 2),
        ("-9.01", -9_010, -10),
        ("-1n", -1, -1),
        ("0", 0, 0),
        ("256Mi", 268_435_456_000, 268_435_456),
        ("0.1Ki", 102_400, 103),
    ];
    for (text, milli, units) in table {
        assert_eq!((q(text).milli(), q(text).units()), (Ok(milli), Ok(units)), "{text}");
        assert_eq!((q(text).saturating_milli(), q(text).saturating_units()), (milli, units), "{text}");
    }
}

#[test]
fn a_value_that_does_not_fit_64_bits_is_an_error_or_saturates() {
    let largest = q("9223372036854775807m");
    assert_eq!((largest.milli(), largest.units()), (Ok(i64::MAX), Ok(9_223_372_036_854_776)));
    assert_eq!(q("-9223372036854775808").units(), Ok(i64::MIN));
    for (text, end) in [("10E", i64::MAX), ("-10E", i64::MIN)] {
        assert_eq!(q(text).milli(), Err(QuantityError::Overflow(Operation::Milli)));
        assert_eq!(q(text).units(), Err(QuantityError::Overflow(Operation::Units)));
        assert_eq!((q(text).saturating_milli(), q(text).saturating_units()), (end, end));
    }
}

#[test]
fn quantities_compare_by_value_whatever_their_format() {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let table = [
        ("0", "0", Equal),
        ("0Ki", "0e5", Equal),
        ("100m", "50m", Greater),
        ("50m", "100m", Less),
        ("10000T", "100Gi", Greater),
        ("1024", "1Ki", Equal),
        ("1k", "1e3", Equal),
        ("9", "9.01", Less),
        ("800m", "1", Less),
        ("800m", "79e-2", Greater),
        ("-10", "0", Less),
        ("9223372036854775807", "100m", Greater),
        ("92233720368547758070", "10", Greater),
    ];
    for (a, b, order) in table {
        assert_eq!(q(a).cmp(&q(b)), order, "{a} {b}");
        assert_eq!(q(b).cmp(&q(a)), order.reverse(), "{b} {a}");
    }
    let distinct: HashSet<_> = ["1Ki", "1024", "1.024k", "1025"].into_iter().map(q).collect();
    assert_eq!(distinct.len(), 2);
}

#[test]
fn sums_keep_the_format_of_the_first_unless_it_is_zero() {
    let table = [
        ("10", "1e1", "20", "0"),
        ("10", "1Ki", "1034", "-1014"),
        ("1Gi", "512Mi", "1536Mi", "512Mi"),
        ("0", "50", "50", "-50"),
        ("50", "0", "50", "50"),
        ("0", "0", "0", "0"),
        ("0", "100m", "100m", "-100m"),
        ("100m", "0", "100m", "100m"),
        ("0", "1Gi", "1Gi", "-1Gi"),
        ("1Gi", "0", "1Gi", "1Gi"),
        ("0Ki", "2k", "2k", "-2k"),
        ("1000m", "1", "2", "0"),
        ("1Gi", "500M", "1573741824", "573741824"),
    ];
    for (a, b, sum, difference) in table {
        assert_eq!(q(a).checked_add(q(b)).unwrap().to_string(), sum, "{a} + {b}");
        assert_eq!(q(a).checked_sub(q(b)).unwrap().to_string(), difference, "{a} - {b}");
    }
}

#[test]
fn products_are_exact_or_refused() {
    let largest = "9223372036854775807";
    let table = [
        ("10", 10, "100"),
        ("10", -10, "-100"),
        ("-50", -50, "2500"),
        ("50", 0, "0"),
        ("0", -50, "0"),
        ("3Ki", 5, "15Ki"),
        (largest, 1, largest),
        (largest, -1, "-9223372036854775807"),
        (largest, 2, "18446744073709551614"),
        ("-9223372036854775808", -1, "9223372036854775808"),
    ];
    for (a, factor, product) in table {
        assert_eq!(q(a).checked_mul(factor).unwrap().to_string(), product, "{a} * {factor}");
    }
    let scaled = [
        ("500m", (115, 100), "575m"),
        ("1", (1, 3), "333333334n"),
        ("-1", (1, 3), "-333333334n"),
        ("-1", (-1, 3), "333333334n"),
        ("1", (1, -3), "-333333334n"),
        ("1Gi", (3, 2), "1536Mi"),
        ("0", (7, 9), "0"),
        (
            "170141183460469231731687303715884105727n",
            (i64::MAX, i64::MAX),
            "170141183460469231731687303715884105727n",
        ),
        ("-170141183460469231731687303715884105728n", (-1, -1), "-170141183460469231731687303715884105728n"),
    ];
    for (a, (numerator, denominator), product) in scaled {
        let result = q(a).checked_scale(numerator, denominator).unwrap();
        assert_eq!(result.to_string(), product, "{a} * {numerator}/{denominator}");
    }
}

#[test]
fn an_operation_that_overflows_names_itself() {
    let (least, most) = (of_nanos(i128::MIN, DecimalSi), of_nanos(i128::MAX, DecimalSi));
    let table = [
        (most.checked_add(q("1n")), QuantityError::Overflow(Operation::Add)),
        (least.checked_sub(q("1n")), QuantityError::Overflow(Operation::Sub)),
        (Quantity::ZERO.checked_sub(least), QuantityError::Overflow(Operation::Sub)),
        (most.checked_mul(2), QuantityError::Overflow(Operation::Mul)),
        (least.checked_mul(-1), QuantityError::Overflow(Operation::Mul)),
        (most.checked_scale(i64::MAX, i64::MAX - 1), QuantityError::Overflow(Operation::Scale)),
        (least.checked_scale(1, -1), QuantityError::Overflow(Operation::Scale)),
        (most.checked_scale(1, 0), QuantityError::ZeroDenominator),
    ];
    for (result, error) in table {
        assert_eq!(result, Err(error));
    }
}

#[test]
fn constructors_count_in_their_unit() {
    const CPU: Quantity = Quantity::from_milli(650);
    assert_eq!(CPU.to_string(), "650m");
    assert_eq!(Quantity::from_units(1_000).to_string(), "1k");
    assert_eq!(Quantity::from_bytes(1 << 20).to_string(), "1Mi");
    assert_eq!(Quantity::default(), Quantity::ZERO);
    assert_eq!(Quantity::from_milli(i64::MIN).milli(), Ok(i64::MIN));
    assert!(CPU.is_positive() && !CPU.is_negative() && !CPU.is_zero());
    assert!(q("-1n").is_negative() && Quantity::ZERO.is_zero() && !Quantity::ZERO.is_positive());
}

#[test]
fn the_api_type_converts_both_ways_and_loses_its_white_space() {
    let api = |text: &str| ApiQuantity(text.to_owned());
    for (text, canonical) in
        [(" 1", "1"), ("1 ", "1"), ("\n1.5Gi\t", "1536Mi"), ("-1", "-1"), ("\u{a0}2k", "2k")]
    {
        let read = Quantity::try_from(&api(text)).unwrap();
        assert_eq!(ApiQuantity::from(&read), api(canonical));
        assert_eq!(ApiQuantity::from(read), api(canonical));
    }
    assert_eq!(Quantity::try_from(&api("  ")), Err(QuantityError::FormatWrong));
    assert_eq!(Quantity::try_from(&api("1 Gi")), Err(QuantityError::FormatWrong));
}
