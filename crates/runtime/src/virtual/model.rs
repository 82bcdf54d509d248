//! The model of a virtual container: how much CPU and memory it uses.

use std::time::Duration;

use crate::shape::{LoadError, Shape, bytes, duration, milli};
use crate::types::{LinuxResources, Pairs};

/// The annotation that has the model of every container of a pod; with a dot and a name behind it, of one.
pub const MODEL: &str = "virtual.plumb.dev/model";

/// In how many pieces a period is divided to add up its CPU time.
const PIECES: u32 = 8;

/// The model of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Model {
    /// Thousandths of a core, and bytes: base and peak.
    cpu: (u64, u64),
    memory: (u64, u64),
    shape: Shape,
    period: Duration,
    keep: u64,
    pub(super) startup: Duration,
    /// The CPU time of the start, and the CPU demand meanwhile, in thousandths of a core.
    startup_work: (Duration, u64),
    pub(super) duration: Option<Duration>,
    pub(super) exit_code: i32,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            cpu: (0, 0),
            memory: (0, 0),
            shape: Shape::Constant,
            period: Duration::from_mins(1),
            keep: u64::MAX,
            startup: Duration::ZERO,
            startup_work: (Duration::ZERO, 1_000),
            duration: None,
            exit_code: 0,
        }
    }
}

impl Model {
    /// The model of a container, by its pod's annotations, or else by the arguments of `plumb load`.
    pub(super) fn of(
        annotations: &Pairs,
        container: &str,
        load_args: Option<&[String]>,
    ) -> Result<Self, LoadError> {
        let own = annotations.get(&format!("{MODEL}.{container}"));
        if let Some(text) = own.or_else(|| annotations.get(MODEL)) {
            return Self::read(text.split_whitespace().map(|word| {
                let (name, value) = word.split_once('=').unwrap_or((word, ""));
                (name.to_owned(), value.to_owned())
            }));
        }
        let Some(args) = load_args else { return Ok(Self::default()) };
        let mut words = Vec::new();
        let mut args = args.iter();
        while let Some(argument) = args.next() {
            let name = argument.trim_start_matches("--");
            match name.split_once('=') {
                Some((name, value)) => words.push((name.to_owned(), value.to_owned())),
                None if name == "quiet" => {}
                None => words.push((name.to_owned(), args.next().cloned().unwrap_or_default())),
            }
        }
        Self::read(words.into_iter())
    }

    fn read(words: impl Iterator<Item = (String, String)>) -> Result<Self, LoadError> {
        let mut model = Self::default();
        let (mut cpu_peak, mut memory_peak) = (None, None);
        for (name, value) in words {
            let value = value.as_str();
            match name.as_str() {
                "cpu" => model.cpu.0 = milli(value)?,
                "cpu-peak" => cpu_peak = Some(milli(value)?),
                "memory" => model.memory.0 = bytes(value)?,
                "memory-peak" => memory_peak = Some(bytes(value)?),
                "keep" => model.keep = bytes(value)?,
                // Page cache is reclaimed under a lower limit, and is not modelled.
                "file" => _ = bytes(value)?,
                "shape" => model.shape = value.parse()?,
                "period" => model.period = duration(value)?,
                "startup" => model.startup = duration(value)?,
                "startup-work" => model.startup_work.0 = duration(value)?,
                "startup-cpu" => {
                    model.startup_work.1 = milli(value)?.max(1);
                }
                "duration" => model.duration = Some(duration(value)?),
                "exit-code" => {
                    model.exit_code = value.parse().map_err(|_| LoadError::ExitCode(value.to_owned()))?;
                }
                other => return Err(LoadError::Word(other.to_owned())),
            }
        }
        model.cpu.1 = cpu_peak.unwrap_or(model.cpu.0.saturating_mul(2));
        model.memory.1 = memory_peak.unwrap_or(model.memory.0.saturating_mul(2));
        Ok(model)
    }

    /// The CPU demand, in thousandths of a core.
    fn cpu(&self, elapsed: Duration) -> u64 {
        let shape = if self.shape == Shape::Leak { Shape::Constant } else { self.shape };
        shape.usage(self.cpu.0, self.cpu.1, elapsed, self.period)
    }

    /// The memory demand, in bytes.
    pub(super) fn memory(&self, elapsed: Duration) -> u64 {
        self.shape.usage(self.memory.0, self.memory.1, elapsed, self.period)
    }

    /// Bytes that it does not give up.
    pub(super) fn kept(&self, elapsed: Duration) -> u64 {
        self.memory(elapsed).min(self.keep)
    }

    /// When, at `from` or later, it holds more than a limit and does not give it up.
    #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 bytes")]
    pub(super) fn exceeds(&self, limit: u64, from: Duration) -> Option<Duration> {
        if self.kept(from) > limit {
            return Some(from);
        }
        if self.keep <= limit || self.memory.1 <= self.memory.0 {
            return None;
        }
        let level = (limit + 1).saturating_sub(self.memory.0) as f64 / (self.memory.1 - self.memory.0) as f64;
        self.shape.reaches(level, from, self.period).filter(|at| self.kept(*at) > limit)
    }

    /// Whether it has started, after this time and this many nanoseconds of cpu.
    pub(super) fn has_started(&self, elapsed: Duration, used: u64) -> bool {
        elapsed >= self.startup && u128::from(used) >= self.startup_work.0.as_nanos()
    }

    /// Nanoseconds of cpu used in a stretch of time, and those that were wanted and not given. `before` were used earlier: the
    /// work of the start comes first, and takes as much longer as less is given.
    pub(super) fn cpu_nanos(
        &self,
        before: u64,
        from: Duration,
        to: Duration,
        limit: Option<u64>,
    ) -> (u64, u64) {
        let (work, wanted) = self.startup_work;
        let left = work.as_nanos().saturating_sub(before.into());
        if left == 0 {
            return self.shape_nanos(from, to, limit);
        }
        let given = limit.map_or(wanted, |limit| wanted.min(limit));
        let stretch = to.saturating_sub(from).as_nanos();
        let lasts = (left * 1_000).checked_div(given.into()).unwrap_or(u128::MAX).min(stretch);
        let nanos = |milli: u64| u64::try_from(u128::from(milli) * lasts / 1_000).unwrap_or(u64::MAX);
        // To the nanosecond: what is left at the end would never be done by division.
        let used = if lasts < stretch { u64::try_from(left).unwrap_or(u64::MAX) } else { nanos(given) };
        let then = from + Duration::from_nanos(u64::try_from(lasts).unwrap_or(u64::MAX));
        let (later, refused) = self.shape_nanos(then, to, limit);
        (used.saturating_add(later), nanos(wanted - given).saturating_add(refused))
    }

    fn shape_nanos(&self, from: Duration, to: Duration, limit: Option<u64>) -> (u64, u64) {
        let stretch = to.saturating_sub(from);
        if stretch.is_zero() || self.cpu == (0, 0) {
            return (0, 0);
        }
        let pieces = if self.shape == Shape::Constant { 1 } else { PIECES };
        let piece = stretch / pieces;
        let (mut used, mut refused) = (0u64, 0u64);
        for number in 0..pieces {
            let wanted = self.cpu(from + piece * number + piece / 2);
            let given = limit.map_or(wanted, |limit| wanted.min(limit));
            let nanos =
                |milli: u64| u64::try_from(u128::from(milli) * piece.as_nanos() / 1000).unwrap_or(u64::MAX);
            used = used.saturating_add(nanos(given));
            refused = refused.saturating_add(nanos(wanted - given));
        }
        (used, refused)
    }
}

/// The cpu limit in thousandths of a core.
pub(super) fn cpu_limit(resources: &LinuxResources) -> Option<u64> {
    let period = resources.cpu_period.unwrap_or(plumb_resize::cgroup::DEFAULT_PERIOD);
    let milli = plumb_resize::cgroup::milli_of_quota(resources.cpu_quota?, period)?;
    u64::try_from(milli).ok()
}

/// The memory limit in bytes.
pub(super) fn memory_limit(resources: &LinuxResources) -> Option<u64> {
    u64::try_from(resources.memory_limit?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(text: &str) -> Model {
        Model::of(&[(MODEL.to_owned(), text.to_owned())].into(), "c", None).unwrap()
    }

    #[test]
    fn a_containers_own_model_has_precedence_and_load_counts_without_any() {
        let annotations: Pairs =
            [(MODEL.to_owned(), "cpu=1".to_owned()), (format!("{MODEL}.b"), "cpu=2".to_owned())].into();
        assert_eq!(Model::of(&annotations, "a", None).unwrap().cpu, (1000, 2000));
        assert_eq!(Model::of(&annotations, "b", None).unwrap().cpu, (2000, 4000));
        let args = ["--cpu", "100m", "--memory=64Mi", "--quiet", "--shape", "leak", "--file", "8Mi"]
            .map(str::to_owned);
        let load = Model::of(&Pairs::new(), "c", Some(&args)).unwrap();
        assert_eq!((load.cpu.0, load.memory.0, load.shape), (100, 64 << 20, Shape::Leak));
        assert!(Model::of(&[(MODEL.to_owned(), "colour=red".to_owned())].into(), "c", None).is_err());
    }

    #[test]
    fn memory_exceeds_a_limit_when_it_does() {
        let leak = model("memory=64Mi memory-peak=128Mi shape=leak period=10s");
        let at = leak.exceeds(96 << 20, Duration::ZERO).unwrap();
        assert!(at > Duration::from_millis(4990) && at < Duration::from_millis(5010), "{at:?}");
        assert_eq!(leak.exceeds(32 << 20, Duration::ZERO), Some(Duration::ZERO));
        let constant = model("memory=64Mi");
        assert_eq!(constant.exceeds(64 << 20, Duration::ZERO), None);
        // Memory that can be reclaimed does not cause an OOM kill.
        let cache = model("memory=64Mi memory-peak=128Mi shape=ramp period=10s keep=70Mi");
        assert_eq!(cache.exceeds(80 << 20, Duration::ZERO), None);
        assert!(cache.exceeds(66 << 20, Duration::ZERO).is_some());
    }

    #[test]
    fn cpu_is_held_to_the_limit() {
        let two = model("cpu=2");
        let second = Duration::from_secs(1);
        assert_eq!(two.cpu_nanos(0, Duration::ZERO, second, None), (2_000_000_000, 0));
        assert_eq!(two.cpu_nanos(0, Duration::ZERO, second, Some(500)), (500_000_000, 1_500_000_000));
    }

    #[test]
    fn a_start_takes_as_much_longer_as_less_cpu_is_given() {
        let slow = model("cpu=100m startup-work=2s startup-cpu=2");
        let (zero, second) = (Duration::ZERO, Duration::from_secs(1));
        for (limit, takes) in [(None, second), (Some(500), second * 4), (Some(100), second * 20)] {
            let nearly = takes.saturating_sub(Duration::from_millis(1));
            let (before, _) = slow.cpu_nanos(0, zero, nearly, limit);
            assert!(!slow.has_started(takes, before), "{limit:?}");
            let (used, _) = slow.cpu_nanos(before, nearly, takes * 2, limit);
            assert!(slow.has_started(takes * 2, before + used), "{limit:?}");
        }
        let (used, refused) = slow.cpu_nanos(0, zero, second * 11, Some(1_000));
        assert_eq!((used, refused), (2_900_000_000, 2_000_000_000), "the start, then the shape");
    }
}
