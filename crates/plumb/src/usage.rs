//! What the nodes of this process measure, for `kubectl top`.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use plumb_apiserver::usage::{Amounts, NodeUsage, PodUsage, Span, UsageSource};
use plumb_node::usage::{Measured, Usage};
use plumb_resize::Quantity;

/// The nodes' measurements, by the name of the node. The API server has this before there are nodes, so they are put
/// in once, when they start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measurements(Arc<OnceLock<HashMap<String, Usage>>>);

impl Measurements {
    /// Puts in what the nodes measure. Only the first time counts.
    pub(crate) fn put(&self, nodes: HashMap<String, Usage>) {
        let _ = self.0.set(nodes);
    }

    fn of(&self, node: &str) -> Option<&Usage> {
        self.0.get()?.get(node)
    }
}

impl UsageSource for Measurements {
    fn node(&self, name: &str) -> Option<NodeUsage> {
        let measured = self.of(name)?.node()?;
        Some(NodeUsage { span: span(&measured), used: amounts(&measured) })
    }

    fn pod(&self, node: &str, namespace: &str, name: &str) -> Option<PodUsage> {
        let measured = self.of(node)?.pod(namespace, name)?;
        let (_, first) = measured.first()?;
        let containers = measured.iter().map(|(name, measured)| (name.clone(), amounts(measured)));
        Some(PodUsage { span: span(first), containers: containers.collect() })
    }
}

fn span(measured: &Measured) -> Span {
    Span { until: measured.until, length: measured.over }
}

fn amounts(measured: &Measured) -> Amounts {
    let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    Amounts {
        cpu: Quantity::from_nano(signed(measured.nano_cores)),
        memory: Quantity::from_bytes(signed(measured.memory)),
    }
}
