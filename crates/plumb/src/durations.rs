//! Lengths of time in flags.

use std::time::Duration;

use anyhow::{anyhow, ensure};

/// The time between two runs of something, such as `15s` or `1m`.
pub(crate) fn interval(text: &str) -> anyhow::Result<Duration> {
    let time = length_of_time(text)?;
    let time = Duration::try_from(time).unwrap_or_default();
    ensure!(time >= Duration::from_millis(100), "it must be 100ms or more");
    Ok(time)
}

/// A length of time with its unit, such as `5s` or `1m`.
pub(crate) fn length_of_time(text: &str) -> anyhow::Result<jiff::SignedDuration> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().map_err(|_| match text {
        number if is_number => anyhow!("it needs a unit: write {number}s or {number}m"),
        _ => anyhow!("write a time such as 30s, 5m or 1h30m"),
    })
}
