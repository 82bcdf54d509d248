//! The client of shims.

use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::time::Duration;

use plumb_supervise::Exponential;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::shim::{Reply, Request, SOCKET, ShimCommand, ShimResponse, VERSION, frame, length};

/// The delays after a failure that is not the shim's.
const DELAYS: Exponential = Exponential::new(Duration::from_millis(100), Duration::from_secs(10));

/// Waits until the container of a folder has ended. An error means that its shim is gone: a shortage of this process, as of
/// file descriptors, is waited out, since a container without a shim is killed.
pub(super) async fn wait(folder: &Path) -> io::Result<ShimResponse> {
    let mut failures = 0_u32;
    loop {
        match send(folder, ShimCommand::Wait).await {
            Err(error) if is_shortage(&error) => {
                failures = failures.saturating_add(1);
                tracing::warn!(%error, folder = %folder.display(), "cannot reach a shim, will retry");
                tokio::time::sleep(DELAYS.after(failures)).await;
            }
            response => return response,
        }
    }
}

/// Whether this process or the machine lacks a resource, so that the error is not about the shim.
fn is_shortage(error: &io::Error) -> bool {
    let shortages = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS, libc::EAGAIN];
    error.raw_os_error().is_some_and(|number| shortages.contains(&number))
}

/// Sends a command to the shim of a container's folder. An error means that the shim has ended.
pub(super) async fn send(folder: &Path, command: ShimCommand) -> io::Result<ShimResponse> {
    Ok(send_on(folder, command).await?.0)
}

/// The same, with the connection, on which streams may follow.
pub(super) async fn send_on(folder: &Path, command: ShimCommand) -> io::Result<(ShimResponse, UnixStream)> {
    let mut stream = connect(folder).await?;
    stream.write_all(&frame(&Request { version: VERSION, ask: command })).await?;
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let length = length(head).ok_or_else(|| io::Error::other("the response is too long"))?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let reply: Reply = serde_json::from_slice(&body)?;
    Ok((reply.answer, stream))
}

/// The path of a socket has to be short, and a data directory may be anywhere; so the path is that of a descriptor.
async fn connect(folder: &Path) -> io::Result<UnixStream> {
    let folder = std::fs::File::open(folder)?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd());
    UnixStream::connect(path).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_of_this_process_is_not_the_end_of_a_shim() {
        for (number, expected) in [
            (libc::EMFILE, true),
            (libc::ENFILE, true),
            (libc::ENOMEM, true),
            (libc::EAGAIN, true),
            (libc::ECONNREFUSED, false),
            (libc::ENOENT, false),
        ] {
            assert_eq!(is_shortage(&io::Error::from_raw_os_error(number)), expected, "{number}");
        }
        assert!(!is_shortage(&io::ErrorKind::UnexpectedEof.into()));
    }
}
