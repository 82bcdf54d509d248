//! Flags of node-pressure eviction, with the kubelet's names, syntax and defaults.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use plumb_node::eviction::{
    EvictionConfig, MinimumReclaims, SoftGracePeriods, Threshold, ThresholdError, Thresholds, combine,
};

use super::values::length_of_time;

/// When pods are evicted because their node is under pressure.
#[expect(clippy::struct_field_names, reason = "they are the names of the flags")]
#[derive(Debug, Args)]
pub(crate) struct EvictionFlags {
    /// The thresholds at which a pod is evicted at once: memory.available, nodefs.available, nodefs.inodesFree,
    /// imagefs.available, imagefs.inodesFree, pid.available, each with an amount or a percentage. Empty switches them off.
    #[arg(long, default_value = Thresholds::DEFAULT, value_name = "THRESHOLDS")]
    pub(crate) eviction_hard: Thresholds,
    /// The thresholds at which a pod is evicted once they were met for their grace period, such as
    /// `memory.available<1.5Gi`.
    #[arg(long, default_value = "", value_name = "THRESHOLDS", hide_default_value = true)]
    pub(crate) eviction_soft: Thresholds,
    /// The grace periods of --eviction-soft, such as `memory.available=1m30s`.
    #[arg(long, default_value = "", value_name = "TIMES", hide_default_value = true)]
    pub(crate) eviction_soft_grace_period: SoftGracePeriods,
    /// The longest grace period, in seconds, of a pod that is evicted for a soft threshold.
    #[arg(long, default_value = "0", value_name = "SECONDS")]
    pub(crate) eviction_max_pod_grace_period: u32,
    /// How much more than a threshold is reclaimed once it was met, such as `imagefs.available=2Gi`.
    #[arg(long, default_value = "", value_name = "AMOUNTS", hide_default_value = true)]
    pub(crate) eviction_minimum_reclaim: MinimumReclaims,
    /// How long a pressure condition of the node stays after its threshold is not met any more.
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = period)]
    pub(crate) eviction_pressure_transition_period: Duration,
}

impl EvictionFlags {
    fn thresholds(&self) -> Result<Vec<Threshold>, ThresholdError> {
        combine(
            &self.eviction_hard,
            &self.eviction_soft,
            &self.eviction_soft_grace_period,
            &self.eviction_minimum_reclaim,
        )
    }

    /// The error for flags that are valid by themselves and not together.
    pub(crate) fn check(&self) -> Result<(), ThresholdError> {
        self.thresholds().map(|_| ())
    }

    /// The configuration of a node with its volumes and logs in a data directory, and its images on the file system of another;
    /// `None` takes the one that the container runtime reports.
    pub(crate) fn config(
        &self,
        data: &Path,
        image_fs: Option<PathBuf>,
    ) -> Result<EvictionConfig, ThresholdError> {
        Ok(EvictionConfig {
            thresholds: self.thresholds()?,
            max_pod_grace_period: Duration::from_secs(self.eviction_max_pod_grace_period.into()),
            pressure_transition_period: self.eviction_pressure_transition_period,
            ..EvictionConfig::new(PathBuf::from("/"), data.to_owned(), image_fs)
        })
    }
}

/// A time that is not negative.
fn period(text: &str) -> anyhow::Result<Duration> {
    let time = length_of_time(text)?;
    Duration::try_from(time).map_err(|_| anyhow::anyhow!("it must not be negative"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use plumb_node::eviction::Signal;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        eviction: EvictionFlags,
    }

    fn config(flags: &[&str]) -> Result<EvictionConfig, String> {
        let command = Command::try_parse_from(["node"].iter().chain(flags));
        let command = command.map_err(|error| error.to_string())?;
        let data = Path::new("/data");
        command.eviction.config(data, None).map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_are_those_of_the_kubelet() {
        let config = config(&[]).unwrap();
        let hard: Vec<String> =
            config.thresholds.iter().map(|one| format!("{}<{}", one.signal, one.value)).collect();
        let expected = [
            "memory.available<100Mi",
            "nodefs.available<10%",
            "nodefs.inodesFree<5%",
            "imagefs.available<15%",
            "imagefs.inodesFree<5%",
        ];
        assert_eq!(hard, expected);
        assert!(config.thresholds.iter().all(Threshold::is_hard));
        assert_eq!(config.pressure_transition_period, Duration::from_mins(5));
        assert_eq!(
            (config.interval, config.max_pod_grace_period),
            (EvictionConfig::INTERVAL, Duration::ZERO)
        );
    }

    #[test]
    fn flags_switch_thresholds_off_and_invalid_ones_are_refused_with_the_words_of_the_kubelet() {
        assert!(config(&["--eviction-hard", ""]).unwrap().thresholds.is_empty());
        let soft = ["--eviction-hard=", "--eviction-soft", "memory.available<1.5Gi"];
        let error = config(&soft).unwrap_err();
        assert_eq!(error, "grace period must be specified for the soft eviction threshold memory.available");
        let period = "--eviction-soft-grace-period=memory.available=1m30s";
        let thresholds = config(&[&soft[..], &[period]].concat()).unwrap().thresholds;
        let found = thresholds.iter().map(|one| (one.signal, one.grace_period));
        assert_eq!(found.collect::<Vec<_>>(), [(Signal::MemoryAvailable, Duration::from_secs(90))]);
        let error = config(&["--eviction-hard", "disk<1Gi"]).unwrap_err();
        assert!(error.contains("unsupported eviction signal disk"), "{error}");
    }
}
