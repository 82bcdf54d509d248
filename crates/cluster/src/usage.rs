//! Resource usage of nodes, for `kubectl top`: of those in this process, and of those that have joined from other
//! machines.

mod elsewhere;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube::Client;
use parking_lot::RwLock;
use plumb_apiserver::ApiServer;
use plumb_apiserver::authn::User;
use plumb_apiserver::usage::{Amounts, NodeUsage, PodUsage, Span, UsageSource};
use plumb_controllers::{GROUPS, user_of};
use plumb_node::usage::{Measurement, Usage};
use plumb_resize::Quantity;
use plumb_supervise::Supervisor;
use tokio::task::JoinSet;

use elsewhere::Elsewhere;

/// The user that reads the usage of other machines' nodes.
const GATHERER: &str = "node-usage";

/// The nodes' measurements, by the name of the node. The API server has this before there are nodes, so their
/// measurements are added once, when they start; those of other machines are added as they arrive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measurements {
    here: Arc<OnceLock<HashMap<String, Usage>>>,
    elsewhere: Arc<RwLock<Elsewhere>>,
}

impl Measurements {
    /// Adds the measurements of the nodes. Only the first call counts.
    pub(crate) fn put(&self, nodes: HashMap<String, Usage>) {
        let _ = self.here.set(nodes);
    }

    fn of(&self, node: &str) -> Option<&Usage> {
        self.here.get()?.get(node)
    }
}

impl UsageSource for Measurements {
    fn node(&self, name: &str) -> Option<NodeUsage> {
        let Some(own) = self.of(name) else { return self.elsewhere.read().node(name) };
        let measured = own.node()?;
        Some(NodeUsage { span: span(&measured), used: amounts(&measured) })
    }

    fn pod(&self, node: &str, namespace: &str, name: &str) -> Option<PodUsage> {
        let Some(own) = self.of(node) else { return self.elsewhere.read().pod(node, namespace, name) };
        let measured = own.pod(namespace, name)?;
        let (_, first) = measured.first()?;
        let containers = measured.iter().map(|(name, measured)| (name.clone(), amounts(measured)));
        Some(PodUsage { span: span(first), containers: containers.collect() })
    }
}

/// Reads the usage of nodes on other machines periodically, until the returned value is dropped.
pub(crate) fn gather(
    server: &ApiServer,
    measurements: Measurements,
    every: Duration,
    supervisor: &Supervisor,
) -> JoinSet<()> {
    let client = Client::new(server.inside(User::new(user_of(GATHERER), "", GROUPS)), "default");
    let mut running = JoinSet::new();
    let gathering = move || {
        let (client, measurements) = (client.clone(), measurements.clone());
        async move {
            loop {
                tokio::time::sleep(every).await;
                let is_here = |node: &str| measurements.of(node).is_some();
                match elsewhere::ask_all(&client, is_here).await {
                    Ok(answers) => measurements.elsewhere.write().take(answers),
                    Err(error) => tracing::debug!(%error, "cannot find out which nodes there are"),
                }
            }
        }
    };
    running.spawn(supervisor.keep("node-usage-gatherer", gathering));
    running
}

fn span(measured: &Measurement) -> Span {
    Span { until: measured.until, length: measured.over }
}

fn amounts(measured: &Measurement) -> Amounts {
    let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    Amounts {
        cpu: Quantity::from_nano(signed(measured.nano_cores)),
        memory: Quantity::from_bytes(signed(measured.memory)),
    }
}
