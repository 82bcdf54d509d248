//! Requests to the kernel, and its answers.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket as NetlinkSocket, SocketAddr};
use nix::errno::Errno;

/// Attempts at a list that changes while it is read.
const ATTEMPTS: u32 = 8;

pub(super) struct Socket(NetlinkSocket);

impl Socket {
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = NetlinkSocket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // The kernel then reads the filters of requests for lists, instead of ignoring them.
        socket.set_netlink_get_strict_chk(true)?;
        Ok(Self(socket))
    }

    /// Makes something that does not exist.
    pub(super) fn create(&self, message: RouteNetlinkMessage) -> io::Result<()> {
        self.change(message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Changes something that exists.
    pub(super) fn modify(&self, message: RouteNetlinkMessage) -> io::Result<()> {
        self.change(message, 0)
    }

    /// Makes something, or replaces what there is.
    pub(super) fn replace(&self, message: RouteNetlinkMessage) -> io::Result<()> {
        self.change(message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Removes something, if it exists.
    pub(super) fn remove(&self, message: RouteNetlinkMessage) -> io::Result<()> {
        let absent = [Errno::ENODEV, Errno::ENOENT, Errno::ESRCH];
        match self.change(message, 0) {
            Err(error) if absent.iter().any(|errno| error.raw_os_error() == Some(*errno as i32)) => Ok(()),
            removed => removed,
        }
    }

    fn change(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.send(message, NLM_F_ACK | flags)?;
        let (answer, _) = self.0.recv_from_full()?;
        match parse(&answer)?.payload {
            NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
            _ => Ok(()),
        }
    }

    /// Those objects of a list that a function reads.
    pub(super) fn dump<T>(
        &self,
        request: RouteNetlinkMessage,
        read: impl Fn(RouteNetlinkMessage) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        for _ in 0..ATTEMPTS {
            if let Some(found) = self.try_dump(request.clone(), &read)? {
                return Ok(found);
            }
        }
        Err(io::Error::other("it changes again and again while it is read"))
    }

    /// `None` if the list changed while it was read.
    fn try_dump<T>(
        &self,
        request: RouteNetlinkMessage,
        read: &impl Fn(RouteNetlinkMessage) -> Option<T>,
    ) -> io::Result<Option<Vec<T>>> {
        /// `NLM_F_DUMP_INTR`: the list is inconsistent.
        const INTERRUPTED: u16 = 0x10;
        self.send(request, NLM_F_DUMP)?;
        let mut found = Vec::new();
        let mut is_consistent = true;
        loop {
            let (answer, _) = self.0.recv_from_full()?;
            let mut rest = answer.as_slice();
            while !rest.is_empty() {
                let message = parse(rest)?;
                is_consistent &= message.header.flags & INTERRUPTED == 0;
                let length = usize::try_from(message.header.length).unwrap_or(usize::MAX).next_multiple_of(4);
                match message.payload {
                    NetlinkPayload::Done(_) => return Ok(is_consistent.then_some(found)),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    NetlinkPayload::InnerMessage(message) => found.extend(read(message)),
                    _ => {}
                }
                rest = rest.get(length.max(1)..).unwrap_or_default();
            }
        }
    }

    fn send(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = 1;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut buffer = vec![0; message.buffer_len()];
        message.serialize(&mut buffer);
        self.0.send(&buffer, 0).map(drop)
    }
}

fn parse(bytes: &[u8]) -> io::Result<NetlinkMessage<RouteNetlinkMessage>> {
    NetlinkMessage::deserialize(bytes).map_err(io::Error::other)
}
