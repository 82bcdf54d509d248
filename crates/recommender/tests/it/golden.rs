//! What upstream's recommender gives for the same samples: the golden vectors of its default settings, and runs
//! of upstream 1.8.1 over made-up samples with all kinds of settings.

#![expect(clippy::excessive_precision, reason = "the digits are those that upstream prints")]

use std::fmt::Write as _;
use std::time::Duration;

use plumb_recommender::model::cluster::{
    ContainerCheckpoint, PodUpdate, Restored, SelectorUpdate, VpaUpdate,
};
use plumb_recommender::model::histogram::{DecayingHistogram, HistogramCheckpoint};
use plumb_recommender::{
    AggregationConfig, CheckpointStatus, Cluster, ClusterSettings, EstimationSettings, Time, VpaKey,
    VpaSettings, Workload,
};

use super::{MINUTE, at, config, cpu, memory, written};

#[test]
fn a_day_of_cpu_samples_gives_upstreams_histogram() {
    let config = config();
    let mut histogram = DecayingHistogram::new(&config.cpu);
    for i in 0..1_440 {
        let value = 0.1 + 0.001 * f64::from(i % 100);
        histogram.add(&config.cpu, value, 0.1, at(i64::from(i) * MINUTE));
    }
    let percentile = |p: f64| histogram.percentile(&config.cpu, p);
    assert_eq!(percentile(0.5).to_bits(), 0.159_171_265_204_425_7_f64.to_bits());
    assert_eq!(percentile(0.9).to_bits(), 0.195_986_319_887_879_29_f64.to_bits());
    assert_eq!(percentile(0.95).to_bits(), percentile(0.9).to_bits());
    let expected = HistogramCheckpoint {
        reference_timestamp: at(0),
        bucket_weights: vec![
            (8, 6_467),
            (9, 8_874),
            (10, 9_971),
            (11, 9_284),
            (12, 9_914),
            (13, 10_000),
            (14, 2_234),
        ],
        total_weight: 207.698_089_899_278_73,
    };
    assert_eq!(histogram.to_checkpoint(), expected);
}

fn recommended(workload: &Workload<'_>) -> Vec<[String; 3]> {
    let lists = |container: &plumb_recommender::ContainerRecommendation| {
        [&container.target, &container.lower_bound, &container.upper_bound].map(written)
    };
    workload.recommend(&EstimationSettings::default()).iter().map(lists).collect()
}

#[test]
fn one_sample_gives_upstreams_recommendation() {
    let config = config();
    let mut workload = Workload::new(&config, VpaSettings::default());
    workload.add_sample("app", cpu(0, 100)).unwrap();
    workload.add_sample("app", memory(0, 100_000_000)).unwrap();
    assert_eq!(recommended(&workload), [["126m/250Mi", "25m/250Mi", "100G/97656250000Ki"]]);
    let (_, aggregate) = workload.aggregates().next().unwrap();
    let status = CheckpointStatus::of(aggregate);
    assert_eq!((status.version.as_ref(), status.total_samples_count), ("v3", 1));
    let one = |day: i64, total_weight: f64| HistogramCheckpoint {
        reference_timestamp: at(day * super::DAY),
        bucket_weights: vec![(8, 10_000)],
        total_weight,
    };
    assert_eq!(status.cpu_histogram, one(0, 0.1));
    assert_eq!(status.memory_histogram, one(1, 1.0));
}

#[test]
fn a_day_of_samples_gives_upstreams_recommendation() {
    let config = config();
    let mut workload = Workload::new(&config, VpaSettings::default());
    for i in 0..1_440 {
        workload.add_sample("app", cpu(i * MINUTE, 50 + i * 37 % 900)).unwrap();
        workload.add_sample("app", memory(i * MINUTE, 100_000_000 + i * 7_919 % 900 * 1_000_000)).unwrap();
    }
    assert_eq!(recommended(&workload), [["1038m/1168723596", "585m/1166388030", "2202m/2338259369"]]);
    let (_, aggregate) = workload.aggregates().next().unwrap();
    let status = CheckpointStatus::of(aggregate);
    assert_eq!(status.memory_histogram.bucket_weights, [(36, 10_000)]);
    assert!((status.memory_histogram.total_weight - 1.0).abs() < 1e-12);
    assert!((status.cpu_histogram.total_weight - 207.698_089_899).abs() < 1e-9);
    let buckets: Vec<_> = status.cpu_histogram.bucket_weights.iter().map(|&(bucket, _)| bucket).collect();
    assert_eq!((buckets.first(), buckets.last()), (Some(&4), Some(&35)));
}

#[test]
fn two_containers_share_the_minimum() {
    let config = config();
    let mut workload = Workload::new(&config, VpaSettings::default());
    for container in ["a", "b"] {
        workload.add_sample(container, cpu(0, 1)).unwrap();
        workload.add_sample(container, memory(0, 1_000_000)).unwrap();
    }
    let each = ["12m/125Mi", "12m/125Mi", "100G/97656250000Ki"];
    assert_eq!(recommended(&workload), [each, each]);
}

/// Runs of upstream 1.8.1, one line for each container and phase: `run` after samples, `restored` from the
/// checkpoint of that alone, `resumed` with further samples on top.
const UPSTREAM: &str = include_str!("upstream.txt");

/// The numbers that the samples were made of.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from((self.0 >> 33) % end).unwrap()
    }

    fn float_below(&mut self, end: u64) -> f64 {
        f64::from(i32::try_from(self.below(end)).unwrap())
    }
}

fn minutes(count: i64) -> Duration {
    Duration::from_mins(count.unsigned_abs())
}

/// The settings and the size of one run.
struct Run {
    numbers: Numbers,
    config: AggregationConfig,
    estimation: EstimationSettings,
    pods: i64,
    containers: i64,
    step: i64,
    ticks: i64,
    cpu_range: u64,
    memory_range: u64,
    clock: i64,
}

impl Run {
    fn new(number: u64) -> Self {
        let mut numbers = Numbers(number * 7_919 + 1);
        let mut aggregation = config().settings;
        let mut estimation = EstimationSettings::default();
        match number % 4 {
            1 => {
                aggregation.memory_interval = minutes(60 * (1 + numbers.below(30)));
                aggregation.memory_half_life = minutes(60 * (1 + numbers.below(100)));
                aggregation.cpu_half_life = minutes(1 + numbers.below(2_000));
            }
            2 => {
                aggregation.oom_bump_up_ratio = 1.0 + numbers.float_below(100) / 100.0;
                aggregation.oom_min_bump_up_bytes = numbers.float_below(300_000_000);
            }
            3 => {
                estimation.safety_margin_fraction = numbers.float_below(50) / 100.0;
                estimation.percentiles.cpu.target = (50.0 + numbers.float_below(50)) / 100.0;
                estimation.percentiles.memory.target = (50.0 + numbers.float_below(50)) / 100.0;
                estimation.confidence_interval.cpu = minutes(1 + numbers.below(5_000));
                estimation.pod_min_cpu_millicores = numbers.float_below(100);
                estimation.pod_min_memory_mb = numbers.float_below(100);
                estimation.round_up_to.cpu = 1 + numbers.below(50);
                estimation.round_up_to.memory = 1 + numbers.below(1 << 24);
            }
            _ => {}
        }
        Self {
            config: AggregationConfig::new(aggregation).unwrap(),
            estimation,
            pods: 1 + numbers.below(4),
            containers: 1 + numbers.below(3),
            step: 1 + numbers.below(90),
            ticks: 1 + numbers.below(3_000),
            cpu_range: 1 << (3 + numbers.below(14)),
            memory_range: 1 << (20 + numbers.below(15)),
            clock: 0,
            numbers,
        }
    }

    fn cluster(&self) -> Cluster {
        let settings = ClusterSettings {
            aggregation: self.config.settings.clone(),
            estimation: self.estimation.clone(),
            ..ClusterSettings::default()
        };
        let mut cluster = Cluster::new(settings).unwrap();
        cluster.apply_vpa(VpaUpdate {
            key: VpaKey::new("ns", "vpa"),
            created: at(0),
            selector: SelectorUpdate::Known([("app", "x")].into_iter().collect()),
            settings: VpaSettings::default(),
            target_exists: true,
        });
        let labels = [("app".to_owned(), "x".to_owned())].into();
        let names: Vec<_> = (0..self.containers).map(|container| format!("c{container}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        for pod in 0..self.pods {
            let name = format!("pod-{pod}");
            cluster.apply_pod(PodUpdate {
                namespace: "ns",
                name: &name,
                labels: &labels,
                containers: &names,
                active: true,
            });
        }
        cluster
    }

    fn feed(&mut self, cluster: &mut Cluster, ticks: i64) {
        for _ in 0..ticks {
            self.clock += self.step * MINUTE;
            if self.numbers.below(200) == 0 {
                self.clock += self.numbers.below(3 * 86_400);
            }
            for pod in 0..self.pods {
                for container in 0..self.containers {
                    let (pod, container) = (format!("pod-{pod}"), format!("c{container}"));
                    let time = self.clock + self.numbers.below(100) - 20;
                    let millicores = self.numbers.below(self.cpu_range);
                    let mut bytes = self.numbers.below(self.memory_range);
                    if self.numbers.below(20) == 0 {
                        bytes = 0;
                    }
                    let kind = self.numbers.below(300);
                    // Which of them count is part of what is compared.
                    if kind == 0 {
                        let age = self.numbers.below(90_000);
                        let requested = self.numbers.below(self.memory_range);
                        let _ = cluster.record_oom("ns", &pod, &container, at(time - age), requested);
                    }
                    let _ = cluster.add_sample("ns", &pod, &container, cpu(time, millicores));
                    if kind > 10 {
                        let _ = cluster.add_sample("ns", &pod, &container, memory(time, bytes));
                    }
                }
            }
        }
    }
}

/// The lines of one phase, as the runs of upstream were written down.
fn report(lines: &mut String, number: u64, phase: &str, cluster: &mut Cluster) -> Vec<ContainerCheckpoint> {
    let key = VpaKey::new("ns", "vpa");
    cluster.recommend();
    // Every memory window is over.
    cluster.set_time(at(100_000 * 86_400));
    let checkpoints = cluster.checkpoints(&key);
    let view = cluster.vpa(&key).unwrap();
    for (recommended, checkpoint) in view.recommendation().iter().zip(&checkpoints) {
        let status = &checkpoint.status;
        let [target, lower, upper] =
            [&recommended.target, &recommended.lower_bound, &recommended.upper_bound].map(written);
        let seconds = |time: Time| time.unix_nanos().map_or(-62_135_596_800, |nanos| nanos / 1_000_000_000);
        let histogram = |histogram: &HistogramCheckpoint| {
            let weights: Vec<_> = histogram
                .bucket_weights
                .iter()
                .map(|(bucket, weight)| format!("{bucket}:{weight}"))
                .collect();
            let (reference, total) =
                (seconds(histogram.reference_timestamp), histogram.total_weight.to_bits());
            format!("{reference} {total:016x} {}", weights.join(","))
        };
        writeln!(
            lines,
            "{number} {phase} {} target {target} lower {lower} upper {upper} first {} last {} count {} cpu {} memory {}",
            recommended.container,
            seconds(status.first_sample_start),
            seconds(status.last_sample_start),
            status.total_samples_count,
            histogram(&status.cpu_histogram),
            histogram(&status.memory_histogram),
        )
        .unwrap();
    }
    cluster.set_time(Time::UNSET);
    checkpoints
}

#[test]
fn runs_of_upstream_are_repeated_to_the_last_bit() {
    let mut lines = String::new();
    for number in 0..40 {
        let mut run = Run::new(number);
        let mut cluster = run.cluster();
        run.feed(&mut cluster, run.ticks);
        let saved = report(&mut lines, number, "run", &mut cluster);
        let mut cluster = run.cluster();
        for checkpoint in saved {
            let restored = cluster.restore_checkpoint(
                &VpaKey::new("ns", "vpa"),
                &checkpoint.container,
                &checkpoint.status,
            );
            assert_eq!(restored, Ok(Restored::Restored));
        }
        report(&mut lines, number, "restored", &mut cluster);
        run.feed(&mut cluster, run.ticks / 3);
        report(&mut lines, number, "resumed", &mut cluster);
    }
    for (ours, theirs) in lines.lines().zip(UPSTREAM.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(lines.lines().count(), UPSTREAM.lines().count());
}
