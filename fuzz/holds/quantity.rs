//! Any bytes may be tried as a quantity; those that are one keep their value when written and read again.

use plumb_resize::{Format, Quantity};

/// Fails where it does not hold.
pub(crate) fn holds(bytes: &[u8]) {
    let Ok(quantity) = Quantity::parse(bytes) else { return };
    for format in [quantity.format(), Format::DecimalSi, Format::BinarySi, Format::DecimalExponent] {
        let written = quantity.with_format(format).to_string();
        assert_eq!(written.parse(), Ok(quantity), "written as {written}");
    }
    let text = str::from_utf8(bytes).expect("a quantity is made of ASCII only");
    let wire = Quantity::wire_form(text).expect("what can be read has a wire form");
    assert_eq!(wire.parse(), Ok(quantity), "on the wire as {wire}");
    if let Ok(units) = quantity.units() {
        assert_eq!(quantity.saturating_units(), units);
    }
}
