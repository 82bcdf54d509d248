//! What a node and its pods have used lately, kept in memory for whoever asks: the figures of `metrics.k8s.io`.

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

pub(crate) use machine::usage as machine_usage;
pub(crate) use rates::Rates;

/// What is measured, and how often.
#[derive(Clone)]
pub struct UsageConfig {
    /// The node's name.
    pub node: String,
    /// What runs its pods.
    pub runtime: Arc<dyn Runtime>,
    /// How long each measurement is.
    pub every: Duration,
    /// What time it is.
    pub clock: Clock,
    /// Where the kernel's files are, if the node is the whole machine; else it uses what its pods use.
    pub machine: Option<PathBuf>,
}

/// What was used over some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The end of that time.
    pub until: Timestamp,
    /// How long it was.
    pub over: Duration,
    /// Cpu in use, in billionths of a core.
    pub nano_cores: u64,
    /// The working set at the end of it, in bytes.
    pub memory: u64,
}

/// What a node and its pods have used lately. Clones are the same.
#[derive(Clone)]
pub struct Usage {
    config: Arc<UsageConfig>,
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    rates: Rates,
    node: Option<Measured>,
    /// By namespace and name; containers by name.
    pods: HashMap<(String, String), Vec<(String, Measured)>>,
}

impl fmt::Debug for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Usage").field("node", &self.config.node).finish_non_exhaustive()
    }
}

impl Usage {
    /// Nothing is measured yet.
    pub fn new(config: UsageConfig) -> Self {
        Self { config: Arc::new(config), known: Arc::default() }
    }

    /// What the node uses, once that is known.
    pub fn node(&self) -> Option<Measured> {
        self.known.lock().node
    }

    /// What the containers of a pod use, those of which it is known.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<Vec<(String, Measured)>> {
        self.known.lock().pods.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Measures, until the future is dropped.
    pub async fn keep(&self) {
        let every = self.config.every;
        self.measure().await;
        // Each node at its own moment.
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
            // What was measured before stands until it is measured again.
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
                let measured = measured_of(rates, one.id.as_str(), &one.cpu, one.memory.working_set)?;
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
        known.node = measured_of(&mut known.rates, "", &cpu, memory.working_set);
        known.rates.end();
    }
}

fn measured_of(rates: &mut Rates, of: &str, cpu: &CpuUsage, memory: u64) -> Option<Measured> {
    let rate = rates.rate(of, cpu.at, cpu.usage_nanos)?;
    Some(Measured { until: cpu.at, over: rate.over, nano_cores: rate.nano_cores, memory })
}
