//! Backup of a running cluster: it writes a backup to a client of a socket in its data directory. Users who may enter the
//! directory of the socket could read the objects from the disk as well.

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plumb_store::Store;
use plumb_supervise::Supervisor;
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use crate::data_dir::{CONTROL, check_path};

const SOCKET: &str = "backup";
/// How long the other side may keep this one waiting.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Writes backups of a store, one after the other, to clients. It ends when the returned handle is dropped.
pub(crate) fn serve(data: &Path, store: Store, supervisor: &Supervisor) -> io::Result<JoinSet<()>> {
    DirBuilder::new().recursive(true).mode(0o700).create(data.join(CONTROL))?;
    let (_folder, socket) = socket(data)?;
    // That of a process that is no more: the data directory is ours alone.
    match std::fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = Arc::new(UnixListener::bind(&socket)?);
    let mut serving = JoinSet::new();
    serving.spawn(supervisor.keep("backup-server", move || accept(listener.clone(), store.clone())));
    Ok(serving)
}

async fn accept(listener: Arc<UnixListener>, store: Store) {
    loop {
        let written = match listener.accept().await {
            Ok((client, _)) => answer(client, store.clone()).await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            tracing::warn!(%error, "cannot write the requested backup");
            // The error (no more files, say) may last; it must not keep a core busy.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn answer(client: tokio::net::UnixStream, store: Store) -> io::Result<()> {
    let client = client.into_std()?;
    client.set_nonblocking(false)?;
    client.set_write_timeout(Some(TIMEOUT))?;
    let writing = tokio::task::spawn_blocking(move || store.backup(client));
    writing.await?.map(|revision| tracing::info!(revision, "wrote a copy"))
}

/// Has the cluster that runs on a data directory write a copy. The caller verifies the copy.
pub(super) fn fetch(data: &Path, writer: &mut impl Write) -> anyhow::Result<()> {
    check_path(&data.join(CONTROL).join(SOCKET))?;
    let (_folder, socket) = socket(data)?;
    let mut server = UnixStream::connect(socket)?;
    server.set_read_timeout(Some(TIMEOUT))?;
    io::copy(&mut server, writer)?;
    Ok(())
}

/// The socket, under a name that is short however deep the data directory is: addresses of sockets have 107 bytes. The
/// name is good as long as the folder is open.
fn socket(data: &Path) -> io::Result<(File, PathBuf)> {
    let folder = File::open(data.join(CONTROL))?;
    let socket = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(SOCKET);
    Ok((folder, socket))
}
