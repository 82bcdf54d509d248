//! Metrics of the webhook, under upstream's names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use plumb_metrics::{Histogram, Text, Unit};

/// Upstream's bounds, in milliseconds, and finer ones below: most answers take less than ten.
const BOUNDS: &[u64] = &milliseconds([
    1, 2, 5, 10, 20, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1_000, 2_000, 5_000, 10_000, 20_000,
    30_000, 60_000, 120_000, 300_000,
]);

/// Upstream's bounds of the steps, and the same finer ones below.
const STEP_BOUNDS: &[u64] = &milliseconds([
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000,
    70_000, 80_000, 90_000, 100_000, 120_000, 150_000, 240_000, 300_000,
]);

const fn milliseconds<const N: usize>(mut bounds: [u64; N]) -> [u64; N] {
    let mut at = 0;
    while at < N {
        bounds[at] *= 1_000_000;
        at += 1;
    }
    bounds
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It could not be worked out, and the object was admitted as it is.
    Error,
    /// There was no change to make.
    Skipped,
    /// The object was changed.
    Applied,
}

/// The kind of object of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// Something else.
    Unknown,
    /// A pod.
    Pod,
    /// A VPA.
    Vpa,
}

/// A step of the response to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The body of the request arrives.
    ReadRequest,
    /// The webhook decides.
    Admit,
    /// The response is encoded.
    BuildResponse,
    /// The connection takes the response.
    WriteResponse,
    /// All of it.
    Total,
}

impl Step {
    const ALL: [Self; 5] =
        [Self::ReadRequest, Self::Admit, Self::BuildResponse, Self::WriteResponse, Self::Total];

    const fn name(self) -> &'static str {
        match self {
            Self::ReadRequest => "read_request",
            Self::Admit => "admit",
            Self::BuildResponse => "build_response",
            Self::WriteResponse => "write_response",
            Self::Total => "total",
        }
    }
}

impl Status {
    const ALL: [Self; 3] = [Self::Error, Self::Skipped, Self::Applied];

    const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Skipped => "skipped",
            Self::Applied => "applied",
        }
    }
}

impl Object {
    const ALL: [Self; 3] = [Self::Unknown, Self::Pod, Self::Vpa];

    const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Pod => "Pod",
            Self::Vpa => "VPA",
        }
    }
}

/// All metrics of the webhook. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct AdmissionMetrics(Arc<Families>);

#[derive(Debug)]
struct Families {
    latency: [[Histogram; Object::ALL.len()]; Status::ALL.len()],
    steps: [Histogram; Step::ALL.len()],
    boosts: AtomicU64,
    refused_boosts: AtomicU64,
}

impl Default for Families {
    fn default() -> Self {
        let histogram = || Histogram::new(Unit::Time, BOUNDS);
        Self {
            latency: std::array::from_fn(|_| std::array::from_fn(|_| histogram())),
            steps: std::array::from_fn(|_| Histogram::new(Unit::Time, STEP_BOUNDS)),
            boosts: AtomicU64::default(),
            refused_boosts: AtomicU64::default(),
        }
    }
}

impl AdmissionMetrics {
    /// Counts a request.
    pub fn answered(&self, status: Status, object: Object, took: Duration) {
        self.0.latency[status as usize][object as usize].observe_duration(took);
    }

    /// Counts the time of a step.
    pub fn step(&self, step: Step, took: Duration) {
        self.0.steps[step as usize].observe_duration(took);
    }

    /// Counts the containers of a pod that were boosted, and those that should have been.
    pub fn boosted(&self, boosted: usize, refused: usize) {
        self.0.boosts.fetch_add(boosted as u64, Relaxed);
        self.0.refused_boosts.fetch_add(refused as u64, Relaxed);
    }

    /// How many requests had an outcome.
    pub fn count(&self, status: Status, object: Object) -> u64 {
        self.0.latency[status as usize][object as usize].count()
    }

    /// Writes all of them.
    pub fn render(&self, text: &mut Text) {
        let name = "vpa_admission_controller_admission_pods_total";
        text.counter(name, "pods that were admitted, by whether they were changed");
        let pods = |status: Status| self.count(status, Object::Pod);
        text.sample(name, &[("applied", "false")], pods(Status::Skipped) + pods(Status::Error));
        text.sample(name, &[("applied", "true")], pods(Status::Applied));
        let name = "vpa_admission_controller_admission_latency_seconds";
        text.histogram(name, "time that requests took, by outcome and resource");
        for status in Status::ALL {
            for object in Object::ALL {
                let histogram = &self.0.latency[status as usize][object as usize];
                if histogram.count() > 0 {
                    let labels = [("status", status.name()), ("resource", object.name())];
                    histogram.render(text, name, &labels, |_| true);
                }
            }
        }
        let name = "vpa_admission_controller_execution_latency_seconds";
        text.histogram(name, "time that the steps of the response to a request take");
        for (step, histogram) in Step::ALL.into_iter().zip(&self.0.steps) {
            histogram.render(text, name, &[("step", step.name())], |_| true);
        }
        let name = "vpa_admission_controller_startup_boosts_total";
        text.counter(name, "containers with a CPU start-up boost, by whether they got it");
        text.sample(name, &[("result", "applied")], self.0.boosts.load(Relaxed));
        text.sample(name, &[("result", "refused")], self.0.refused_boosts.load(Relaxed));
    }
}
