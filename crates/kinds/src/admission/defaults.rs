//! Plugins that set fields of new objects: tolerations, taints, finalizers, default classes.

use serde_json::{Value, json};

use plumb_apiserver::admission::{Attributes, Operation, Plugin};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::object::{finalizers, meta, metadata};
use plumb_apiserver::stored;

/// The default `tolerationSeconds` for the taints not-ready and unreachable.
const TOLERATED_SECONDS: i64 = 300;

/// Adds tolerations of the taints not-ready and unreachable to pods.
pub(crate) struct DefaultTolerationSeconds;

impl Plugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation != Operation::Delete && attributes.is("", "pods")
    }

    fn mutate(&self, _: &Attributes<'_>, new: &mut Value) -> Result<(), ApiError> {
        for taint in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
            if !tolerates(&new["spec"]["tolerations"], taint) {
                push(
                    &mut new["spec"]["tolerations"],
                    json!({
                        "key": taint, "operator": "Exists", "effect": "NoExecute",
                        "tolerationSeconds": TOLERATED_SECONDS,
                    }),
                );
            }
        }
        Ok(())
    }
}

/// Whether a toleration matches a taint with the effect `NoExecute`.
fn tolerates(tolerations: &Value, taint: &str) -> bool {
    let text = |toleration: &Value, field: &str| toleration[field].as_str().unwrap_or_default().to_owned();
    tolerations.as_array().into_iter().flatten().any(|toleration| {
        let (key, effect) = (text(toleration, "key"), text(toleration, "effect"));
        (key == taint || key.is_empty()) && (effect == "NoExecute" || effect.is_empty())
    })
}

/// Adds the taint not-ready to new nodes; the node lifecycle controller removes it.
pub(crate) struct TaintNodesByCondition;

impl Plugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is("", "nodes")
    }

    fn mutate(&self, _: &Attributes<'_>, new: &mut Value) -> Result<(), ApiError> {
        let taint = json!({ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" });
        let taints = new["spec"]["taints"].as_array();
        let same = |other: &Value| other["key"] == taint["key"] && other["effect"] == taint["effect"];
        if !taints.is_some_and(|taints| taints.iter().any(same)) {
            push(&mut new["spec"]["taints"], taint);
        }
        Ok(())
    }
}

/// Adds the protection finalizers to persistent volumes and claims.
pub(crate) struct StorageObjectInUseProtection;

impl Plugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create
            && (attributes.is("", "persistentvolumes") || attributes.is("", "persistentvolumeclaims"))
    }

    fn mutate(&self, attributes: &Attributes<'_>, new: &mut Value) -> Result<(), ApiError> {
        let finalizer = match attributes.row.plural() {
            "persistentvolumes" => "kubernetes.io/pv-protection",
            _ => "kubernetes.io/pvc-protection",
        };
        if !finalizers(new).contains(&finalizer) {
            push(metadata(new).entry("finalizers").or_insert_with(|| json!([])), json!(finalizer));
        }
        Ok(())
    }
}

/// Sets the default storage class of claims without one.
pub(crate) struct DefaultStorageClass;

impl Plugin for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is("", "persistentvolumeclaims")
    }

    fn mutate(&self, attributes: &Attributes<'_>, new: &mut Value) -> Result<(), ApiError> {
        let annotated = new.pointer("/metadata/annotations/volume.beta.kubernetes.io~1storage-class");
        if annotated.is_some() || new["spec"].get("storageClassName").is_some_and(|class| !class.is_null()) {
            return Ok(());
        }
        let classes = stored::all(attributes.cluster.store(), ("storage.k8s.io", "storageclasses"), None)?;
        let marks = [
            "storageclass.kubernetes.io/is-default-class",
            "storageclass.beta.kubernetes.io/is-default-class",
        ];
        if let Some(name) = newest_marked(&classes, &marks) {
            new["spec"]["storageClassName"] = json!(name);
        }
        Ok(())
    }
}

/// Sets the default ingress class of ingresses without one.
pub(crate) struct DefaultIngressClass;

impl Plugin for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is("networking.k8s.io", "ingresses")
    }

    fn mutate(&self, attributes: &Attributes<'_>, new: &mut Value) -> Result<(), ApiError> {
        let annotated = new.pointer("/metadata/annotations/kubernetes.io~1ingress.class");
        if annotated.is_some() || new["spec"].get("ingressClassName").is_some_and(|class| !class.is_null()) {
            return Ok(());
        }
        let classes = stored::all(attributes.cluster.store(), ("networking.k8s.io", "ingressclasses"), None)?;
        if let Some(name) = newest_marked(&classes, &["ingressclass.kubernetes.io/is-default-class"]) {
            new["spec"]["ingressClassName"] = json!(name);
        }
        Ok(())
    }
}

/// The newest class with one of the annotations; of equally new ones, the first by name.
fn newest_marked<'a>(classes: &'a [Value], marks: &[&str]) -> Option<&'a str> {
    let marked = |class: &&Value| {
        let annotations = &class["metadata"]["annotations"];
        marks.iter().any(|mark| annotations[*mark] == "true")
    };
    let order =
        |class: &&'a Value| (meta(class, "creationTimestamp"), std::cmp::Reverse(meta(class, "name")));
    classes.iter().filter(marked).max_by_key(order).map(|class| meta(class, "name"))
}

fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = json!([item]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_default_wins_and_then_the_first_by_name() {
        let class = |name: &str, at: &str, marked: bool| {
            let annotations = json!({ "is-default": if marked { "true" } else { "false" } });
            json!({ "metadata": { "name": name, "creationTimestamp": at, "annotations": annotations } })
        };
        let classes = [
            class("old", "2026-01-01T00:00:00Z", true),
            class("b", "2026-01-02T00:00:00Z", true),
            class("a", "2026-01-02T00:00:00Z", true),
            class("newest", "2026-01-03T00:00:00Z", false),
        ];
        assert_eq!(newest_marked(&classes, &["is-default"]), Some("a"));
        assert_eq!(newest_marked(&classes[3..], &["is-default"]), None);
    }

    #[test]
    fn a_pod_that_tolerates_everything_gets_nothing_more() {
        assert!(tolerates(&json!([{ "operator": "Exists" }]), "any"));
        assert!(!tolerates(&json!([{ "key": "any", "effect": "NoSchedule" }]), "any"));
        assert!(!tolerates(&Value::Null, "any"));
    }
}
