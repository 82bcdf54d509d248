//! `plumb dashboard`: a web page of a cluster's resizes, recommendations and rollouts.
//!
//! ```text
//!   API server ──watch──▶ source: objects, rights ──▶ cluster ──▶ pages: sections ──▶ HTML, JSON, CSV
//!                                                        │                              ▲
//!                                                        └── changes ──▶ live: feeds ───┘ server-sent events
//!   browser ──▶ server ──▶ access: host, cookie, origin ──▶ view
//! ```
//!
//! It is a client of the API with the rights of the user who starts it, on any Kubernetes. It writes only what a button says: commands for
//! rollouts. Pages are rendered here; the only script replaces sections that changed.

mod access;
mod actions;
mod assets;
mod chart;
mod cluster;
mod history;
mod live;
mod page;
mod pages;
mod server;
mod session;
mod source;
mod table;
mod usage;
mod view;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube::Client;
use tokio::net::TcpListener;

use access::{Access, PARAMETER};
use server::State;
use session::Session;

/// How a dashboard is set up.
#[derive(Clone)]
pub struct Config {
    /// A client with the rights of the user.
    pub client: Client,
    /// The only namespace whose objects are read; `None` for all.
    pub namespace: Option<String>,
    /// The name of the cluster, for people.
    pub name: String,
    /// How often to check whether the user may still read objects, or may now.
    pub recheck: Duration,
    /// How often to read metrics.k8s.io.
    pub usage_interval: Duration,
    /// What resources cost; `None` shows no money.
    pub prices: Option<Prices>,
    /// When to begin to read objects.
    pub start: Start,
}

/// What resources cost in an hour, in any currency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// A core.
    pub core: f64,
    /// A GiB of memory.
    pub gib: f64,
}

/// When a dashboard begins to read objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// When it starts, so that the usage of pods is known from then on.
    AtOnce,
    /// At the first visit of the user: one that is never opened costs nothing.
    FirstVisit,
}

impl Config {
    /// The usual configuration.
    pub fn new(client: Client, namespace: Option<String>, name: String) -> Self {
        let (recheck, usage_interval) = (Duration::from_mins(1), Duration::from_secs(15));
        Self { client, namespace, name, recheck, usage_interval, prices: None, start: Start::AtOnce }
    }
}

/// Why a dashboard does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Others could reach it.
    #[error(
        "{0} is no address of this machine alone: a user of another machine could read the token, which is not encrypted, and use \
         your rights; listen on 127.0.0.1, and forward the port with ssh -L from elsewhere"
    )]
    NotLoopback(SocketAddr),
    /// The address cannot be used.
    #[error("listening on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error.
        #[source]
        source: io::Error,
    },
    /// There are no random numbers.
    #[error("the system has no random numbers for the token")]
    Random,
}

/// A dashboard that listens.
pub struct Dashboard {
    config: Config,
    listener: TcpListener,
    address: SocketAddr,
    access: Arc<Access>,
}

impl Dashboard {
    /// Listens on a loopback address.
    pub async fn bind(address: SocketAddr, config: Config) -> Result<Self, StartError> {
        if !address.ip().is_loopback() {
            return Err(StartError::NotLoopback(address));
        }
        let failed = |source| StartError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let access = Arc::new(Access::new(address).map_err(|_| StartError::Random)?);
        Ok(Self { config, listener, address, access })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The token that a browser or a program has to show.
    pub fn token(&self) -> &str {
        self.access.token()
    }

    /// The URL of the first visit, with the token.
    pub fn url(&self) -> String {
        format!("http://{}/?{PARAMETER}={}", self.address, self.token())
    }

    /// Serves until the future is dropped. It can be called again afterwards.
    pub async fn run(&self) {
        let session = OnceLock::new();
        if self.config.start == Start::AtOnce {
            session.get_or_init(|| Session::start(&self.config));
        }
        let state = State { access: self.access.clone(), config: self.config.clone(), session };
        server::serve(&self.listener, Arc::new(state)).await;
    }
}
