//! Whether a node is one that a pod may have at all: for those who know where each of their pods is to go, and have to
//! say so in the scheduler's terms.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, PodSpec, Taint};

use crate::shape::{NodeWish, Toleration};

/// What a pod asks of its node, besides room.
#[derive(Clone, Debug)]
pub struct Placing {
    wish: NodeWish,
    tolerations: Vec<Toleration>,
}

impl Placing {
    /// Reads what a pod asks.
    pub fn read(spec: &PodSpec) -> Self {
        let tolerations = spec.tolerations.iter().flatten().map(Toleration::read).collect();
        Self { wish: NodeWish::read(spec), tolerations }
    }

    /// Whether a node is one that the pod selects, by its labels and its name.
    pub fn selects(&self, node: &Node) -> bool {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        let name = node.metadata.name.as_deref().unwrap_or_default();
        self.wish.matches(name, node.metadata.labels.as_ref().unwrap_or(&NONE))
    }

    /// Whether the pod bears a taint.
    pub fn bears(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|toleration| toleration.bears(taint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_selects_nodes_and_bears_taints() {
        let spec: PodSpec = serde_json::from_value(json!({
            "containers": [],
            "nodeSelector": { "disk": "ssd" },
            "tolerations": [{ "key": "gpu", "operator": "Exists", "effect": "NoSchedule" }],
        }))
        .unwrap();
        let placing = Placing::read(&spec);
        let node = |disk: &str| -> Node {
            serde_json::from_value(json!({ "metadata": { "name": "n", "labels": { "disk": disk } } }))
                .unwrap()
        };
        assert!(placing.selects(&node("ssd")) && !placing.selects(&node("hdd")));
        let taint =
            |effect: &str| Taint { key: "gpu".to_owned(), effect: effect.to_owned(), ..Taint::default() };
        assert!(placing.bears(&taint("NoSchedule")) && !placing.bears(&taint("NoExecute")));
    }
}
