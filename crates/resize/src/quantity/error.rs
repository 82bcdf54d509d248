use std::fmt;

/// Why a text is no quantity, or why an operation on quantities has no answer.
///
/// The first three carry the messages of the Kubernetes API server, which end up in what users read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum QuantityError {
    /// The text is not a number followed by something shaped like a suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    FormatWrong,
    /// There is a known suffix without a digit before it.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// The part after the number is shaped like a suffix but is none.
    #[error("unable to parse quantity's suffix")]
    Suffix,
    /// The result is outside of what can be represented.
    #[error("quantity out of range: {0}")]
    Overflow(Operation),
    /// A quantity was to be scaled by a fraction whose denominator is zero.
    #[error("quantity cannot be scaled by a fraction with denominator zero")]
    ZeroDenominator,
}

/// The operation of a [`QuantityError::Overflow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Reading a text.
    Parse,
    /// Adding two quantities.
    Add,
    /// Subtracting one quantity from another.
    Sub,
    /// Multiplying by a whole number.
    Mul,
    /// Multiplying by a fraction.
    Scale,
    /// Counting the thousandths in 64 bits.
    Milli,
    /// Counting the whole units in 64 bits.
    Units,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Parse => "reading it",
            Self::Add => "adding",
            Self::Sub => "subtracting",
            Self::Mul => "multiplying",
            Self::Scale => "scaling by a fraction",
            Self::Milli => "counting thousandths in 64 bits",
            Self::Units => "counting whole units in 64 bits",
        })
    }
}
