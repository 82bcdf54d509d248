//! Pods wait for the rules about their addresses.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::Builtin;
use super::state::{SandboxEntry, State};
use crate::error::{Error, Result};
use crate::types::{Pairs, PodMeta, SandboxId};

/// A pod with an address of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodAddress {
    /// Which pod it is.
    pub meta: PodMeta,
    /// Its labels when its sandbox was created.
    pub labels: Pairs,
    /// Its address.
    pub address: Ipv4Addr,
}

/// Makes the rules about the addresses of pods, such as network policies.
pub trait PodGate: fmt::Debug + Send + Sync {
    /// A pod has been given an address. One that had containers before this process began does not wait.
    fn start(&self, pod: PodAddress, has_begun: bool);

    /// A pod has its address no more; another one may be given it next.
    fn stop(&self, pod: &PodMeta, address: Ipv4Addr);

    /// Waits until the rules about a pod are there. Its containers are not created before. An error says why they are not.
    fn wait<'a>(&'a self, pod: &'a PodMeta) -> BoxFuture<'a, Result<(), String>>;
}

impl Builtin {
    /// Has pods wait for the rules of a gate, before their first containers; to be called once, before pods are created.
    pub fn set_gate(&self, gate: Arc<dyn PodGate>) {
        let state = &self.state;
        if state.gate.set(gate).is_err() {
            return;
        }
        let (entries, begun) = {
            let pods = state.pods.lock();
            let entries: Vec<_> = pods.sandboxes.values().cloned().collect();
            let begun: BTreeSet<_> =
                pods.containers.values().map(|container| container.record.sandbox.clone()).collect();
            (entries, begun)
        };
        for entry in entries {
            let id = entry.record.lock().id.clone();
            state.open_gate_for(&entry, begun.contains(&id));
        }
    }
}

impl State {
    /// Notifies the gate of a pod that has an address.
    pub(super) fn open_gate_for(&self, entry: &SandboxEntry, has_begun: bool) {
        let Some(gate) = self.gate.get() else { return };
        let pod = {
            let record = entry.record.lock();
            let Some(address) = record.address else { return };
            PodAddress { meta: record.config.meta.clone(), labels: record.config.labels.clone(), address }
        };
        gate.start(pod, has_begun);
    }

    /// Waits until the gate lets the pod of a sandbox begin.
    pub(super) async fn wait_at_gate(&self, sandbox: &SandboxId) -> Result<()> {
        let (Some(gate), Some(entry)) = (self.gate.get(), self.sandbox(sandbox)) else { return Ok(()) };
        let meta = {
            let record = entry.record.lock();
            if record.address.is_none() {
                return Ok(());
            }
            record.config.meta.clone()
        };
        gate.wait(&meta).await.map_err(Error::FailedPrecondition)
    }
}
