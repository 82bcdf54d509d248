//! `plumb status --watch`: pods and VPAs as they change.
//!
//! A terminal shows all of them and is redrawn. Elsewhere those that change are printed: as rows with the time, or with
//! `-o json` and `-o yaml` as a stream of objects.

mod log;
mod screen;
mod vpas;

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::{Stream, StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::ListParams;
use parking_lot::Mutex;
use plumb_client::Api;
use plumb_cluster::say;
use plumb_controller_runtime::{ObjectRef, Reflector, WatchConfig, WatchEvent};
use plumb_vpa_explain::BoostView;
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval};

use super::listing::{Listing, Live};
use super::usage::{self, Usage};
use super::{Object, Status, boost_lines, vpa};
use crate::client::{Output, check_namespace, refusal, refusal_in, write_out, yaml};
use crate::reachability;

use log::Log;
use screen::{Screen, Size};

pub(super) use vpas::vpas;

/// How often a terminal is redrawn at most.
const REDRAW: Duration = Duration::from_millis(250);
/// How often a terminal is redrawn at least, for the ages on it.
const REFRESH: Duration = Duration::from_secs(1);

/// Shows pods until the command is ended.
pub(super) async fn pods(client: Client, namespace: &str, args: &Status) -> anyhow::Result<ExitCode> {
    let api: Api<Pod> = args.api(&client, namespace);
    let mut config = WatchConfig::default();
    let mut wanted =
        ListParams { label_selector: args.selector.clone(), limit: Some(1), ..Default::default() };
    if let Some(Object::Pod(name)) = &args.object {
        config = config.fields(format!("metadata.name={name}"));
        wanted.field_selector = Some(format!("metadata.name={name}"));
        if let Err(error) = api.get(name).await {
            return Err(refusal_in(&client, namespace, error).await);
        }
    }
    if let Some(selector) = &args.selector {
        config = config.labels(selector);
    }
    let redraws = redraws(args);
    // A server that cannot be reached, or does not allow it, ends the command; later failures are retried.
    if api.list(&wanted).await.map_err(refusal)?.items.is_empty() {
        if !args.all_namespaces {
            check_namespace(&client, namespace).await?;
        }
        if !redraws {
            say!("no pods in {} yet", args.place(namespace));
        }
    }
    // The reflector retries; what it logs is for components.
    let notice = Notice::default();
    let client = notice.reporting(client, redraws);
    let events = Reflector::new(args.api::<Pod>(&client, namespace), config).into_stream();
    if redraws {
        return redraw(args, client, namespace, events, &notice).await;
    }
    let mut log = Log::new(args, client);
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        match event {
            WatchEvent::Restarted(pods) => log.restart(&pods).await?,
            WatchEvent::Applied(pod) => log.show(&pod).await?,
            WatchEvent::Deleted(pod) => log.delete(&pod)?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Redraws the table of pods on the terminal.
async fn redraw(
    args: &Status,
    client: Client,
    namespace: &str,
    events: impl Stream<Item = WatchEvent<Pod>>,
    notice: &Notice,
) -> anyhow::Result<ExitCode> {
    let only = args.only(namespace);
    // The first read is at once.
    let usage = stream::unfold((client.clone(), Duration::ZERO), |(client, wait)| async move {
        tokio::time::sleep(wait).await;
        let read = Usage::read(&client, only).await;
        Some((read, (client, usage::REFRESH)))
    });
    let (mut events, mut usages) = (std::pin::pin!(events), std::pin::pin!(usage));
    let (mut redraw, mut refresh) = (interval(REDRAW), interval(REFRESH));
    redraw.set_missed_tick_behavior(MissedTickBehavior::Delay);
    refresh.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pods = Pods::default();
    let mut usage = Usage::default();
    let mut screen = Screen::default();
    let mut is_due = false;
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(event) => {
                    pods.apply(&client, event).await;
                    is_due = true;
                }
                None => return Ok(ExitCode::SUCCESS),
            },
            read = usages.next() => usage = read.unwrap_or_default(),
            _ = refresh.tick(), if pods.is_listed => is_due = true,
            _ = redraw.tick(), if is_due => {
                let size = Size::of_terminal();
                let live = Live { usage: &usage, now: Timestamp::now() };
                let text = match pods.text(args, live, size)? {
                    text if text.is_empty() => format!("no pods in {} yet\n", args.place(namespace)),
                    text => text,
                };
                screen.draw(&(notice.line() + &text), size)?;
                is_due = false;
            }
        }
    }
}

/// The pods on the terminal, with their boosts.
#[derive(Default)]
struct Pods {
    all: BTreeMap<ObjectRef, (Pod, Vec<BoostView>)>,
    /// Whether they were listed once.
    is_listed: bool,
}

impl Pods {
    async fn apply(&mut self, client: &Client, event: WatchEvent<Pod>) {
        match event {
            WatchEvent::Restarted(pods) => {
                let boosts = vpa::pods::boosts(client, &pods).await;
                let with_boosts = pods.into_iter().zip(boosts);
                self.all = with_boosts.map(|(pod, boosts)| (ObjectRef::of(&pod), (pod, boosts))).collect();
                self.is_listed = true;
            }
            WatchEvent::Applied(pod) => {
                let boosts = vpa::pods::boosts(client, std::slice::from_ref(&pod)).await;
                let boosts = boosts.into_iter().flatten().collect();
                self.all.insert(ObjectRef::of(&*pod), (*pod, boosts));
            }
            WatchEvent::Deleted(pod) => drop(self.all.remove(&pod)),
        }
    }

    /// The table of the pods that fit a terminal; empty if there are none.
    fn text(&self, args: &Status, live: Live<'_>, size: Size) -> anyhow::Result<String> {
        let fitting = || self.all.values().take(size.rows);
        if fitting().next().is_none() {
            return Ok(String::new());
        }
        let listing = Listing::of(fitting().map(|(pod, _)| pod), args.form(), Some(live))?;
        Ok(listing.text() + &boost_lines(fitting().map(|(pod, boosts)| (pod, boosts))))
    }
}

/// Whether a terminal is redrawn.
fn redraws(args: &Status) -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    matches!(args.output, None | Some(Output::Wide)) && std::io::stdout().is_terminal() && !is_dumb
}

/// The last message about the API server, for a terminal that is redrawn: on standard error it would be drawn over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notice(Arc<Mutex<Option<String>>>);

impl Notice {
    /// A client that reports outages here, or on standard error if nothing is redrawn.
    pub(crate) fn reporting(&self, client: Client, redraws: bool) -> Client {
        if !redraws {
            return reachability::reporting(client);
        }
        let last = self.0.clone();
        reachability::reporting_to(client, move |text| *last.lock() = Some(text.to_owned()))
    }

    /// The line that reports it, or an empty text.
    fn line(&self) -> String {
        self.text().map_or_else(String::new, |text| format!("plumb: {text}\n"))
    }

    /// The message.
    pub(crate) fn text(&self) -> Option<String> {
        self.0.lock().clone()
    }
}

/// Prints an object of a stream: JSON on a line of its own, or a YAML document.
fn print_object(value: &Value, output: Output) -> anyhow::Result<()> {
    write_out(&match output {
        Output::Yaml => format!("---\n{}", yaml(value)?),
        _ => serde_json::to_string(value).context("writing JSON")? + "\n",
    })
}

/// The time of day, in UTC.
fn now() -> String {
    Timestamp::now().strftime("%H:%M:%SZ").to_string()
}
