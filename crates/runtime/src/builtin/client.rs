//! Talking to shims.

use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::shim::{Answer, Ask, Reply, Request, SOCKET, VERSION, frame, length};

/// Asks the shim of a container's folder something. An error means that there is none, or that it went away.
pub(super) async fn ask(folder: &Path, ask: Ask) -> io::Result<Answer> {
    let mut stream = connect(folder).await?;
    stream.write_all(&frame(&Request { version: VERSION, ask })).await?;
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let length = length(head).ok_or_else(|| io::Error::other("an answer that is too long"))?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let reply: Reply = serde_json::from_slice(&body)?;
    Ok(reply.answer)
}

/// The path of a socket has to be short, and a data directory may be anywhere; so it goes by the folder's number.
async fn connect(folder: &Path) -> io::Result<UnixStream> {
    let folder = std::fs::File::open(folder)?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd());
    UnixStream::connect(path).await
}
