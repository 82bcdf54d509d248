//! The rule that holds at every instant: containers never have limits that add up to more than their pod's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::machine::{Groups, Machine, create, equal, is_settled, load, pod, pods, resize, until};
use plumb_conformance::Figure;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_containers_stay_within_their_pods_throughout() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let pods = pods(&cluster).await;
    let containers = json!([
        load("a", &[], equal("100m", "64Mi")),
        load("b", &[], equal("200m", "128Mi")),
        load("c", &[], equal("300m", "192Mi")),
    ]);
    create(&pods, &pod("p", containers)).await;
    let started = until(&pods, "p", "settled", is_settled).await;
    let groups = Groups::of(&started);
    let (over, looks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let watcher = {
        let (over, looks) = (over.clone(), looks.clone());
        std::thread::spawn(move || {
            let ids = groups.containers();
            let mut broken = Vec::new();
            while !over.load(Ordering::Relaxed) {
                for figure in [Figure::MemoryLimit, Figure::CpuQuota] {
                    let all =
                        || -> Option<Vec<i64>> { ids.iter().map(|id| groups.number(id, figure)).collect() };
                    // Files are read one after another: only what stood still while they were counts.
                    let (Some(first), Some(pod), Some(again)) = (all(), groups.number("", figure), all())
                    else {
                        continue;
                    };
                    if first == again && first.iter().sum::<i64>() > pod {
                        broken.push(format!("{figure:?}: {first:?} in {pod}"));
                    }
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            }
            broken
        })
    };
    let sizes = [("100m", "64Mi"), ("200m", "128Mi"), ("300m", "192Mi")];
    for round in 0..30 {
        let size = |nth: usize| {
            let (cpu, memory) = sizes[(nth + round) % 3];
            let factor = if round % 2 == 0 { 1 } else { 2 };
            let cpu = format!("{}m", cpu.trim_end_matches('m').parse::<u32>().unwrap() * factor);
            let memory = format!("{}Mi", memory.trim_end_matches("Mi").parse::<u32>().unwrap() * factor);
            equal(&cpu, &memory)
        };
        let containers: Vec<_> = ["a", "b", "c"]
            .iter()
            .enumerate()
            .map(|(nth, name)| json!({ "name": name, "resources": size(nth) }))
            .collect();
        resize(&pods, "p", json!(containers)).await;
        // Some are overtaken by the next.
        if round % 3 == 0 {
            until(&pods, "p", "settled", is_settled).await;
        }
    }
    until(&pods, "p", "settled", is_settled).await;
    over.store(true, Ordering::Relaxed);
    let broken = watcher.join().unwrap();
    drop(cluster);
    machine.clear();
    assert_eq!(broken, Vec::<String>::new());
    assert!(looks.load(Ordering::Relaxed) > 100);
}
