//! How likely the kernel is to kill a container when memory runs out: `oom_score_adj`.

use crate::aggregate::Role;
use crate::pod::{PodResources, PodShape};
use crate::qos::QosClass;
use crate::resource::Resource;

const GUARANTEED: i64 = -997;
const BEST_EFFORT: i64 = 1000;

/// The adjustment for one container of a pod with these resources, on a node with this much memory.
///
/// A Burstable container scores lower the more of the node it requests, and never as low as a Guaranteed one
/// nor as high as a BestEffort one. A sidecar is protected at least as well as the best protected of the
/// smallest main containers. Pod-level requests beyond the sum of the containers are spread over them evenly.
pub fn oom_score_adj(
    shape: &PodShape,
    resources: &PodResources,
    container: usize,
    node_critical: bool,
    memory_capacity: i64,
) -> i64 {
    match shape.qos {
        _ if node_critical => return GUARANTEED,
        QosClass::Guaranteed => return GUARANTEED,
        QosClass::BestEffort => return BEST_EFFORT,
        QosClass::Burstable => {}
    }
    let request =
        |i: usize| resources.containers.get(i).and_then(|c| c.requests[Resource::Memory]).unwrap_or(0);
    let extra = share_of_pod_request(shape, resources);
    let mut score = score(request(container).saturating_add(extra), memory_capacity);
    if shape.containers.get(container).is_some_and(|c| c.role == Role::Sidecar) {
        let mains = shape.containers.iter().enumerate().filter(|(_, c)| c.role == Role::Main);
        let smallest = mains.map(|(i, _)| request(i)).min().unwrap_or(0);
        score = score.min(self::score(smallest.saturating_add(extra), memory_capacity));
    }
    score.clamp(1000 + GUARANTEED, BEST_EFFORT - 1)
}

fn score(request: i64, capacity: i64) -> i64 {
    let portion = i128::from(request.max(0)) * 1000 / i128::from(capacity.max(1));
    1000 - i64::try_from(portion).unwrap_or(i64::MAX).min(2000)
}

fn share_of_pod_request(shape: &PodShape, resources: &PodResources) -> i64 {
    let Some(pod_request) = resources.pod.and_then(|pod| pod.requests[Resource::Memory]) else { return 0 };
    let claimed = shape.container_requests(resources)[Resource::Memory].unwrap_or(0);
    let count = i64::try_from(shape.containers.len()).unwrap_or(i64::MAX).max(1);
    pod_request.saturating_sub(claimed) / count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::ContainerShape;
    use crate::resource::{Declared, PerResource, Requirements};

    const NODE: i64 = 1000;

    fn pod(qos: QosClass, containers: &[(Role, i64)]) -> (PodShape, PodResources) {
        let shape = containers
            .iter()
            .map(|(role, _)| ContainerShape {
                name: String::new(),
                role: *role,
                policy: PerResource::default(),
            })
            .collect();
        let resources = containers
            .iter()
            .map(|(_, memory)| Requirements {
                requests: Declared::new(None, Some(*memory)),
                limits: Declared::NONE,
            })
            .collect();
        (
            PodShape { containers: shape, overhead: Declared::NONE, qos },
            PodResources { containers: resources, pod: None },
        )
    }

    #[test]
    fn the_class_decides_first() {
        let table = [
            (QosClass::Guaranteed, 100, -997),
            (QosClass::BestEffort, 0, 1000),
            (QosClass::Burstable, 100, 900),
            (QosClass::Burstable, 0, 999),
            (QosClass::Burstable, 1000, 3),
            (QosClass::Burstable, 5000, 3),
        ];
        for (qos, memory, expected) in table {
            let (shape, resources) = pod(qos, &[(Role::Main, memory)]);
            assert_eq!(oom_score_adj(&shape, &resources, 0, false, NODE), expected, "{qos} {memory}");
            assert_eq!(oom_score_adj(&shape, &resources, 0, true, NODE), -997, "node critical");
        }
    }

    #[test]
    fn a_sidecar_is_no_worse_off_than_the_smallest_main_container() {
        let (shape, resources) =
            pod(QosClass::Burstable, &[(Role::Sidecar, 10), (Role::Main, 300), (Role::Main, 200)]);
        assert_eq!(oom_score_adj(&shape, &resources, 0, false, NODE), 800);
        assert_eq!(oom_score_adj(&shape, &resources, 1, false, NODE), 700);
    }

    #[test]
    fn pod_level_requests_beyond_those_of_containers_are_spread_over_them() {
        let (shape, mut resources) = pod(QosClass::Burstable, &[(Role::Main, 100), (Role::Main, 100)]);
        resources.pod =
            Some(Requirements { requests: Declared::new(None, Some(400)), limits: Declared::NONE });
        assert_eq!(oom_score_adj(&shape, &resources, 0, false, NODE), 800);
    }
}
