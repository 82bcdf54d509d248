//! Warnings about Services.

use serde_json::Value;

use crate::warnings::addresses;

/// Warnings about a service.
pub(super) fn of(service: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let spec = &service["spec"];
    let text = |field: &str| spec[field].as_str().unwrap_or_default();
    let texts = |field: &str| -> Vec<&str> {
        spec[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    };
    if service["metadata"]["annotations"].get("service.kubernetes.io/topology-aware-hints").is_some() {
        warnings.push(
            "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use \
             service.kubernetes.io/topology-mode instead"
                .to_owned(),
        );
    }
    if !matches!(text("clusterIP"), "" | "None") {
        for (i, address) in texts("clusterIPs").into_iter().enumerate() {
            warnings.extend(addresses::address(&format!("spec.clusterIPs[{i}]"), address));
        }
    }
    let headless = text("type") == "ClusterIP" && text("clusterIP") == "None";
    let external = texts("externalIPs");
    if headless {
        let ignored = [
            ("spec.loadBalancerIP", !text("loadBalancerIP").is_empty()),
            ("spec.externalIPs", !external.is_empty()),
            ("spec.SessionAffinity", text("sessionAffinity") != "None"),
        ];
        for (field, _) in ignored.into_iter().filter(|(_, given)| *given) {
            warnings.push(format!("{field} is ignored for headless services"));
        }
    }
    for (i, address) in external.iter().enumerate() {
        warnings.extend(addresses::address(&format!("spec.externalIPs[{i}]"), address));
    }
    let named = text("type") == "ExternalName";
    if !external.is_empty() && !headless && !named {
        warnings.push(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned(),
        );
    }
    if !text("loadBalancerIP").is_empty() {
        warnings.extend(addresses::address("spec.loadBalancerIP", text("loadBalancerIP")));
    }
    for (i, range) in texts("loadBalancerSourceRanges").into_iter().enumerate() {
        warnings.extend(addresses::range(&format!("spec.loadBalancerSourceRanges[{i}]"), range));
    }
    if named && !external.is_empty() {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !named && !text("externalName").is_empty() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if text("trafficDistribution") == "PreferClose" {
        warnings.push(
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned(),
        );
    }
    warnings
}
