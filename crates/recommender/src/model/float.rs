//! `Log`, `Exp2`, `Pow` and `Ldexp` with the results of Go's `math` package on amd64, bit for bit.
//!
//! Where a sample falls and what it weighs depends on the last bit of these functions, and the platform's own
//! differ in it. All follow the methods of FreeBSD's msun, whose coefficients these are. None of them may be
//! contracted into fused operations; Rust never does that by itself.

#![expect(clippy::excessive_precision, reason = "the digits of msun")]

const LN2_HI: f64 = 6.931_471_803_691_238_164_90e-01;
const LN2_LO: f64 = 1.908_214_929_270_587_700_02e-10;

/// The natural logarithm.
#[expect(clippy::many_single_char_names, reason = "the names of msun")]
pub(crate) fn ln(x: f64) -> f64 {
    const L1: f64 = 6.666_666_666_666_735_130e-01;
    const L2: f64 = 3.999_999_999_940_941_908e-01;
    const L3: f64 = 2.857_142_874_366_239_149e-01;
    const L4: f64 = 2.222_219_843_214_978_396e-01;
    const L5: f64 = 1.818_357_216_161_805_012e-01;
    const L6: f64 = 1.531_383_769_920_937_332e-01;
    const L7: f64 = 1.479_819_860_511_658_591e-01;

    if !x.is_normal() || x < 0.0 {
        return x.ln();
    }
    let (mut fraction, mut exponent) = frexp(x);
    if fraction < std::f64::consts::FRAC_1_SQRT_2 {
        fraction *= 2.0;
        exponent -= 1;
    }
    let f = fraction - 1.0;
    let k = f64::from(exponent);

    let s = f / (2.0 + f);
    let s2 = s * s;
    let s4 = s2 * s2;
    let odd = s2 * (L1 + s4 * (L3 + s4 * (L5 + s4 * L7)));
    let even = s4 * (L2 + s4 * (L4 + s4 * L6));
    let r = odd + even;
    let half_square = 0.5 * f * f;
    k * LN2_HI - ((half_square - (s * (half_square + r) + k * LN2_LO)) - f)
}

/// Two to the power of `x`.
#[expect(clippy::many_single_char_names, reason = "the names of msun")]
pub(crate) fn exp2(x: f64) -> f64 {
    const P1: f64 = 1.666_666_666_666_666_574_15e-01;
    const P2: f64 = -2.777_777_777_701_559_338_42e-03;
    const P3: f64 = 6.613_756_321_437_934_361_17e-05;
    const P4: f64 = -1.653_390_220_546_525_153_90e-06;
    const P5: f64 = 4.138_136_797_057_238_460_39e-08;
    const OVERFLOW: f64 = 1_023.999_999_999_999_9;
    const UNDERFLOW: f64 = -1_074.0;

    if x.is_nan() {
        return x;
    }
    if x > OVERFLOW {
        return f64::INFINITY;
    }
    if x < UNDERFLOW {
        return 0.0;
    }
    // Truncation to the nearest whole number, halves away from zero.
    #[allow(clippy::cast_possible_truncation)] // Between -1075 and 1025.
    let whole = if x > 0.0 { (x + 0.5) as i32 } else { (x - 0.5) as i32 };
    let rest = x - f64::from(whole);
    let hi = rest * LN2_HI;
    let lo = -rest * LN2_LO;

    let r = hi - lo;
    let t = r * r;
    let c = r - t * (P1 + t * (P2 + t * (P3 + t * (P4 + t * P5))));
    let y = 1.0 - ((lo - (r * c) / (2.0 - c)) - hi);
    ldexp(y, whole)
}

/// `x` to a whole power, by squaring.
pub(crate) fn powi(x: f64, power: i32) -> f64 {
    if power == 0 || bits_eq(x, 1.0) {
        return 1.0;
    }
    if power == 1 {
        return x;
    }
    if !x.is_normal() {
        // Zero, infinity and NaN, which have one answer everywhere.
        return x.powi(power);
    }
    let (mut square, mut square_exponent) = frexp(x);
    let mut fraction = 1.0;
    let mut exponent = 0;
    let mut bits = power.unsigned_abs();
    while bits != 0 {
        if !(-(1 << 12)..=1 << 12).contains(&square_exponent) {
            // Beyond the range of a float already, whatever the bits left add.
            exponent += square_exponent;
            break;
        }
        if bits & 1 == 1 {
            fraction *= square;
            exponent += square_exponent;
        }
        square *= square;
        square_exponent <<= 1;
        if square < 0.5 {
            square += square;
            square_exponent -= 1;
        }
        bits >>= 1;
    }
    if power < 0 { ldexp(1.0 / fraction, -exponent) } else { ldexp(fraction, exponent) }
}

/// `fraction` times two to the power of `exponent`, rounded once.
pub(crate) fn ldexp(fraction: f64, exponent: i32) -> f64 {
    if fraction == 0.0 || !fraction.is_finite() {
        return fraction;
    }
    let (fraction, own) = frexp(fraction);
    let exponent = exponent.saturating_add(own);
    // The fraction is in [0.5, 1).
    if exponent < -1_074 {
        return 0.0_f64.copysign(fraction);
    }
    if exponent > 1_024 {
        return f64::INFINITY.copysign(fraction);
    }
    if exponent > -1_022 {
        // Two exact steps: 2^1024 is not a float.
        return fraction * 2.0 * power_of_two(exponent - 1);
    }
    // A result below the normal range: only the last product rounds.
    fraction * power_of_two(exponent + 53) * power_of_two(-53)
}

/// A fraction in [0.5, 1) and the power of two that make up `x`, which is finite and not zero.
fn frexp(x: f64) -> (f64, i32) {
    const EXPONENT: u64 = 0x7ff << 52;
    let (x, adjust) = if x.is_subnormal() { (x * power_of_two(52), -52) } else { (x, 0) };
    let bits = x.to_bits();
    #[allow(clippy::cast_possible_truncation)] // Eleven bits.
    let biased = ((bits & EXPONENT) >> 52) as i32;
    (f64::from_bits(bits & !EXPONENT | 1_022 << 52), biased - 1_022 + adjust)
}

/// Two to a power within the normal range.
fn power_of_two(power: i32) -> f64 {
    let biased = (power + 1_023).clamp(1, 2_046);
    f64::from_bits(u64::from(biased.unsigned_abs()) << 52)
}

fn bits_eq(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits printed by Go 1.26 on amd64.
    #[test]
    fn single_results_are_gos() {
        for (x, bits) in [
            (1.05, 0x3fa8_fb06_3ef2_c7f0),
            (1.5, 0x3fd9_f323_ecbf_984c),
            (2.0, 0x3fe6_2e42_fefa_39ef),
            (0.1, 0xc002_6bb1_bbb5_5515),
            (1e7, 0x4030_1e3b_843e_aa73),
            (1.000_000_1, 0x3e7a_d7f2_847b_6492),
            (5e6 + 1.0, 0x402e_d992_df43_ade2),
        ] {
            assert_eq!(ln(x).to_bits(), bits, "ln {x}");
        }
        for (x, bits) in [
            (0.0, 0x3ff0_0000_0000_0000),
            (0.5, 0x3ff6_a09e_667f_3bcc),
            (-0.5, 0x3fe6_a09e_667f_3bcc),
            (0.3, 0x3ff3_b2c4_7bff_8329),
            (99.99, 0x462f_c769_e9b9_c33e),
            (-99.99, 0x39b0_1c7d_6c40_4f1c),
            (-1_030.3, 0x0000_0cfe_fc5e_672a),
            (-1_074.0, 0x0000_0000_0000_0001),
            (1_023.9, 0x7fed_db68_0117_aa8e),
        ] {
            assert_eq!(exp2(x).to_bits(), bits, "exp2 {x}");
        }
        for (x, power, bits) in [
            (1.05, 175, 0x40b3_f28c_0b1c_2558),
            (1.05, 100, 0x4060_700a_4de5_1799),
            (1.05, 7, 0x3ff6_837b_bb97_f124),
            (1.16, -2, 0x3fe7_c7fd_9096_fb70),
            (1.001, -2, 0x3fef_efa3_faa4_d8d6),
            (1e200, -2, 0),
            (1e-160, 2, 0x0000_0000_0000_07e8),
            (f64::INFINITY, -2, 0),
        ] {
            assert_eq!(powi(x, power).to_bits(), bits, "{x} to the power of {power}");
        }
    }

    /// Digests, printed by Go 1.26 on amd64, of a million results each over the range that histograms use.
    #[test]
    fn a_million_results_each_are_gos() {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            #[allow(clippy::cast_precision_loss)] // 53 bits.
            let random = (state >> 11) as f64 / 9_007_199_254_740_992.0;
            random
        };
        let mut digest = |of: fn(f64) -> f64| {
            (0..1_000_000).fold(14_695_981_039_346_656_037_u64, |digest, _| {
                let mixed = (digest ^ of(next()).to_bits()).wrapping_mul(0x100_0000_01b3);
                mixed ^ mixed >> 29
            })
        };
        assert_eq!(digest(|x| ln(1.0 + x * 5e6)), 0x9381_3b83_f374_c163);
        assert_eq!(digest(|x| exp2(x * 210.0 - 110.0)), 0x6cb0_c1a3_af7c_a732);
        assert_eq!(digest(|x| powi(1.0 + 0.001 / x, -2)), 0x6366_bd1d_4b60_5c9c);
    }
}
