//! Rules that a real kernel accepts and applies, each test in a network namespace of its own.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by ending")]

mod accepted;
mod applied;

use std::io;

use nix::sched::{CloneFlags, unshare};
use plumb_nftables::{Batch, errno};

/// Runs a test on a machine of its own: a network namespace with nothing but a loopback interface, which is up.
fn on_own_machine(test: impl FnOnce() + Send + 'static) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let run = move || {
        if !rustix::process::geteuid().is_root() {
            plumb_testkit::skip(plumb_testkit::ROOT, "network namespaces need root");
            return;
        }
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        loopback_up();
        test();
    };
    if let Err(panic) = std::thread::Builder::new().name(name).spawn(run).unwrap().join() {
        std::panic::resume_unwind(panic);
    }
}

/// `RTM_NEWLINK`: sets the first interface up.
fn loopback_up() {
    let mut message = Vec::new();
    message.extend(32_u32.to_ne_bytes());
    // The kind, NLM_F_REQUEST | NLM_F_ACK, sequence number and port.
    message.extend(16_u16.to_ne_bytes());
    message.extend(5_u16.to_ne_bytes());
    message.extend([0; 8]);
    // `struct ifinfomsg`: family and type, index, flags (IFF_UP), which flags change.
    message.extend([0; 4]);
    for number in [1_u32, 1, 1] {
        message.extend(number.to_ne_bytes());
    }
    let mut socket = netlink_sys::Socket::new(netlink_sys::protocols::NETLINK_ROUTE).unwrap();
    socket.bind_auto().unwrap();
    socket.send(&message, 0).unwrap();
    let (answer, _) = socket.recv_from_full().unwrap();
    assert_eq!(&answer[16..20], [0; 4], "{answer:?}");
}

/// Commits a batch; false, and the test is skipped, if the kernel lacks what it needs.
fn commit(batch: Batch) -> bool {
    match batch.commit() {
        Ok(()) => true,
        Err(error) if is_unsupported(&error) => {
            plumb_testkit::skip(
                plumb_testkit::MACHINE,
                &format!("the kernel lacks what the rules need: {error}"),
            );
            false
        }
        Err(error) => panic!("{error}"),
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    use nix::errno::Errno;
    matches!(errno(error), Some(Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT | Errno::EOPNOTSUPP))
}
