//! Which pods a node under pressure admits, as the kubelet.

use k8s_openapi::api::core::v1::{Pod, Taint};
use plumb_placement::Toleration;
use plumb_resize::qos::QosClass;

use super::history::Pressures;
use super::message;
use super::signal::PressureCondition;

/// The taint of a node with the condition `MemoryPressure`.
const MEMORY_PRESSURE_TAINT: &str = "node.kubernetes.io/memory-pressure";

/// Why a pod is not admitted; `None` if it is. Critical pods are always admitted. Under memory pressure alone only `BestEffort` pods
/// are not, unless they tolerate its taint.
pub(super) fn rejection(
    pressures: &Pressures,
    pod: &Pod,
    class: QosClass,
    is_critical: bool,
) -> Option<String> {
    if pressures.is_empty() || is_critical {
        return None;
    }
    let is_memory_alone = pressures.iter().all(|pressure| *pressure == PressureCondition::Memory);
    if is_memory_alone && (class != QosClass::BestEffort || tolerates_memory_pressure(pod)) {
        return None;
    }
    Some(message::had_condition(pressures.iter().copied()))
}

fn tolerates_memory_pressure(pod: &Pod) -> bool {
    let taint =
        Taint { key: MEMORY_PRESSURE_TAINT.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    tolerations.map(Toleration::read).any(|toleration| toleration.tolerates(&taint))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The pressures of a node; the class of a pod, whether it tolerates memory pressure, and whether it is critical; and why it is
    /// not admitted.
    type Row = (&'static [PressureCondition], QosClass, bool, bool, Option<&'static str>);

    #[test]
    fn only_besteffort_pods_are_refused_under_memory_pressure_and_all_but_critical_ones_under_others() {
        use PressureCondition::{Disk, Memory, Pid};
        use QosClass::{BestEffort, Burstable};
        let taint = json!([{ "key": MEMORY_PRESSURE_TAINT, "operator": "Exists", "effect": "NoSchedule" }]);
        let memory = Some("The node had condition: [MemoryPressure]. ");
        let table: [Row; 10] = [
            (&[], BestEffort, false, false, None),
            (&[Memory], BestEffort, false, false, memory),
            (&[Memory], BestEffort, true, false, None),
            (&[Memory], BestEffort, false, true, None),
            (&[Memory], Burstable, false, false, None),
            (&[Disk], Burstable, false, false, Some("The node had condition: [DiskPressure]. ")),
            (&[Disk], BestEffort, true, false, Some("The node had condition: [DiskPressure]. ")),
            (&[Disk], Burstable, false, true, None),
            (&[Pid], Burstable, false, false, Some("The node had condition: [PIDPressure]. ")),
            (
                &[Memory, Disk],
                Burstable,
                false,
                false,
                Some("The node had condition: [DiskPressure MemoryPressure]. "),
            ),
        ];
        for (pressures, class, tolerates, critical, expected) in table {
            let tolerations = if tolerates { taint.clone() } else { json!([]) };
            let spec = json!({ "containers": [], "tolerations": tolerations });
            let pod = serde_json::from_value(json!({ "spec": spec })).unwrap();
            let found = rejection(&pressures.iter().copied().collect(), &pod, class, critical);
            assert_eq!(found.as_deref(), expected, "{pressures:?} {class}");
        }
    }
}
