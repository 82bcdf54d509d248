//! `plumb status --watch`: pods as they change.

use std::collections::BTreeMap;
use std::process::ExitCode;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::ListParams;
use plumb_autoscaler::explain::BoostView;
use plumb_client::Api;
use plumb_controller::{ObjectRef, Reflector, WatchConfig, WatchEvent};

use super::{Object, Status, text, vpa};
use crate::client::{refusal, write_out};

/// Prints pods, and those that change, until the command is ended.
pub(super) async fn run(client: Client, api: Api<Pod>, args: &Status) -> anyhow::Result<ExitCode> {
    let mut config = WatchConfig::default();
    let mut wanted =
        ListParams { label_selector: args.selector.clone(), limit: Some(1), ..Default::default() };
    if let Some(Object::Pod(name)) = &args.object {
        config = config.fields(format!("metadata.name={name}"));
        wanted.field_selector = Some(format!("metadata.name={name}"));
        api.get(name).await.map_err(refusal)?;
    }
    if let Some(selector) = &args.selector {
        config = config.labels(selector);
    }
    // A server that cannot be reached, or does not allow it, ends the command; later failures are retried.
    api.list(&wanted).await.map_err(refusal)?;
    let mut screen = Screen { args, client, printed: BTreeMap::new(), has_header: false };
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

/// What was printed.
struct Screen<'a> {
    args: &'a Status,
    client: Client,
    /// The last rows of each pod.
    printed: BTreeMap<ObjectRef, String>,
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
        if !self.has_header {
            self.has_header = true;
            write_out(&text(pods, &boosts, self.args)?)?;
            for (pod, boosts) in pods.iter().zip(boosts) {
                self.printed.insert(ObjectRef::of(pod), self.rows(pod, boosts)?);
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
        let rows = self.rows(pod, boosts)?;
        if self.printed.get(&ObjectRef::of(pod)) == Some(&rows) {
            return Ok(());
        }
        write_out(&rows)?;
        self.printed.insert(ObjectRef::of(pod), rows);
        Ok(())
    }

    fn delete(&mut self, pod: &ObjectRef) -> anyhow::Result<()> {
        self.printed.remove(pod);
        let namespace =
            if self.args.all_namespaces { format!("{}   ", pod.namespace) } else { String::new() };
        write_out(&format!("{namespace}{}   deleted\n", pod.name))
    }

    /// The rows of a pod and what is below them, without the header.
    fn rows(&self, pod: &Pod, boosts: Vec<BoostView>) -> anyhow::Result<String> {
        let text = text(std::slice::from_ref(pod), &[boosts], self.args)?;
        Ok(text.split_once('\n').map(|(_, rows)| rows.to_owned()).unwrap_or_default())
    }
}
