//! Values of flags.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use plumb_resize::Quantity;

/// The time between two runs of something, such as `15s` or `1m`.
pub fn interval(text: &str) -> anyhow::Result<Duration> {
    let time = length_of_time(text)?;
    let time = Duration::try_from(time).unwrap_or_default();
    ensure!(time >= Duration::from_millis(100), "it must be 100ms or more");
    Ok(time)
}

/// A length of time with its unit, such as `5s` or `1m`.
pub fn length_of_time(text: &str) -> anyhow::Result<jiff::SignedDuration> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().map_err(|_| match text {
        number if is_number => anyhow!("it needs a unit: write {number}s or {number}m"),
        _ => anyhow!("write a time such as 30s, 5m or 1h30m"),
    })
}

/// An amount that something may have at most.
pub fn positive_quantity(text: &str) -> anyhow::Result<Quantity> {
    let amount: Quantity = text.parse().context("write it as 500m, 2 or 4Gi")?;
    ensure!(amount.is_positive(), "it must be more than 0");
    Ok(amount)
}

/// An address to listen on.
pub fn socket_address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "write an IP address and a port, such as 127.0.0.1:6443")
}

/// An address that only this machine reaches.
pub(super) fn loopback_address(text: &str) -> Result<SocketAddr, &'static str> {
    let address = socket_address(text)?;
    if !address.ip().is_loopback() {
        return Err(
            "only this machine may reach it, which has no encryption: write an address such as 127.0.0.1:6480",
        );
    }
    Ok(address)
}
