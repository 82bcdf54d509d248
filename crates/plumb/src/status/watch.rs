//! `plumb status --watch`: pods as they change.

use std::collections::BTreeMap;
use std::process::ExitCode;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::ListParams;
use plumb_client::Api;
use plumb_cluster::say;
use plumb_controller_runtime::{ObjectRef, Reflector, WatchConfig, WatchEvent};
use plumb_vpa_explain::BoostView;

use super::{Listing, Object, Status, boost_lines, vpa};
use crate::client::{Columns, Output, check_namespace, refusal, refusal_in, write_out};
use crate::reachability;

/// Prints pods, and those that change, until the command is ended.
pub(super) async fn run(client: Client, namespace: &str, args: &Status) -> anyhow::Result<ExitCode> {
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
    // A server that cannot be reached, or does not allow it, ends the command; later failures are retried.
    if api.list(&wanted).await.map_err(refusal)?.items.is_empty() {
        if !args.all_namespaces {
            check_namespace(&client, namespace).await?;
        }
        say!("no pods in {} yet", args.place(namespace));
    }
    // The reflector retries; what it logs is for components.
    let client = reachability::reporting(client);
    let api: Api<Pod> = args.api(&client, namespace);
    let mut screen =
        Screen { args, client, printed: BTreeMap::new(), columns: Columns::default(), has_header: false };
    let mut events = std::pin::pin!(Reflector::new(api, config).into_stream());
    while let Some(event) = events.next().await {
        match event {
            WatchEvent::Restarted(pods) => screen.restart(&pods).await?,
            WatchEvent::Applied(pod) => screen.show(&pod).await?,
            WatchEvent::Deleted(pod) => screen.delete(&pod)?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The printed state.
struct Screen<'a> {
    args: &'a Status,
    client: Client,
    /// The last printed text of each pod, without the time.
    printed: BTreeMap<ObjectRef, (Listing, String)>,
    columns: Columns,
    has_header: bool,
}

impl Screen<'_> {
    async fn restart(&mut self, pods: &[Pod]) -> anyhow::Result<()> {
        let listed: Vec<ObjectRef> = pods.iter().map(ObjectRef::of).collect();
        let deleted: Vec<ObjectRef> =
            self.printed.keys().filter(|pod| !listed.contains(pod)).cloned().collect();
        for pod in deleted {
            self.delete(&pod)?;
        }
        let boosts = vpa::pods::boosts(&self.client, pods).await;
        if !self.has_header && !pods.is_empty() {
            let listing = self.listing(pods)?;
            self.write(&listing, &boost_lines(pods, &boosts))?;
            for (pod, boosts) in pods.iter().zip(boosts) {
                let shown = self.shown(pod, boosts)?;
                self.printed.insert(ObjectRef::of(pod), shown);
            }
            return Ok(());
        }
        pods.iter().zip(boosts).try_for_each(|(pod, boosts)| self.print(pod, boosts))
    }

    async fn show(&mut self, pod: &Pod) -> anyhow::Result<()> {
        let boosts = vpa::pods::boosts(&self.client, std::slice::from_ref(pod)).await;
        self.print(pod, boosts.into_iter().flatten().collect())
    }

    /// Prints a pod, if it looks otherwise than before.
    fn print(&mut self, pod: &Pod, boosts: Vec<BoostView>) -> anyhow::Result<()> {
        let shown = self.shown(pod, boosts)?;
        if self.printed.get(&ObjectRef::of(pod)) == Some(&shown) {
            return Ok(());
        }
        self.write(&shown.0, &shown.1)?;
        self.printed.insert(ObjectRef::of(pod), shown);
        Ok(())
    }

    fn delete(&mut self, pod: &ObjectRef) -> anyhow::Result<()> {
        self.printed.remove(pod);
        let mut row = vec![pod.name.clone(), "deleted".to_owned()];
        if self.args.all_namespaces {
            row.insert(0, pod.namespace.clone());
        }
        write_out(&self.columns.lines(&[at(&now(), &row)]))
    }

    /// Prints rows with the time, and the text below them. The first ones have the header above them: its columns are
    /// as wide as theirs.
    fn write(&mut self, listing: &Listing, boosts: &str) -> anyhow::Result<()> {
        let now = now();
        let mut rows = Vec::new();
        if !self.has_header {
            self.has_header = true;
            rows.push(at("TIME", &listing.head));
        }
        rows.extend(listing.rows.iter().map(|row| at(&now, row)));
        let lines = self.columns.lines(&rows);
        write_out(&format!("{lines}{}{boosts}", listing.why))
    }

    /// The text of a pod: its rows and their reasons, and its boosts.
    fn shown(&self, pod: &Pod, boosts: Vec<BoostView>) -> anyhow::Result<(Listing, String)> {
        let pods = std::slice::from_ref(pod);
        Ok((self.listing(pods)?, boost_lines(pods, &[boosts])))
    }

    fn listing(&self, pods: &[Pod]) -> anyhow::Result<Listing> {
        Listing::of(pods, self.args.all_namespaces, self.args.output == Some(Output::Wide))
    }
}

/// A row with the time that it is of.
fn at(time: &str, row: &[String]) -> Vec<String> {
    std::iter::once(time.to_owned()).chain(row.iter().cloned()).collect()
}

/// The time of day, in UTC.
fn now() -> String {
    Timestamp::now().strftime("%H:%M:%SZ").to_string()
}
