//! The flags of the autoscaler that `plumb up` runs.

use std::time::Duration;

use clap::Args;
use plumb_resize::Quantity;

use super::values::{interval, positive_quantity};

/// How the autoscaler works. A heading holds for what is flattened after it, too, which needs one of its own.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Autoscaler")]
pub(crate) struct AutoscalerFlags {
    /// How often the recommender reads the usage of containers and updates recommendations.
    #[arg(long, default_value = "1m", value_name = "TIME", value_parser = interval)]
    pub(crate) recommender_interval: Duration,
    /// How often the updater reconciles all VPAs in case it missed a change. It acts on changes at once.
    #[arg(long, default_value = "1m", value_name = "TIME", value_parser = interval)]
    pub(crate) updater_interval: Duration,
    /// Never lower memory below the highest usage of the recent past plus a margin; a VPA's annotation
    /// `plumb.dev/memory-decrease-guard` overrides it.
    #[arg(long)]
    pub(crate) memory_decrease_guard: bool,
    /// The most CPU that a container gets by a start-up boost; any amount if absent.
    #[arg(long, value_name = "QUANTITY", value_parser = positive_quantity)]
    pub(crate) max_allowed_cpu_boost: Option<Quantity>,
    /// For how long a pod that is not ready keeps its start-up boost.
    #[arg(long, default_value = "30m", value_name = "TIME", value_parser = interval)]
    pub(crate) startup_boost_deadline: Duration,
    /// Boost containers again when they restart, until their pod is ready again; a VPA's annotation
    /// `plumb.dev/startup-boost-on-restart` overrides it.
    #[arg(long)]
    pub(crate) startup_boost_on_restart: bool,
    /// Let VPAs of a DaemonSet select nodes, by the annotation `plumb.dev/node-selector`, and apply to the pods on these
    /// nodes alone.
    #[arg(long)]
    pub(crate) node_selectors: bool,
}
