//! Amounts as people write them.

use plumb_resize::Quantity;
use plumb_resize::resource::Resource;

use crate::MAX_AMOUNT;

const UNITS: [(&str, i64); 4] = [("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];

/// Millicores or bytes as short as people want them: `126m`, `1.4`, `250Mi`, `1.1Gi`.
pub fn short(resource: Resource, amount: i64) -> String {
    match resource {
        // The upper bound without history, which a status writes as 100G of cpu.
        _ if amount >= MAX_AMOUNT => "unbounded".to_owned(),
        Resource::Cpu if amount < 1_000 => format!("{amount}m"),
        Resource::Cpu => decimal(amount, 1_000),
        Resource::Memory => match UNITS.into_iter().find(|&(_, size)| amount >= size) {
            Some((unit, size)) => decimal(amount, size) + unit,
            None => amount.to_string(),
        },
    }
}

/// A quantity as short as people want it: `126m`, `1.4`, `250Mi`, `1.1Gi`.
pub fn short_quantity(resource: Resource, quantity: Quantity) -> String {
    short(
        resource,
        match resource {
            Resource::Cpu => quantity.saturating_milli(),
            Resource::Memory => quantity.saturating_units(),
        },
    )
}

/// The same for cores or bytes.
pub fn short_units(resource: Resource, units: f64) -> String {
    let amount = match resource {
        Resource::Cpu => units * 1_000.0,
        Resource::Memory => units,
    };
    #[expect(clippy::cast_possible_truncation, reason = "buckets end at 1000 cores and 1 TB")]
    let amount = amount.round() as i64;
    short(resource, amount)
}

/// A quotient with two decimals at most.
fn decimal(amount: i64, of: i64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
    let text = format!("{:.2}", amount as f64 / of as f64);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short() {
        let cases = [
            (Resource::Cpu, 0, "0m"),
            (Resource::Cpu, 126, "126m"),
            (Resource::Cpu, 1_000, "1"),
            (Resource::Cpu, 1_350, "1.35"),
            (Resource::Cpu, 10_000, "10"),
            (Resource::Cpu, MAX_AMOUNT, "unbounded"),
            (Resource::Memory, MAX_AMOUNT, "unbounded"),
            (Resource::Memory, 0, "0"),
            (Resource::Memory, 1_023, "1023"),
            (Resource::Memory, 262_144_000, "250Mi"),
            (Resource::Memory, 1_168_723_596, "1.09Gi"),
        ];
        for (resource, amount, expected) in cases {
            assert_eq!(short(resource, amount), expected);
        }
    }
}
