//! An earlier resize that is not applied, such as a memory limit that cannot be lowered: later ones do not wait for it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use plumb_resize::resource::Resource;
use plumb_resize::status::{Stage, Values};

use crate::reading;

/// Whether what the request changed is actual, and only an earlier resize of other resources is not. `before` is the pod before
/// the request, `asked` after it, `now` the present one.
pub(super) fn is_all_that_is_left(before: &Pod, asked: &Pod, now: &Pod) -> anyhow::Result<bool> {
    let [before, asked, now] = [reading::of(before)?, reading::of(asked)?, reading::of(now)?];
    let was_under_way = matches!(before.stage, Stage::Failing { .. } | Stage::InProgress);
    let is_under_way = matches!(now.stage, Stage::Failing { .. } | Stage::InProgress);
    if !was_under_way || !is_under_way {
        return Ok(false);
    }
    let before: BTreeMap<&str, &Values> = reading::values(&before).collect();
    let now: BTreeMap<&str, &Values> = reading::values(&now).collect();
    let all = reading::values(&asked)
        .flat_map(|(name, values)| Resource::ALL.into_iter().map(move |resource| (name, values, resource)));
    let mut changed = 0;
    for (name, values, resource) in all {
        let wanted = pair(values, resource);
        if before.get(name).is_some_and(|before| pair(before, resource) == wanted) {
            continue;
        }
        changed += 1;
        if !now.get(name).is_some_and(|now| pair(now, resource) == wanted && is_actual(now, resource)) {
            return Ok(false);
        }
    }
    Ok(changed > 0)
}

/// The desired request and limit.
fn pair(values: &Values, resource: Resource) -> [Option<i64>; 2] {
    [values.desired.requests[resource], values.desired.limits[resource]]
}

fn is_actual(values: &Values, resource: Resource) -> bool {
    let [request, limit] = pair(values, resource);
    values.allocated.is_some_and(|allocated| allocated[resource] == request)
        && values
            .actual
            .is_some_and(|actual| actual.requests[resource] == request && actual.limits[resource] == limit)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A pod whose memory is to be 64Mi and is another amount, and whose CPU is to be one amount and is another.
    fn pod(generation: i64, cpu: [&str; 2], memory: &str) -> Pod {
        let amounts = |cpu: &str, memory: &str| {
            let list = json!({ "cpu": cpu, "memory": memory });
            json!({ "requests": list, "limits": list })
        };
        let [desired, actual] = cpu;
        let condition = json!({ "type": "PodResizeInProgress", "status": "True", "reason": "Error", "message": "in use",
            "observedGeneration": generation });
        serde_json::from_value(json!({
            "metadata": { "name": "web", "generation": generation },
            "spec": { "nodeName": "n", "containers": [{ "name": "app", "resources": amounts(desired, "64Mi") }] },
            "status": {
                "phase": "Running", "observedGeneration": generation, "conditions": [condition],
                "containerStatuses": [{
                    "name": "app", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                    "allocatedResources": { "cpu": actual, "memory": "64Mi" }, "resources": amounts(actual, memory),
                }],
            },
        }))
        .unwrap()
    }

    #[test]
    fn cpu_does_not_wait_for_memory_that_an_earlier_resize_cannot_lower() {
        let before = pod(2, ["100m", "100m"], "128Mi");
        let asked = pod(3, ["200m", "100m"], "128Mi");
        let left = |now: &Pod| is_all_that_is_left(&before, &asked, now).unwrap();
        assert!(!left(&asked), "the cpu is not actual yet");
        assert!(left(&pod(3, ["200m", "200m"], "128Mi")));
        assert!(!left(&pod(4, ["300m", "300m"], "128Mi")), "it was changed again");
        // The memory of this request.
        assert!(!is_all_that_is_left(&pod(2, ["100m", "100m"], "64Mi"), &before, &before).unwrap());
    }
}
