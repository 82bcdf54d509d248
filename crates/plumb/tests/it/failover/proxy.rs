//! One address for the webhooks of two processes, as a Service is.

use std::net::Ipv4Addr;

use plumb_testkit::free_port;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Forwards connections to whichever of two ports accepts them, until it is dropped.
pub(super) struct Proxy {
    port: u16,
    backends: [u16; 2],
    _serving: JoinSet<()>,
}

impl Proxy {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let backends = [free_port(), free_port()];
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                connections.spawn(async move {
                    for port in backends {
                        if let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
                            // The end of either is the end of both.
                            let _ = copy_bidirectional(&mut client, &mut server).await;
                            return;
                        }
                    }
                });
            }
        });
        Self { port, backends, _serving: serving }
    }

    /// Where it listens.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Where it forwards to.
    pub(super) fn backends(&self) -> [u16; 2] {
        self.backends
    }
}
