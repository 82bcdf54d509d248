//! The whole process is killed before each call that it makes to the container runtime.

use super::machine::{
    Groups, Machine, ask_for_resize, create, equal, id, is_settled, load, pod, pods, until,
};
use plumb_conformance::Figure;
use serde_json::{Value, json};

fn containers(restarts: bool) -> Value {
    let policy = if restarts { "RestartContainer" } else { "NotRequired" };
    let mut changed = load("c", &[], equal("100m", "64Mi"));
    changed["resizePolicy"] = json!([{ "resourceName": "memory", "restartPolicy": policy }]);
    json!([changed, load("other", &[], equal("100m", "64Mi"))])
}

fn resized() -> Value {
    json!([
        { "name": "c", "resources": equal("300m", "128Mi") },
        { "name": "other", "resources": equal("50m", "32Mi") },
    ])
}

#[tokio::test]
async fn a_resize_survives_a_kill_before_each_of_its_steps_and_containers_run_on() {
    let Some(machine) = Machine::here() else { return };
    let points = [
        (false, "UpdateSandboxResources:1"),
        (false, "UpdateContainerResources:1"),
        (false, "UpdateContainerResources:2"),
        (true, "StopContainer:1"),
        (true, "CreateContainer:1"),
        (true, "StartContainer:1"),
        (true, "UpdateSandboxResources:1"),
    ];
    for (nth, (restarts, point)) in points.into_iter().enumerate() {
        let name = format!("pod-{nth}");
        let cluster = machine.start(&[]);
        let api = pods(&cluster).await;
        create(&api, &pod(&name, containers(restarts))).await;
        let before = until(&api, &name, "settled", is_settled).await;
        let groups = Groups::of(&before);
        let (changed, other) = (id(&before, "c"), id(&before, "other"));
        let pids = (groups.pid(&changed), groups.pid(&other));
        cluster.kill();

        let mut cluster = machine.start(&["--die-at", point]);
        // The answer may be lost with the process; the resize is not.
        let _ = ask_for_resize(&pods(&cluster).await, &name, resized()).await;
        assert!(cluster.died(), "{point}: it was never reached");
        if !restarts {
            assert_eq!((groups.pid(&changed), groups.pid(&other)), pids, "{point}: containers run on");
        }

        let cluster = machine.start(&[]);
        let api = pods(&cluster).await;
        let after =
            until(&api, &name, "settled", |pod| is_settled(pod) && pod.metadata.generation == Some(2)).await;
        assert_eq!(groups.pid(&other), pids.1, "{point}");
        assert_eq!(groups.number(&other, Figure::MemoryLimit), Some(32 << 20), "{point}");
        assert_eq!(groups.number(&id(&after, "c"), Figure::CpuQuota), Some(30_000), "{point}");
        assert_eq!(groups.number("", Figure::MemoryLimit), Some(160 << 20), "{point}");
        if !restarts {
            assert_eq!(groups.pid(&changed), pids.0, "{point}");
        }
        api.delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
        // Calls for this pod must not be counted as those of the next one.
        plumb_testkit::until_gone(&api, &name).await;
        cluster.stop();
    }
    machine.clear();
}
