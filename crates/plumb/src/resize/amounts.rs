//! Amounts of cpu and memory, as a command line spells them.

use std::str::FromStr;

use anyhow::{Context as _, anyhow, bail};
use plumb_resize::Quantity;
use plumb_resize::resource::{PerResource, Resource};

/// The least memory that the command line takes: what is below is a unit that was left out or mistaken.
const LEAST_MEMORY: Quantity = Quantity::from_bytes(MEBIBYTE);
const MEBIBYTE: i64 = 1 << 20;

/// Amounts of cpu and memory: `cpu=500m,memory=1Gi`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Amounts(pub(super) PerResource<Option<Quantity>>);

impl FromStr for Amounts {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut amounts = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, amount) = part.split_once('=').context("write it as cpu=500m,memory=1Gi")?;
            let resource = Resource::named(name);
            let resource =
                resource.with_context(|| format!("{name:?} cannot be resized; cpu and memory can"))?;
            let read = match resource {
                Resource::Cpu => cpu(amount),
                Resource::Memory => memory(amount),
            };
            let read = read.map_err(|error| anyhow!("{name} {amount:?}: {error}"))?;
            if amounts.0[resource].replace(read).is_some() {
                bail!("{name} is given twice");
            }
        }
        Ok(amounts)
    }
}

/// An amount of cpu, in cores. The API takes `1Gi`, a billion cores; a person who writes it means something else.
pub(super) fn cpu(text: &str) -> anyhow::Result<Quantity> {
    let amount: Quantity = text.parse().map_err(|_| anyhow!("write 650m or 1.5"))?;
    let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let meant = match &text[number.len()..] {
        "" | "m" | "u" | "n" => return Ok(amount),
        "M" => format!("{number}m"),
        _ => number.to_owned(),
    };
    bail!("that is {} cores; did you mean {meant}?", amount.saturating_units());
}

/// An amount of memory: whole bytes, and a mebibyte or more. The API takes `64m`, 64 thousandths of a byte; a person who
/// writes it means `64Mi`. Zero is a request of its own.
pub(super) fn memory(text: &str) -> anyhow::Result<Quantity> {
    let number = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let is_number = !number.is_empty() && number.chars().all(|it| it.is_ascii_digit() || it == '.');
    let Ok(amount) = text.parse::<Quantity>() else {
        let number = if is_number { number } else { "64" };
        bail!("write {number}Mi or {number}M");
    };
    let bytes = amount.saturating_units();
    if amount.is_positive() && amount < LEAST_MEMORY {
        let unit = if number.parse::<f64>().is_ok_and(|number| number < 1.0) { "Gi" } else { "Mi" };
        let number = if is_number { number } else { "64" };
        bail!("that is less than 1Mi; did you mean {number}{unit}?");
    }
    if amount != Quantity::from_bytes(bytes) {
        bail!("that is not a whole number of bytes; did you mean {}Mi?", bytes / MEBIBYTE);
    }
    Ok(amount)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_in_a_mistaken_unit_is_refused_with_a_suggestion() {
        for (text, words) in [
            ("64m", "did you mean 64Mi?"),
            ("64", "did you mean 64Mi?"),
            ("64k", "did you mean 64Mi?"),
            ("0.5", "did you mean 0.5Gi?"),
            ("1048575", "less than 1Mi"),
            ("0.3Gi", "did you mean 307Mi?"),
            ("64MB", "write 64Mi or 64M"),
            ("much", "write 64Mi or 64M"),
            ("", "write 64Mi or 64M"),
        ] {
            let refused = memory(text).unwrap_err().to_string();
            assert!(refused.contains(words), "{text}: {refused}");
            assert!(format!("memory={text}").parse::<Amounts>().is_err(), "{text}");
        }
        for text in ["1Mi", "64Mi", "64M", "1.5Gi", "1e9", "1048576", "0"] {
            assert_eq!(memory(text).unwrap(), text.parse().unwrap(), "{text}");
        }
    }

    #[test]
    fn an_amount_that_is_given_twice_is_refused() {
        let refused = "cpu=1,memory=64Mi,cpu=2".parse::<Amounts>().unwrap_err().to_string();
        assert_eq!(refused, "cpu is given twice");
    }

    #[test]
    fn cpu_in_a_unit_of_memory_is_refused_with_a_suggestion() {
        for (text, words) in [
            ("1Gi", "that is 1073741824 cores; did you mean 1?"),
            ("100M", "did you mean 100m?"),
            ("1.5G", "did you mean 1.5?"),
            ("2Ki", "did you mean 2?"),
            ("2k", "did you mean 2?"),
            ("much", "write 650m or 1.5"),
        ] {
            let refused = cpu(text).unwrap_err().to_string();
            assert!(refused.contains(words), "{text}: {refused}");
            assert!(format!("cpu={text}").parse::<Amounts>().is_err(), "{text}");
        }
        for text in ["650m", "1.5", "0", "1e3", "500000u"] {
            assert_eq!(cpu(text).unwrap(), text.parse().unwrap(), "{text}");
        }
    }
}
