//! `plumb status --watch`: pods as they change.

use std::collections::BTreeMap;
use std::process::ExitCode;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use plumb_client::Api;
use plumb_controller::{ObjectRef, Reflector, WatchConfig, WatchEvent};

use super::{Object, Status, table};
use crate::client::{Output, refusal, write_out};

/// Prints pods, and those that change, until the command is ended.
pub(super) async fn run(api: Api<Pod>, args: &Status) -> anyhow::Result<ExitCode> {
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
    let mut screen = Screen { args, printed: BTreeMap::new(), has_header: false };
    let mut events = std::pin::pin!(Reflector::new(api, config).into_stream());
    while let Some(event) = events.next().await {
        match event {
            WatchEvent::Restarted(pods) => screen.restart(&pods)?,
            WatchEvent::Applied(pod) => screen.show(&pod)?,
            WatchEvent::Deleted(pod) => screen.delete(&pod)?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What was printed.
struct Screen<'a> {
    args: &'a Status,
    /// The last rows of each pod.
    printed: BTreeMap<ObjectRef, String>,
    has_header: bool,
}

impl Screen<'_> {
    fn restart(&mut self, pods: &[Pod]) -> anyhow::Result<()> {
        let listed: Vec<ObjectRef> = pods.iter().map(ObjectRef::of).collect();
        let deleted: Vec<ObjectRef> =
            self.printed.keys().filter(|pod| !listed.contains(pod)).cloned().collect();
        for pod in deleted {
            self.delete(&pod)?;
        }
        if !self.has_header {
            self.has_header = true;
            for (reference, pod) in listed.into_iter().zip(pods) {
                self.printed.insert(reference, self.rows(pod)?);
            }
            return write_out(&self.table(pods)?);
        }
        pods.iter().try_for_each(|pod| self.show(pod))
    }

    /// Prints a pod, if it looks otherwise than before.
    fn show(&mut self, pod: &Pod) -> anyhow::Result<()> {
        let rows = self.rows(pod)?;
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

    fn table(&self, pods: &[Pod]) -> anyhow::Result<String> {
        table(pods, self.args.all_namespaces, self.args.output == Some(Output::Wide))
    }

    /// The rows of a pod, without the header.
    fn rows(&self, pod: &Pod) -> anyhow::Result<String> {
        let table = self.table(std::slice::from_ref(pod))?;
        Ok(table.split_once('\n').map(|(_, rows)| rows.to_owned()).unwrap_or_default())
    }
}
