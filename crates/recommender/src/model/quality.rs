//! How usage compares with the recommendation of the time, and how much recommendations change.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use plumb_metrics::{FloatHistogram, Text};
use plumb_resize::resource::{PerResource, Resource};
use plumb_vpa_api::UpdateMode;

/// From 0.01 to 655.36 cores.
const CORES: &[f64] = &doubling(0.01);
/// From 1 MB to 65.5 GB.
const BYTES: &[f64] = &doubling(1e6);
/// From -100 % to a hundred times as much.
const RELATIVE: &[f64] = &[
    -1.0, -0.75, -0.5, -0.25, -0.1, -0.05, -0.025, -0.01, -0.005, -0.0025, -0.001, 0.0, 0.001, 0.0025, 0.005,
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0,
];

/// A truth value as Go writes it.
pub(crate) const fn truth(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

const fn doubling(first: f64) -> [f64; 17] {
    let mut bounds = [first; 17];
    let mut at = 1;
    while at < bounds.len() {
        bounds[at] = bounds[at - 1] * 2.0;
        at += 1;
    }
    bounds
}

/// The update modes by which is counted: none, those that are known, and any other.
const MODES: [&str; 8] = ["", "Off", "Initial", "Recreate", "InPlaceOrRecreate", "InPlace", "Auto", "other"];
/// The numbers of pods of a VPA by which is counted: powers of two, the last for all larger ones.
const SIZES: usize = 21;

/// How usage compares with the recommendation of the time, and how much recommendations change.
///
/// Counting takes no lock, because it is done for every sample.
#[derive(Default)]
pub struct QualityMetrics([OnceLock<Box<Mode>>; MODES.len()]);

impl fmt::Debug for QualityMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QualityMetrics")
    }
}

/// What is counted for one update mode. The index is whether it is about an OOM kill; for CPU it never is.
struct Mode {
    relative_diffs: PerResource<[FloatHistogram; 2]>,
    missing: PerResource<[AtomicU64; 2]>,
    /// Where the recommendation is larger than usage, by whether it is missing.
    over_usage: PerResource<[[FloatHistogram; 2]; 2]>,
    /// Where it is not.
    lower_equal_usage: PerResource<[[FloatHistogram; 2]; 2]>,
    recommendations: PerResource<[FloatHistogram; 2]>,
    /// By the size of the VPA.
    changes: PerResource<[FloatHistogram; SIZES]>,
}

impl Mode {
    fn new() -> Self {
        let absolute = |resource| {
            let bounds = match resource {
                Resource::Cpu => CORES,
                Resource::Memory => BYTES,
            };
            move || FloatHistogram::new(bounds)
        };
        let two = |resource| std::array::from_fn(|_| absolute(resource)());
        let four = |resource| std::array::from_fn(|_| two(resource));
        Self {
            relative_diffs: PerResource::of(|_| std::array::from_fn(|_| FloatHistogram::new(RELATIVE))),
            missing: PerResource::default(),
            over_usage: PerResource::of(four),
            lower_equal_usage: PerResource::of(four),
            recommendations: PerResource::of(two),
            changes: PerResource::of(|_| std::array::from_fn(|_| FloatHistogram::new(RELATIVE))),
        }
    }
}

impl QualityMetrics {
    /// Compares a sample, or an OOM kill, with what was recommended for the container then. Both are in cores or bytes.
    pub fn observe_usage(
        &self,
        mode: Option<&UpdateMode>,
        resource: Resource,
        usage: f64,
        recommended: Option<f64>,
        is_oom: bool,
    ) {
        let (mode, oom) = (self.mode(mode), usize::from(is_oom));
        let recommended = recommended.filter(|amount| *amount > 0.0);
        let missing = usize::from(recommended.is_none());
        let amount = recommended.unwrap_or(0.0);
        let diffs = if amount > usage { &mode.over_usage } else { &mode.lower_equal_usage };
        diffs[resource][missing][oom].observe((usage - amount).abs());
        if recommended.is_none() {
            mode.missing[resource][oom].fetch_add(1, Relaxed);
        } else {
            mode.recommendations[resource][oom].observe(amount);
            mode.relative_diffs[resource][oom].observe((usage - amount) / amount);
        }
    }

    /// Compares a recommendation with the one before it, of a VPA with so many pods. A recommendation after none, or after
    /// zero, does not count.
    pub fn observe_change(
        &self,
        mode: Option<&UpdateMode>,
        resource: Resource,
        before: f64,
        now: f64,
        pods: usize,
    ) {
        if before > 0.0 {
            let size = pods.checked_ilog2().map_or(0, |log| log as usize).min(SIZES - 1);
            self.mode(mode).changes[resource][size].observe(now / before - 1.0);
        }
    }

    fn mode(&self, mode: Option<&UpdateMode>) -> &Mode {
        let name = mode.map_or("", UpdateMode::as_str);
        let at = MODES.iter().position(|known| *known == name).unwrap_or(MODES.len() - 1);
        self.0[at].get_or_init(|| Box::new(Mode::new()))
    }

    pub(crate) fn render(&self, text: &mut Text) {
        let modes = || MODES.iter().zip(&self.0).filter_map(|(name, mode)| Some((*name, &**mode.get()?)));

        let name = "vpa_quality_usage_recommendation_relative_diffs";
        text.histogram(name, "usage less recommendation, as a part of the recommendation");
        each(modes(), |mode, mode_name, resource, oom| {
            let labels = [("update_mode", mode_name), ("resource", resource.name()), ("is_oom", truth(oom))];
            render(&mode.relative_diffs[resource][usize::from(oom)], text, name, &labels);
        });

        let name = "vpa_quality_usage_sample_missing_recommendation_count";
        text.counter(name, "samples of containers that should have a recommendation and have none");
        each(modes(), |mode, mode_name, resource, oom| {
            let count = mode.missing[resource][usize::from(oom)].load(Relaxed);
            let labels = [("update_mode", mode_name), ("resource", resource.name()), ("is_oom", truth(oom))];
            if count > 0 {
                text.sample(name, &labels, count);
            }
        });

        for (names, help, diffs) in DIFFS {
            for resource in Resource::ALL {
                let name = names[resource];
                text.histogram(name, help);
                for (mode_name, mode) in modes() {
                    for missing in [false, true] {
                        for oom in oom_of(resource) {
                            let histogram = &diffs(mode)[resource][usize::from(missing)][usize::from(*oom)];
                            let mut labels =
                                vec![("update_mode", mode_name), ("recommendation_missing", truth(missing))];
                            labels.extend((resource == Resource::Memory).then_some(("is_oom", truth(*oom))));
                            render(histogram, text, name, &labels);
                        }
                    }
                }
            }
        }

        for (resource, name) in [
            (Resource::Cpu, "vpa_quality_cpu_recommendations_cores"),
            (Resource::Memory, "vpa_quality_mem_recommendations_bytes"),
        ] {
            text.histogram(name, "recommendations at the time of a sample");
            for (mode_name, mode) in modes() {
                for oom in oom_of(resource) {
                    let mut labels = vec![("update_mode", mode_name)];
                    labels.extend((resource == Resource::Memory).then_some(("is_oom", truth(*oom))));
                    render(&mode.recommendations[resource][usize::from(*oom)], text, name, &labels);
                }
            }
        }

        let name = "vpa_quality_relative_recommendation_changes";
        text.histogram(name, "changes of recommendations, as a part of the one before");
        for (mode_name, mode) in modes() {
            for resource in Resource::ALL {
                for (size, histogram) in mode.changes[resource].iter().enumerate() {
                    let size = size.to_string();
                    let labels = [
                        ("update_mode", mode_name),
                        ("resource", resource.name()),
                        ("vpa_size_log2", size.as_str()),
                    ];
                    render(histogram, text, name, &labels);
                }
            }
        }
    }
}

/// The families of differences: their names, and where they are counted.
type Diffs = (PerResource<&'static str>, &'static str, fn(&Mode) -> &PerResource<[[FloatHistogram; 2]; 2]>);
const DIFFS: [Diffs; 2] = [
    (
        PerResource::new(
            "vpa_quality_cpu_recommendation_over_usage_diffs_cores",
            "vpa_quality_mem_recommendation_over_usage_diffs_bytes",
        ),
        "recommendation less usage, where the recommendation is larger",
        |mode| &mode.over_usage,
    ),
    (
        PerResource::new(
            "vpa_quality_cpu_recommendation_lower_equal_usage_diffs_cores",
            "vpa_quality_mem_recommendation_lower_equal_usage_diffs_bytes",
        ),
        "usage less recommendation, where the recommendation is not larger",
        |mode| &mode.lower_equal_usage,
    ),
];

/// Whether something can be about an OOM kill.
fn oom_of(resource: Resource) -> &'static [bool] {
    match resource {
        Resource::Cpu => &[false],
        Resource::Memory => &[false, true],
    }
}

/// Every mode, resource, and whether it is about an OOM kill.
fn each<'a>(
    modes: impl Iterator<Item = (&'static str, &'a Mode)>,
    mut of: impl FnMut(&Mode, &'static str, Resource, bool),
) {
    for (name, mode) in modes {
        for resource in Resource::ALL {
            for oom in oom_of(resource) {
                of(mode, name, resource, *oom);
            }
        }
    }
}

/// Writes a histogram that has counted something.
fn render(histogram: &FloatHistogram, text: &mut Text, name: &str, labels: &[(&str, &str)]) {
    if histogram.count() > 0 {
        histogram.render(text, name, labels);
    }
}
