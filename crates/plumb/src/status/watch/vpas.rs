//! VPAs as they and their pods change.

use std::collections::BTreeMap;
use std::process::ExitCode;

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use plumb_client::Api;
use plumb_cluster::say;
use plumb_controller_runtime::{ObjectRef, Reflector, WatchConfig, WatchEvent};
use plumb_vpa_api::VerticalPodAutoscaler;
use plumb_vpa_explain::printable;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use super::super::vpa::{Observed, text};
use super::super::{Object, Status};
use super::screen::{Screen, Size};
use super::{Notice, REFRESH, now, print_object, redraws};
use crate::client::{Output, write_out};

/// Shows VPAs until the command is ended.
pub(in crate::status) async fn vpas(
    client: Client,
    namespace: &str,
    args: &Status,
) -> anyhow::Result<ExitCode> {
    // A server that cannot be reached, or does not allow it, ends the command; later failures are retried.
    let first = Observed::read(args, &client, namespace).await?;
    let redraws = redraws(args);
    if first.vpas.is_empty() && !redraws {
        say!("no VPAs in {} yet", args.place(namespace));
    }
    let notice = Notice::default();
    let client = notice.reporting(client, redraws);
    let mut config = WatchConfig::default();
    if let Some(Object::Vpa(name)) = &args.object {
        config = config.fields(format!("metadata.name={name}"));
    }
    if let Some(selector) = &args.selector {
        config = config.labels(selector);
    }
    let vpas = Reflector::new(args.api::<VerticalPodAutoscaler>(&client, namespace), config).into_stream();
    let pods: Api<Pod> = args.api(&client, namespace);
    let pods = Reflector::metadata_only(pods, WatchConfig::default()).into_stream();
    let changes = stream::select(vpas.map(Some), pods.map(|_| None));
    let mut changes = std::pin::pin!(changes);
    // The pods are read after a change, so at most once in this time.
    let mut ticks = interval(REFRESH);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut vpas = Vpas::default();
    let mut observed = first;
    let mut is_due = false;
    let (mut screen, mut log) = (Screen::default(), Log::default());
    loop {
        tokio::select! {
            change = changes.next() => match change {
                Some(event) => {
                    vpas.apply(event);
                    is_due = vpas.is_listed;
                }
                None => return Ok(ExitCode::SUCCESS),
            },
            _ = ticks.tick() => {
                if std::mem::take(&mut is_due) {
                    observed = Observed::of(&client, vpas.all.values().cloned().collect()).await;
                    if !redraws {
                        log.show(args, std::mem::take(&mut observed))?;
                    }
                }
                if redraws {
                    let text = match &observed.vpas[..] {
                        [] => format!("no VPAs in {} yet\n", args.place(namespace)),
                        _ => text(&observed, args.form(), args.is_of_one_vpa(), &[]),
                    };
                    screen.draw(&(notice.line() + &text), Size::of_terminal())?;
                }
            }
        }
    }
}

/// The VPAs that exist.
#[derive(Default)]
struct Vpas {
    all: BTreeMap<ObjectRef, VerticalPodAutoscaler>,
    /// Whether they were listed once.
    is_listed: bool,
}

impl Vpas {
    /// Applies an event of a VPA; without one a pod has changed.
    fn apply(&mut self, event: Option<WatchEvent<VerticalPodAutoscaler>>) {
        match event {
            None => {}
            Some(WatchEvent::Restarted(vpas)) => {
                self.all = vpas.into_iter().map(|vpa| (ObjectRef::of(&vpa), vpa)).collect();
                self.is_listed = true;
            }
            Some(WatchEvent::Applied(vpa)) => drop(self.all.insert(ObjectRef::of(&*vpa), *vpa)),
            Some(WatchEvent::Deleted(vpa)) => drop(self.all.remove(&vpa)),
        }
    }
}

/// VPAs that change, printed one after the other.
#[derive(Default)]
struct Log {
    /// What was printed last of each VPA.
    printed: BTreeMap<ObjectRef, Value>,
}

impl Log {
    /// Prints the VPAs that differ from before, and those that are missing.
    fn show(&mut self, args: &Status, observed: Observed) -> anyhow::Result<()> {
        let objects = args.output.filter(|output| matches!(output, Output::Json | Output::Yaml));
        let mut before = std::mem::take(&mut self.printed);
        for one in observed.into_each() {
            let Some((vpa, value)) = one.vpas.first().map(ObjectRef::of).zip(one.values().pop()) else {
                continue;
            };
            if before.remove(&vpa).as_ref() != Some(&value) {
                match objects {
                    Some(output) => print_object(&value, output)?,
                    None => write_out(&format!(
                        "{}\n{}\n",
                        now(),
                        text(&one, args.form(), args.is_of_one_vpa(), &[])
                    ))?,
                }
            }
            self.printed.insert(vpa, value);
        }
        for vpa in before.into_keys() {
            if let Some(output) = objects {
                let deleted = json!({ "namespace": vpa.namespace, "name": vpa.name, "deleted": true });
                print_object(&deleted, output)?;
            } else {
                let vpa = vpa.to_string();
                write_out(&format!("{}\nvpa {} was deleted\n\n", now(), printable(&vpa)))?;
            }
        }
        Ok(())
    }
}
