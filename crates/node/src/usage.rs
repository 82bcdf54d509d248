//! The recent resource usage of a node and its pods, in memory: the figures of `metrics.k8s.io`.

mod machine;
mod rates;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use plumb_runtime::Runtime;
use plumb_runtime::types::{CpuUsage, MemoryUsage, SandboxFilter, SandboxState, SandboxStats};
use tokio::time::{Instant, sleep_until};

use crate::Clock;
use crate::register::spread;

pub(crate) use machine::{MachineCpu, usage as machine_usage};
pub(crate) use rates::Rates;

/// The configuration of the measurement.
#[derive(Clone)]
pub struct UsageConfig {
    /// The node's name.
    pub node: String,
    /// The container runtime.
    pub runtime: Arc<dyn Runtime>,
    /// The measurement interval.
    pub every: Duration,
    /// The clock.
    pub clock: Clock,
    /// The root of the kernel's files, if the node is the whole machine; else its usage is that of its pods.
    pub machine: Option<PathBuf>,
}

/// The usage over a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measurement {
    /// The end of the period.
    pub until: Timestamp,
    /// Its length.
    pub over: Duration,
    /// CPU usage in nanocores.
    pub nano_cores: u64,
    /// The working set at its end, in bytes.
    pub memory: u64,
}

/// The recent usage of a node and its pods. Clones share it.
#[derive(Clone)]
pub struct Usage {
    config: Arc<UsageConfig>,
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    rates: Rates,
    node: Option<Measurement>,
    /// By namespace and name; containers by name.
    pods: HashMap<(String, String), Vec<(String, Measurement)>>,
}

impl fmt::Debug for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Usage").field("node", &self.config.node).finish_non_exhaustive()
    }
}

impl Usage {
    /// Without measurements yet.
    pub fn new(config: UsageConfig) -> Self {
        Self { config: Arc::new(config), known: Arc::default() }
    }

    /// The usage of the node, once measured.
    pub fn node(&self) -> Option<Measurement> {
        self.known.lock().node
    }

    /// The usage of a pod's containers, of those that were measured.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<Vec<(String, Measurement)>> {
        self.known.lock().pods.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Measures, until the future is dropped.
    pub async fn run(&self) {
        let every = self.config.every;
        self.measure().await;
        // Nodes are spread over the interval.
        let mut next = Instant::now() + every.min(Duration::from_secs(1) + spread(&self.config.node, every));
        loop {
            sleep_until(next).await;
            self.measure().await;
            next = (next + every).max(Instant::now());
        }
    }

    /// Measures once.
    pub async fn measure(&self) {
        let ready = SandboxFilter { state: Some(SandboxState::Ready), ..SandboxFilter::default() };
        match self.config.runtime.list_sandbox_stats(&ready).await {
            Ok(measured) => self.take(&measured),
            // The last measurement is valid until the next.
            Err(error) => tracing::warn!(%error, node = self.config.node, "usage could not be measured"),
        }
    }

    fn take(&self, measured: &[SandboxStats]) {
        let now = (self.config.clock)();
        let mut known = self.known.lock();
        let known = &mut *known;
        known.rates.begin();
        known.pods.clear();
        let (mut cpu, mut memory) = (0_u64, 0_u64);
        for sandbox in measured {
            cpu = cpu.saturating_add(sandbox.cpu.usage_nanos);
            memory = memory.saturating_add(sandbox.memory.working_set);
            let rates = &mut known.rates;
            let containers = sandbox.containers.iter().filter_map(|one| {
                let measured = measured_of(
                    rates,
                    one.id.as_str(),
                    Some(one.created_at),
                    &one.cpu,
                    one.memory.working_set,
                )?;
                Some((one.meta.name.clone(), measured))
            });
            let containers: Vec<_> = containers.collect();
            if !containers.is_empty() {
                let at = (sandbox.meta.namespace.clone(), sandbox.meta.name.clone());
                known.pods.insert(at, containers);
            }
        }
        let (cpu, memory) = match self.config.machine.as_deref().map(|root| machine_usage(root, now)) {
            Some(Ok((cpu, memory))) => (cpu, memory),
            _ => (
                CpuUsage { at: now, usage_nanos: cpu, ..CpuUsage::default() },
                MemoryUsage { at: now, working_set: memory, ..MemoryUsage::default() },
            ),
        };
        known.node = measured_of(&mut known.rates, "", None, &cpu, memory.working_set);
        known.rates.end();
    }
}

fn measured_of(
    rates: &mut Rates,
    of: &str,
    created: Option<Timestamp>,
    cpu: &CpuUsage,
    memory: u64,
) -> Option<Measurement> {
    let rate = rates.rate(of, created, cpu.at, cpu.usage_nanos)?;
    Some(Measurement { until: cpu.at, over: rate.over, nano_cores: rate.nano_cores, memory })
}
