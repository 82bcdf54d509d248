//! The target and the metrics of an HPA. Pure.

use kube::api::DynamicObject;
use plumb_resize::resource::Resource;
use plumb_vpa::target::ControllerRef;
use serde_json::Value;

/// The target of an HPA, and the resources that it scales it on.
pub fn scaled_by(hpa: &DynamicObject) -> Option<(ControllerRef, Vec<Resource>)> {
    let spec = &hpa.data["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let target = &spec["scaleTargetRef"];
    let namespace = hpa.metadata.namespace.as_deref()?;
    let (version, kind, name) = (text(&target["apiVersion"]), text(&target["kind"]), text(&target["name"]));
    let mut resources: Vec<Resource> = Vec::new();
    for metric in spec["metrics"].as_array().into_iter().flatten() {
        let named = [&metric["resource"]["name"], &metric["containerResource"]["name"]];
        let named = named.into_iter().filter_map(Value::as_str).find_map(Resource::named);
        if let Some(resource) = named.filter(|resource| !resources.contains(resource)) {
            resources.push(resource);
        }
    }
    let target = ControllerRef::new(namespace, &version, &kind, &name);
    (!resources.is_empty()).then_some((target, resources))
}
