//! Estimation, rounding and limits: upstream's number tables.

use std::time::Duration;

use plumb_recommender::model::estimate::{Bound, Ceiling, CeilingSource, Limit};
use plumb_recommender::{
    AggregationConfig, ContainerPolicy, EstimationSettings, Percentiles, ResourcePolicy, ScalingMode,
    VpaSettings, Workload, integer_cpu_containers,
};
use plumb_resize::Quantity;
use plumb_resize::resource::PerResource;

use super::{MINUTE, config, cpu, memory, written};

#[expect(clippy::unnecessary_wraps, reason = "limits are optional")]
fn quantity(text: &str) -> Option<Quantity> {
    Some(text.parse().unwrap())
}

/// One container with a sample of each resource.
fn with_samples(config: &AggregationConfig, vpa: VpaSettings, millicores: i64, bytes: i64) -> Workload<'_> {
    let mut workload = Workload::new(config, vpa);
    workload.add_sample("app", cpu(0, millicores)).unwrap();
    workload.add_sample("app", memory(0, bytes)).unwrap();
    workload
}

fn policy(change: impl FnOnce(&mut ContainerPolicy)) -> VpaSettings {
    let mut policy = ContainerPolicy::new("app");
    change(&mut policy);
    VpaSettings { policy: ResourcePolicy { containers: vec![policy] }, ..VpaSettings::default() }
}

#[test]
fn the_minimum_of_a_pod_is_divided_by_its_containers() {
    let config = config();
    let mut workload = Workload::new(&config, VpaSettings::default());
    // Usage in the first bucket counts as 10 millicores and 10 MB.
    for (container, target) in
        [("a", "25m/250Mi"), ("b", "12m/125Mi"), ("c", "11m/87381333"), ("d", "11m/64000Ki")]
    {
        workload.add_sample(container, cpu(0, 1)).unwrap();
        workload.add_sample(container, memory(0, 1_000_000)).unwrap();
        for recommended in workload.recommend(&EstimationSettings::default()) {
            assert_eq!(written(&recommended.target), target);
        }
    }
}

#[test]
fn containers_that_are_off_are_left_out_and_not_counted() {
    let config = config();
    let mut off = ContainerPolicy::new("*");
    off.mode = ScalingMode::Off;
    let containers = vec![ContainerPolicy::new("app"), off];
    let vpa = VpaSettings { policy: ResourcePolicy { containers }, ..VpaSettings::default() };
    let mut workload = with_samples(&config, vpa, 1, 1);
    workload.add_sample("sidecar", cpu(0, 1)).unwrap();
    let recommended = workload.recommend(&EstimationSettings::default());
    let names: Vec<_> = recommended.iter().map(|container| container.container.as_str()).collect();
    assert_eq!((names, written(&recommended[0].target)), (vec!["app"], "25m/250Mi".to_owned()));
}

#[test]
fn the_policy_of_a_container_is_its_own_or_the_last_default() {
    let named = |name: &str, max: &str| {
        let mut policy = ContainerPolicy::new(name);
        policy.max_allowed.cpu = quantity(max);
        policy
    };
    let containers = vec![named("*", "1"), named("app", "2"), named("*", "3"), named("app", "4")];
    let policy = ResourcePolicy { containers };
    let max = |name: &str| policy.for_container(name).unwrap().max_allowed.cpu;
    assert_eq!((max("app"), max("other")), (quantity("2"), quantity("3")));
    assert!(ResourcePolicy::default().for_container("app").is_none());
}

#[test]
fn only_controlled_resources_are_recommended() {
    let config = config();
    for (controlled, target) in [
        (PerResource::new(true, true), "126m/250Mi"),
        (PerResource::new(false, true), "-/250Mi"),
        (PerResource::new(true, false), "126m/-"),
        (PerResource::new(false, false), "-/-"),
    ] {
        let workload = with_samples(&config, policy(|policy| policy.controlled = controlled), 100, 1);
        let recommended = workload.recommend(&EstimationSettings::default());
        for list in [&recommended[0].target, &recommended[0].uncapped_target] {
            assert_eq!(written(list), target);
        }
        assert_eq!(recommended[0].lower_bound.cpu.is_some(), controlled.cpu);
        assert_eq!(recommended[0].upper_bound.memory.is_some(), controlled.memory);
    }
}

#[test]
fn recommendations_come_in_the_order_of_names() {
    let config = config();
    let mut workload = Workload::new(&config, VpaSettings::default());
    for name in ["b", "a", "d", "c"] {
        workload.add_sample(name, cpu(0, 1)).unwrap();
    }
    let recommended = workload.recommend(&EstimationSettings::default());
    let names: Vec<_> = recommended.iter().map(|container| container.container.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
}

#[test]
fn little_history_widens_the_bounds() {
    // (minutes of history at a sample a minute, lower bound and upper bound relative to full confidence)
    for (minutes, lower, upper) in
        [(5, 0.6, 289.0), (30, 0.91, 49.0), (60, 0.953, 25.0), (12 * 60, 0.996, 3.0), (24 * 60, 0.998, 2.0)]
    {
        let config = config();
        let mut workload = Workload::new(&config, VpaSettings::default());
        for minute in 0..=minutes {
            workload.add_sample("app", cpu(minute * MINUTE, 1_000)).unwrap();
        }
        let recommended = &workload.recommend(&EstimationSettings::default())[0];
        let milli = |quantity: Option<Quantity>| {
            f64::from(i32::try_from(quantity.unwrap().milli().unwrap()).unwrap())
        };
        let target = milli(recommended.target.cpu);
        assert!((milli(recommended.lower_bound.cpu) / target - lower).abs() < 0.01, "{minutes} minutes");
        assert!(
            (milli(recommended.upper_bound.cpu) / target / upper - 1.0).abs() < 0.01,
            "{minutes} minutes"
        );
    }
}

#[test]
fn amounts_are_rounded_up_to_multiples() {
    let config = config();
    // The target is 126 millicores and 126805489 bytes.
    for (cores, bytes, humanize, target) in [
        (1, 1, false, "126m/126805489"),
        (7, 1 << 20, false, "126m/121Mi"),
        (100, 1 << 28, false, "200m/256Mi"),
        (0, -5, false, "126m/126805489"),
        (13, 1, true, "130m/126804295680m"),
        (1, 1 << 28, true, "126m/256Mi"),
    ] {
        let settings = EstimationSettings {
            round_up_to: PerResource::new(cores, bytes),
            humanize_memory: humanize,
            pod_min_memory_mb: 0.0,
            ..EstimationSettings::default()
        };
        let workload = with_samples(&config, VpaSettings::default(), 100, 100_000_000);
        let recommended = &workload.recommend(&settings)[0];
        assert_eq!(written(&recommended.target), target);
        assert_eq!(written(&recommended.uncapped_target), target);
    }
}

#[test]
fn annotations_ask_for_whole_cores() {
    let prefix = "vpa-post-processor.kubernetes.io/";
    let annotations = [
        (format!("{prefix}kafka_integerCPU"), "true"),
        (format!("{prefix}other_integerCPU"), "false"),
        (format!("{prefix}_integerCPU"), "true"),
        (format!("{prefix}kafka_integerMemory"), "true"),
        ("kafka_integerCPU".to_owned(), "true"),
        (prefix.to_owned(), "true"),
    ];
    let annotations = annotations.iter().map(|(key, value)| (key.as_str(), *value));
    assert_eq!(integer_cpu_containers(annotations).collect::<Vec<_>>(), ["kafka"]);

    let config = config();
    let settings = EstimationSettings { integer_cpu: true, ..EstimationSettings::default() };
    for (container, enabled, target) in
        [("app", true, "9"), ("other", true, "8700m"), ("app", false, "8700m")]
    {
        let vpa = VpaSettings { integer_cpu: vec![container.to_owned()], ..VpaSettings::default() };
        let workload = with_samples(&config, vpa, 7_300, 1);
        let settings = EstimationSettings { integer_cpu: enabled, ..settings.clone() };
        let recommended = &workload.recommend(&settings)[0];
        assert_eq!(recommended.target.cpu, quantity(target), "{container}");
        assert_eq!(recommended.uncapped_target.cpu, quantity(target));
        assert_eq!(recommended.upper_bound.cpu, quantity("100G"));
        let whole = recommended.lower_bound.cpu.unwrap().milli().unwrap() % 1_000 == 0;
        assert_eq!(whole, target == "9");
    }
}

#[test]
fn limits_apply_to_everything_but_the_uncapped_target() {
    let config = config();
    // Without limits the target is 126m and 250Mi, the upper bound 100G and 97656250000Ki.
    for (min, max, global, target, upper) in [
        (None, None, None, "126m", "100G"),
        (quantity("200m"), None, None, "200m", "100G"),
        (None, quantity("50m"), None, "50m", "50m"),
        (quantity("200m"), quantity("100m"), None, "100m", "100m"),
        (quantity("0"), quantity("0"), None, "126m", "100G"),
        (None, None, quantity("64"), "126m", "64"),
        (None, quantity("100"), quantity("64"), "126m", "100"),
        (None, quantity("0"), quantity("64"), "126m", "100G"),
        (None, quantity("0.5"), None, "126m", "500m"),
    ] {
        let vpa = policy(|policy| {
            policy.min_allowed.cpu = min;
            policy.max_allowed.cpu = max;
        });
        let settings = EstimationSettings {
            max_allowed: PerResource::new(global, None),
            ..EstimationSettings::default()
        };
        let workload = with_samples(&config, vpa, 100, 1);
        let recommended = &workload.recommend(&settings)[0];
        assert_eq!(recommended.target.cpu.unwrap().to_string(), target);
        assert_eq!(recommended.upper_bound.cpu.unwrap().to_string(), upper);
        assert_eq!(recommended.uncapped_target.cpu, quantity("126m"));
        assert_eq!(recommended.target.memory, quantity("250Mi"), "another resource has other limits");
    }
}

#[test]
fn the_largest_node_caps_what_the_policy_allows() {
    let config = config();
    let mut vpa = policy(|policy| policy.max_allowed.cpu = quantity("100"));
    let max = PerResource::new(quantity("8"), quantity("32Gi"));
    vpa.ceilings.push(Ceiling { source: CeilingSource::LargestNode, max });
    let workload = with_samples(&config, vpa, 100, 1);
    let settings = EstimationSettings::default();
    assert_eq!(written(&workload.recommend(&settings)[0].upper_bound), "8/32Gi");
    let explanation = &workload.explain(&settings)[0];
    let limits = &explanation.resources.cpu.as_ref().unwrap().bounds[2].limits;
    let node = quantity("8").unwrap();
    let expected =
        [Limit::MaxAllowed(quantity("100").unwrap()), Limit::Ceiling(CeilingSource::LargestNode, node)];
    assert_eq!(limits, &expected);
    assert_eq!(limits[1].to_string(), "capped to the largest node, 8");
}

#[test]
fn a_policy_may_choose_its_percentiles() {
    let config = config();
    let vpa = policy(|policy| {
        policy.percentiles.cpu = Some(Percentiles { target: 0.5, lower: 0.1, upper: 1.0 });
    });
    let mut workload = Workload::new(&config, vpa);
    for sample in 0..1_000 {
        workload.add_sample("app", cpu(sample, 100 + sample)).unwrap();
    }
    let recommended = workload.recommend(&EstimationSettings::default());
    let steps = workload.explain(&EstimationSettings::default())[0].resources.cpu.clone().unwrap().bounds;
    assert_eq!(steps.clone().map(|bound| bound.bound), Bound::ALL);
    assert_eq!(steps.clone().map(|bound| bound.steps.usage), [623, 215, 1_140]);
    assert_eq!(recommended[0].target.cpu.unwrap(), steps[0].recommended);
}

#[test]
fn an_explanation_lists_the_steps_of_a_recommendation() {
    let config = config();
    let mut workload = Workload::new(&config, VpaSettings::default());
    for minute in 0..12 * 60 {
        workload.add_sample("app", cpu(minute * MINUTE, if minute % 10 == 0 { 900 } else { 400 })).unwrap();
        workload.add_sample("app", memory(minute * MINUTE, 1_000_000)).unwrap();
    }
    let settings = EstimationSettings::default();
    let explained = workload.explain(&settings).remove(0);
    let recommended = workload.recommend(&settings).remove(0);
    assert_eq!((explained.samples, explained.container.as_str()), (720, "app"));
    let cpu = explained.resources.cpu.unwrap();
    assert!((cpu.confidence - 719.0 / 1_440.0).abs() < 1e-9);
    assert_eq!(cpu.histogram.len(), 2);
    let shares: f64 = cpu.histogram.iter().map(|bucket| bucket.share).sum();
    assert!((shares - 1.0).abs() < 1e-9);
    assert!(cpu.histogram[0].start <= 0.4 && 0.4 < cpu.histogram[0].end);
    let upper = &cpu.bounds[2];
    assert_eq!((upper.bound, upper.steps.percentile), (Bound::Upper, 0.95));
    assert_eq!(upper.steps.with_margin, upper.steps.usage + upper.steps.usage * 15 / 100);
    assert_eq!(Some(upper.recommended), recommended.upper_bound.cpu);
    let memory = explained.resources.memory.unwrap();
    assert_eq!(
        memory.bounds[0].steps.amount, memory.bounds[0].steps.minimum,
        "10 MB are less than the minimum"
    );
    assert_eq!(Some(memory.bounds[0].recommended), recommended.target.memory);
}

#[test]
fn no_history_gives_the_widest_bounds() {
    let config = config();
    let settings = EstimationSettings {
        confidence_interval: PerResource::new(Duration::ZERO, Duration::ZERO),
        ..EstimationSettings::default()
    };
    for settings in [settings, EstimationSettings::default()] {
        let workload = with_samples(&config, VpaSettings::default(), 100, 1);
        let recommended = &workload.recommend(&settings)[0];
        assert_eq!(written(&recommended.upper_bound), "100G/97656250000Ki");
        assert_eq!(written(&recommended.lower_bound), "25m/250Mi");
    }
}
