//! What one tick of the recommender's engine costs in time, and what it takes in memory. One thread.
//!
//! `cargo bench -p plumb-recommender --bench recommender -- [--sizes 1000,50000] [--json]`; `bench/autoscaler` runs it, too.
//!
//! Two clusters are measured at several sizes: Deployments with ten replicas, whose pods share one aggregate, and
//! pods with labels of their own, where every container has one. All pods use CPU and memory at random over the
//! range of a real service. Each figure is the best of three.

#![expect(clippy::expect_used, reason = "the input is made here")]
#![expect(clippy::cast_precision_loss, reason = "figures to be read")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use plumb_recommender::model::cluster::{PodUpdate, SelectorUpdate, VpaUpdate};
use plumb_recommender::{CheckpointStatus, Cluster, ClusterSettings, Sample, Time, VpaKey, VpaSettings};
use plumb_resize::resource::Resource;

mod heap {
    //! Counts the bytes on the heap.
    #![expect(unsafe_code, reason = "an allocator is unsafe to implement")]

    use std::alloc::{GlobalAlloc, Layout, System};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The system's allocator with a counter.
    pub(super) struct Counting(AtomicUsize);

    #[global_allocator]
    pub(super) static HEAP: Counting = Counting(AtomicUsize::new(0));

    impl Counting {
        /// Bytes in use.
        pub(super) fn bytes(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    // SAFETY: every call goes to the system's allocator unchanged.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            self.0.fetch_add(layout.size(), Ordering::Relaxed);
            // SAFETY: the caller's contract is that of the system's allocator.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
            self.0.fetch_sub(layout.size(), Ordering::Relaxed);
            // SAFETY: as above.
            unsafe { System.dealloc(at, layout) }
        }
    }
}

/// Replicas of each VPA's target.
const REPLICAS: usize = 10;
/// Ticks before the figures are taken, a minute each.
const WARM_UP: i64 = 120;
/// How often each figure is taken.
const ROUNDS: usize = 3;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let sizes = args.iter().position(|arg| arg == "--sizes").and_then(|at| args.get(at + 1));
    let sizes = sizes.map_or("1000,5000,10000,20000,50000", String::as_str);
    let sizes: Vec<usize> = sizes.split(',').map(|size| size.parse().expect("a size is a number")).collect();
    if args.iter().any(|arg| arg == "--json") {
        for containers in sizes {
            for shared in [true, false] {
                println!("{}", measure(containers, shared).json());
            }
        }
        return;
    }
    println!(
        "{:>10} {:>7} {:>10} {:>10} {:>10} {:>12} {:>12} {:>12} {:>12}",
        "containers",
        "VPAs",
        "aggregates",
        "cold load",
        "restore",
        "tick",
        "checkpoints",
        "B/container",
        "B/aggregate",
    );
    for shared in [true, false] {
        for &containers in &sizes {
            println!("{}", measure(containers, shared).line());
        }
    }
    println!("targets at 50000: cold load 2 s, tick 250 ms, checkpoints 100 ms, 1536 B for each aggregate");
}

struct Bed {
    pods: Vec<(String, BTreeMap<String, String>)>,
    vpas: Vec<VpaUpdate>,
    state: u64,
}

fn time(minute: i64) -> Time {
    Time::from_unix_seconds(1_767_225_600 + minute * 60)
}

impl Bed {
    fn new(containers: usize, shared: bool) -> Self {
        let label = |key: &str, value: String| (key.to_owned(), value);
        let pods = (0..containers).map(|pod| {
            let app = format!("service-{}", pod / REPLICAS);
            let mut labels = BTreeMap::from([
                label("app.kubernetes.io/name", app.clone()),
                label("app.kubernetes.io/part-of", "shop".to_owned()),
                label("pod-template-hash", format!("{:010x}", pod / REPLICAS * 7_919)),
            ]);
            if !shared {
                labels.insert("example.com/replica".to_owned(), pod.to_string());
            }
            (format!("{app}-{:010x}-{:05x}", pod / REPLICAS * 7_919, pod), labels)
        });
        let vpas = (0..containers / REPLICAS).map(|vpa| VpaUpdate {
            key: VpaKey::new("shop", &format!("service-{vpa}")),
            created: time(0),
            selector: SelectorUpdate::Known(
                [("app.kubernetes.io/name".to_owned(), format!("service-{vpa}"))].into_iter().collect(),
            ),
            settings: VpaSettings::default(),
            target_exists: true,
        });
        Self { pods: pods.collect(), vpas: vpas.collect(), state: 1 }
    }

    fn load(&self) -> Cluster {
        let mut cluster = Cluster::new(ClusterSettings::default()).expect("the buckets are constants");
        cluster.set_time(time(0));
        for vpa in &self.vpas {
            cluster.apply_vpa(vpa.clone());
        }
        for (name, labels) in &self.pods {
            let containers = &["app"];
            cluster.apply_pod(PodUpdate { namespace: "shop", name, labels, containers, active: true });
        }
        cluster
    }

    fn next(&mut self) -> i64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from(self.state >> 40).expect("24 bits")
    }

    fn samples(&mut self, cluster: &mut Cluster, minute: i64) {
        let at = time(minute);
        cluster.set_time(at);
        for pod in 0..self.pods.len() {
            // From 20 millicores to 2 cores, and from 100 MB to 1.7 GB.
            let (cpu, memory) = (20 + self.next() % 1_980, 100_000_000 + self.next() * 100);
            let name = &self.pods[pod].0;
            for (resource, usage) in [(Resource::Cpu, cpu), (Resource::Memory, memory)] {
                cluster.add_sample("shop", name, "app", Sample { at, resource, usage }).expect("in order");
            }
        }
    }
}

/// What was measured of one cluster.
struct Figures {
    containers: usize,
    vpas: usize,
    aggregates: usize,
    /// The sum of the targets of cpu, in millicores.
    targets: i64,
    cold: Duration,
    restore: Duration,
    tick: Duration,
    checkpoints: Duration,
    heap: usize,
}

impl Figures {
    fn line(&self) -> String {
        format!(
            "{:>10} {:>7} {:>10} {:>10} {:>10} {:>12} {:>12} {:>12.0} {:>12.0}",
            self.containers,
            self.vpas,
            self.aggregates,
            milliseconds(self.cold),
            milliseconds(self.restore),
            milliseconds(self.tick),
            milliseconds(self.checkpoints),
            self.heap as f64 / self.containers as f64,
            self.heap as f64 / self.aggregates as f64,
        )
    }

    fn json(&self) -> String {
        let seconds = |time: Duration| time.as_secs_f64();
        serde_json::json!({
            "containers": self.containers, "vpas": self.vpas, "aggregates": self.aggregates, "targets": self.targets,
            "cold": seconds(self.cold), "restore": seconds(self.restore), "tick": seconds(self.tick),
            "checkpoints": seconds(self.checkpoints), "heap": self.heap,
        })
        .to_string()
    }
}

fn measure(containers: usize, shared: bool) -> Figures {
    let mut bed = Bed::new(containers, shared);
    let before = heap::HEAP.bytes();
    let mut cluster = bed.load();
    for minute in 1..=WARM_UP {
        bed.samples(&mut cluster, minute);
    }
    let heap = heap::HEAP.bytes() - before;
    let size = cluster.size();
    assert_eq!(cluster.recommend().len(), bed.vpas.len());
    let views = bed.vpas.iter().filter_map(|vpa| cluster.vpa(&vpa.key));
    let targets = views.flat_map(|view| view.recommendation()).filter_map(|of| of.target.cpu);
    let targets = targets.map(plumb_resize::Quantity::saturating_milli).sum();

    let mut minute = WARM_UP;
    let tick = best(|| {
        minute += 1;
        let started = Instant::now();
        bed.samples(&mut cluster, minute);
        cluster.remove_deleted_pods();
        cluster.recommend();
        started.elapsed()
    });

    // A day on, so that checkpoints hold memory peaks.
    minute += 24 * 60;
    bed.samples(&mut cluster, minute);
    let mut written: Vec<(VpaKey, CheckpointStatus)> = Vec::new();
    let checkpoints = best(|| {
        minute += 1;
        bed.samples(&mut cluster, minute);
        written.clear();
        let started = Instant::now();
        for key in cluster.checkpoints_due() {
            for checkpoint in cluster.checkpoints(&key) {
                cluster.checkpoint_written(&key, &checkpoint.container, checkpoint.digest);
                written.push((VpaKey::clone(&key), checkpoint.status));
            }
        }
        started.elapsed()
    });
    assert_eq!(written.len(), bed.vpas.len());
    // What has not changed costs no write.
    cluster.recommend();
    assert_eq!((cluster.recommend().len(), cluster.checkpoints_due().len()), (0, 0));
    drop(cluster);

    let cold = best(|| {
        let started = Instant::now();
        let mut cluster = bed.load();
        let elapsed = started.elapsed();
        for minute in 1..=5 {
            bed.samples(&mut cluster, minute);
        }
        // Making up the samples is not part of it.
        elapsed
    });
    let restore = best(|| {
        let mut cluster = bed.load();
        cluster.set_time(time(minute));
        let started = Instant::now();
        for (key, status) in &written {
            cluster.restore_checkpoint(key, "app", status).expect("our own checkpoint");
        }
        cluster.recommend();
        started.elapsed()
    });

    let (vpas, aggregates) = (bed.vpas.len(), size.aggregates);
    Figures { containers, vpas, aggregates, targets, cold, restore, tick, checkpoints, heap }
}

fn best(mut run: impl FnMut() -> Duration) -> Duration {
    (0..ROUNDS).map(|_| run()).min().unwrap_or_default()
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1_000.0)
}
