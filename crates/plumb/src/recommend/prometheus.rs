//! A report over a cluster's past, from Prometheus.

use std::io::{self, IsTerminal as _};

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use plumb_cluster::say;
use plumb_recommender::AggregationConfig;
use plumb_recommender::input::prometheus::Prometheus;
use plumb_recommender::offline::fleet::Fleet;

use super::{Format, Recommend};
use crate::client::{self, block_on, write_out};

pub(super) fn run(args: &Recommend, address: &str) -> anyhow::Result<()> {
    block_on(report(args, address))
}

async fn report(args: &Recommend, address: &str) -> anyhow::Result<()> {
    plumb_apiserver::serve::install_crypto();
    let namespace = args.namespace.as_deref();
    let settings = args.prometheus_flags.settings(address, namespace);
    let prometheus = Prometheus::new(settings).context("asking Prometheus")?;
    let config = AggregationConfig::new(args.tuning.aggregation()).context("making histograms")?;
    let mut fleet = Fleet::new(&config);
    let until = Timestamp::now();
    let bar = if io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{spinner} {msg} samples  {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    let length = args.prometheus_flags.history_length();
    let read = fleet.read(&prometheus, until, namespace, length, |samples| {
        if !bar.is_hidden() {
            bar.set_message(samples.to_string());
            bar.tick();
        }
    });
    let read = read.await;
    bar.finish_and_clear();
    read.map_err(|error| unreachable(&anyhow::Error::new(error), address))?;
    if fleet.samples() == 0 {
        let why = prometheus.why_empty(until).await.context("asking Prometheus")?;
        bail!("Prometheus has no usage of containers: {why}");
    }
    for (reason, count) in fleet.discarded() {
        say!("plumb: {count} of {} samples are not counted: {reason}", fleet.samples());
    }
    let report = fleet.report(&args.tuning.estimation());
    match args.output {
        Format::Table => write_out(&client::table(&report.table())),
        Format::Json => write_out(&client::json(&report.json())?),
        Format::Yaml => write_out(&client::yaml(&report.json())?),
        Format::Csv => write_out(&report.csv()),
        Format::Html => write_out(&report.html(&format!("Recommended requests, {until:.0}"))),
    }
}

/// Why Prometheus did not answer, with what to do about it if it was not reached.
fn unreachable(error: &anyhow::Error, address: &str) -> anyhow::Error {
    match client::connection_failure(error.as_ref()) {
        Some(failure) => anyhow::anyhow!(
            "cannot reach Prometheus at {address}: {failure}; check the URL, or forward a port to the Prometheus of a \
             cluster with `kubectl port-forward`"
        ),
        None => anyhow::anyhow!("asking Prometheus at {address}: {}", crate::message(error)),
    }
}
