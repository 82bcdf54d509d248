//! Ports for processes that get their address by a flag.

#![expect(clippy::expect_used, reason = "a test that cannot be set up has failed")]

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that the kernel gives to sockets that ask for any: none of them takes one of these meanwhile.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A free port of the loopback interface, which stays free until the process listens that it is given to, and while that
/// process is restarted. A server that can, listens on port 0 instead.
///
/// # Panics
/// If there is none.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test processes that run at the same time begin at different ports.
    let begin = u16::try_from(std::process::id() % u32::from(COUNT)).expect("less than the count");
    let ports = (0..COUNT).map(|_| {
        let number = u32::from(begin) + u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        FIRST + u16::try_from(number % u32::from(COUNT)).expect("less than the count")
    });
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    { ports }.find(is_free).expect("a free port")
}
