//! The cost of a request that finds a free seat: matching, the flow, and its start and finish.

#![expect(clippy::unwrap_used, reason = "a bench that cannot be set up has failed")]

use std::hash::RandomState;
use std::time::{Duration, Instant};

use divan::Bencher;
use plumb_flowcontrol::bootstrap::schemas;
use plumb_flowcontrol::queue_set::{Arrival, QueueSet, Queuing, Started, WhenFull};
use plumb_flowcontrol::schema::{RequestDigest, Schema, Target};
use plumb_flowcontrol::work::WorkEstimate;

const QUEUES: Queuing = Queuing::Queue { queues: 128, hand_size: 6, queue_length_limit: 50 };

fn main() {
    divan::main();
}

fn all() -> Vec<Schema> {
    let mut all: Vec<Schema> = schemas()
        .into_iter()
        .map(|boot| Schema::new(&serde_json::from_value(boot.object).unwrap()).unwrap())
        .collect();
    Schema::sort(&mut all);
    all
}

/// An ordinary user, who matches the last schema but one.
#[divan::bench]
fn matching(bencher: Bencher<'_, '_>) {
    let (all, keys) = (all(), RandomState::new());
    let groups = ["developers".to_owned(), "system:authenticated".to_owned()];
    let target =
        Target::Resource { group: "apps", resource: "deployments", subresource: "", namespace: "web" };
    let request = RequestDigest { user: "alice", groups: &groups, verb: "list", target };
    bencher.bench_local(|| {
        let schema = all.iter().find(|schema| schema.matches(divan::black_box(&request))).unwrap();
        schema.flow_hash(&keys, schema.flow_distinguisher(&request))
    });
}

#[divan::bench(args = [0, 10, 1000])]
fn start_and_finish(bencher: Bencher<'_, '_>, others: u64) {
    let origin = Instant::now();
    let mut level = QueueSet::<(), ()>::new(QUEUES, 2_000, Duration::ZERO);
    let arrival = |flow_hash: u64| Arrival {
        flow_hash,
        work: WorkEstimate::ONE_SEAT,
        when_full: WhenFull::Reject,
        details: (),
    };
    for other in 0..others {
        level.start(arrival(other.wrapping_mul(0x9E37_79B9_7F4A_7C15)), origin.elapsed(), &mut Vec::new());
    }
    let mut hash = 1_u64;
    bencher.bench_local(|| {
        hash = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
        let mut woken = Vec::new();
        if let Started::Dispatched(id) = level.start(arrival(hash), origin.elapsed(), &mut woken) {
            level.finish(id, origin.elapsed(), &mut woken);
        }
    });
}
