//! `plumb dashboard`: a web page of a cluster, on this machine.

use std::net::SocketAddr;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use plumb_cluster::signals::Signals;
use plumb_dashboard::{Config, Dashboard as Server, Prices};

use crate::client::{Target, block_on, write_out};
use crate::completion;

/// Serve a web page of a cluster on this machine, until Ctrl-C: nodes, resizes, recommendations and rollouts, live.
///
/// It shows what this user may read, and what a resize would lead to; rollouts are paused, resumed and undone by buttons. The
/// printed URL has a token, without which no page is shown.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    plumb dashboard\n  \
    plumb dashboard --context production -n shop\n  \
    plumb dashboard --price-per-core-hour 0.03 --price-per-gib-hour 0.004\n  \
    ssh -L 6480:127.0.0.1:6480 machine plumb dashboard    # the dashboard of another machine")]
pub(crate) struct Dashboard {
    /// The loopback address to listen on; port 0 is any free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6480")]
    listen: SocketAddr,
    /// Read the objects of this namespace alone, which users need who may not list those of all. [default: all]
    #[arg(short, long, value_name = "NAME", add = ArgValueCompleter::new(completion::namespaces))]
    namespace: Option<String>,
    /// What a core costs in an hour, for the money that what is not used costs. Any currency.
    #[arg(long, value_name = "PRICE", value_parser = price)]
    price_per_core_hour: Option<f64>,
    /// What a GiB of memory costs in an hour.
    #[arg(long, value_name = "PRICE", value_parser = price)]
    price_per_gib_hour: Option<f64>,
    #[command(flatten)]
    target: Target,
}

/// A price, such as 0.03.
fn price(text: &str) -> Result<f64, &'static str> {
    let price = text.parse::<f64>().ok().filter(|price| price.is_finite() && *price >= 0.0);
    price.ok_or("write a price such as 0.03")
}

impl Dashboard {
    fn prices(&self) -> Option<Prices> {
        let is_set = self.price_per_core_hour.is_some() || self.price_per_gib_hour.is_some();
        let [core, gib] = [self.price_per_core_hour, self.price_per_gib_hour].map(Option::unwrap_or_default);
        is_set.then_some(Prices { core, gib })
    }
}

pub(crate) fn run(args: Dashboard) -> anyhow::Result<()> {
    block_on(async {
        let mut signals = Signals::listen()?;
        let (config, client) = args.target.config().await?;
        let name = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
        let prices = args.prices();
        let config = Config { prices, ..Config::new(client, args.namespace, name) };
        let dashboard = Server::bind(args.listen, config).await?;
        write_out(&format!("{}\n", dashboard.url()))?;
        tokio::select! {
            () = dashboard.run() => {}
            _ = signals.next() => {}
        }
        Ok(())
    })
}
