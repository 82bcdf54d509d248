//! A proxy through which pods reach the API server: it forwards connections to the Service `kubernetes` to loopback.
//!
//! ```text
//!   pod ──▶ 10.214.n.1:443, an address of the bridge ──▶ copied both ways ──▶ 127.0.0.1:PORT
//! ```
//!
//! kube-proxy would write to the firewall of the whole machine, which clusters share.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use crate::error::{Error, IoContext as _};
use crate::instance::Instance;

/// The port of the Service `kubernetes`.
const PORT: u16 = 443;
/// The time until the next attempt after a connection could not be accepted.
const RETRY: Duration = Duration::from_millis(100);

/// Listens, and forwards connections until the process ends.
pub(super) async fn start(instance: &Instance, server: SocketAddr) -> Result<(), Error> {
    let address = format!("{}:{PORT}", instance.service_address());
    let listener = TcpListener::bind(&address).await.doing("listen at", &address)?;
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((client, _)) => _ = tokio::spawn(pass_on(client, server)),
                // The process is out of file descriptors; other connections will close theirs.
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
    });
    Ok(())
}

/// Copies until either side is done. A client that is cut off connects again.
async fn pass_on(mut client: TcpStream, server: SocketAddr) {
    if let Ok(mut server) = TcpStream::connect(server).await {
        let _ = copy_bidirectional(&mut client, &mut server).await;
    }
}
