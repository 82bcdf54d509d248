//! Sending a batch to the kernel.

use std::io;
use std::os::fd::AsFd as _;

use netlink_sys::{Socket as NetlinkSocket, SocketAddr, protocols::NETLINK_NETFILTER};
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::UnixDatagram;

use crate::batch::Batch;
use crate::message::{Family, HEADER, table_request};

/// `net.core.wmem_default` of most machines.
const DEFAULT_SEND_BUFFER: usize = 212_992;
const NLMSG_ERROR: u16 = 2;
/// The group of those that are notified of changes of rules.
const NFNLGRP_NFTABLES: u32 = 7;

/// Whether a table of the family `ip` exists in the network namespace of the calling thread.
pub fn has_table(name: &str) -> io::Result<bool> {
    has_table_of(Family::Ip, name)
}

/// Whether a table of this family exists there.
pub fn has_table_of(family: Family, name: &str) -> io::Result<bool> {
    Socket::open()?.has_table(family, name)
}

/// A change that the kernel has refused.
#[derive(Debug, thiserror::Error)]
#[error("nf_tables: {change}: {source}")]
struct RefusedChange {
    change: String,
    source: io::Error,
}

/// The error number of the kernel in an error of [`Batch::commit`].
pub fn errno(error: &io::Error) -> Option<Errno> {
    let refused = error.get_ref().and_then(|inner| inner.downcast_ref::<RefusedChange>());
    refused.map_or(error, |refused| &refused.source).raw_os_error().map(Errno::from_raw)
}

impl Batch {
    /// Applies all changes, or none, in the network namespace of the calling thread.
    pub fn commit(self) -> io::Result<()> {
        Socket::open()?.commit(self)
    }
}

/// Calls a function whenever a program has changed rules, until the future is dropped. Without `nf_tables` there are no
/// rules, and it is never called.
pub async fn on_change(repair: impl Fn() + Clone + Send + 'static) {
    let Ok(monitor) = Monitor::open() else { return std::future::pending().await };
    while monitor.changed().await.is_ok() {
        // It fails only if the runtime shuts down.
        let _ = tokio::task::spawn_blocking(repair.clone()).await;
    }
}

/// A socket to the netfilter of the network namespace that it was opened in.
struct Socket(NetlinkSocket);

impl Socket {
    fn open() -> io::Result<Self> {
        let mut socket = NetlinkSocket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // The kernel has answered when it returns from sending: what is not there then does not come.
        socket.set_non_blocking(true)?;
        Ok(Self(socket))
    }

    fn has_table(&self, family: Family, name: &str) -> io::Result<bool> {
        self.0.send(&table_request(family, name), 0)?;
        let (answer, _) = self.0.recv_from_full()?;
        match results(&answer).first() {
            None | Some((_, 0)) => Ok(true),
            Some((_, code)) => match io::Error::from_raw_os_error(code.saturating_neg()) {
                error if error.kind() == io::ErrorKind::NotFound => Ok(false),
                error => Err(error),
            },
        }
    }

    fn commit(&self, batch: Batch) -> io::Result<()> {
        let (bytes, messages) = batch.finish();
        // The kernel refuses a message that is larger than the buffer (EMSGSIZE), and counts more than its bytes.
        if bytes.len() > DEFAULT_SEND_BUFFER / 4 {
            setsockopt(&self.0, sockopt::SndBufForce, &(bytes.len() * 2))?;
        }
        self.0.send(&bytes, 0)?;
        let mut acknowledged = false;
        loop {
            let answer = match self.0.recv_from_full() {
                Ok((answer, _)) => answer,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            for (sequence, code) in results(&answer) {
                if code != 0 {
                    let source = io::Error::from_raw_os_error(code.saturating_neg());
                    let change = messages.get(sequence).map_or("change the rules", String::as_str).to_owned();
                    return Err(io::Error::new(source.kind(), RefusedChange { change, source }));
                }
                acknowledged = true;
            }
        }
        if acknowledged { Ok(()) } else { Err(io::Error::other("nf_tables: the kernel does not answer")) }
    }
}

/// Notices changes of rules, by any program.
struct Monitor(UnixDatagram);

impl Monitor {
    /// Must be called in a Tokio runtime.
    fn open() -> io::Result<Self> {
        let mut socket = NetlinkSocket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.add_membership(NFNLGRP_NFTABLES)?;
        socket.set_non_blocking(true)?;
        // Tokio has no netlink sockets. One is received from like any other socket of datagrams.
        let socket = socket.as_fd().try_clone_to_owned()?;
        UnixDatagram::from_std(socket.into()).map(Self)
    }

    /// Waits until rules have changed since the last call.
    async fn changed(&self) -> io::Result<()> {
        self.0.readable().await?;
        let mut buffer = [0; 4096];
        // What changed is not read, only that it did: too much of it (ENOBUFS) is a change as well.
        while self.0.try_recv(&mut buffer).is_ok() {}
        Ok(())
    }
}

/// The sequence number and the error code of each result in an answer.
fn results(answer: &[u8]) -> Vec<(usize, i32)> {
    let mut found = Vec::new();
    let mut rest = answer;
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_ne_bytes)
    };
    while let Some(length) = word(rest, 0).and_then(|length| usize::try_from(length).ok()) {
        if length < HEADER || length > rest.len() {
            break;
        }
        let message = &rest[..length];
        let kind = u16::from_ne_bytes([message[4], message[5]]);
        // The error code, then the header of the message that it is about.
        if let (NLMSG_ERROR, Some(code), Some(sequence)) =
            (kind, word(message, HEADER), word(message, HEADER + 4 + 8))
        {
            found.push((usize::try_from(sequence).unwrap_or(usize::MAX), code.cast_signed()));
        }
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(sequence: u32, code: i32) -> Vec<u8> {
        let mut message = Vec::new();
        message.extend(36_u32.to_ne_bytes());
        message.extend(NLMSG_ERROR.to_ne_bytes());
        message.extend([0; 10]);
        message.extend(code.to_ne_bytes());
        message.extend([0; 8]);
        message.extend(sequence.to_ne_bytes());
        message.extend([0; 4]);
        message
    }

    #[test]
    fn the_number_of_a_refused_change_is_kept() {
        let source = io::Error::from_raw_os_error(Errno::EOPNOTSUPP as i32);
        let refused = io::Error::new(source.kind(), RefusedChange { change: "add the table".into(), source });
        assert_eq!(errno(&refused), Some(Errno::EOPNOTSUPP));
        assert!(refused.to_string().starts_with("nf_tables: add the table: "), "{refused}");
        assert_eq!(errno(&io::Error::from_raw_os_error(Errno::EBUSY as i32)), Some(Errno::EBUSY));
        assert_eq!(errno(&io::Error::other("the kernel does not answer")), None);
    }

    #[test]
    fn results_are_read_whatever_comes() {
        let both = [result(3, -2), result(4, 0)].concat();
        assert_eq!(results(&both), [(3, -2), (4, 0)]);
        for end in 0..both.len() {
            assert!(results(&both[..end]).len() <= 1, "{end}");
        }
        assert_eq!(results(&[0; 64]), []);
    }
}
