//! `plumb dashboard`: a web page of a cluster, on this machine.

use std::net::SocketAddr;

use clap::Args;
use plumb_cluster::signals::Signals;
use plumb_dashboard::{Config, Dashboard as Server};

use crate::client::{Target, block_on, write_out};

/// Serve a web page of a cluster on this machine, until Ctrl-C: nodes, resizes, recommendations and rollouts, live.
///
/// It shows what this user may read, and what a resize would lead to; rollouts are paused, resumed and undone by buttons. The
/// printed URL has a token, without which no page is shown.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    plumb dashboard\n  \
    plumb dashboard --context production -n shop\n  \
    ssh -L 6480:127.0.0.1:6480 machine plumb dashboard    # the dashboard of another machine")]
pub(crate) struct Dashboard {
    /// The loopback address to listen on; port 0 is any free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6480")]
    listen: SocketAddr,
    /// Read the objects of this namespace alone, which users need who may not list those of all. [default: all]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: Dashboard) -> anyhow::Result<()> {
    block_on(async {
        let mut signals = Signals::listen()?;
        let (config, client) = args.target.config().await?;
        let name = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
        let dashboard = Server::bind(args.listen, Config::new(client, args.namespace, name)).await?;
        write_out(&format!("{}\n", dashboard.url()))?;
        tokio::select! {
            () = dashboard.run() => {}
            _ = signals.next() => {}
        }
        Ok(())
    })
}
