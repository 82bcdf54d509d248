//! The targets of cases.

use std::sync::Arc;

use crate::case::Dialect;
use crate::cgroups::Cgroups;
use crate::runner::Options;

/// The kind of cluster behind a kubeconfig.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Target {
    /// `plumb up` with the virtual runtime.
    Virtual,
    /// `plumb up` with the built-in runtime.
    Builtin,
    /// `plumb up` with containerd.
    Containerd,
    /// Kubernetes.
    #[default]
    Kubernetes,
}

impl Target {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Virtual, Self::Builtin, Self::Containerd, Self::Kubernetes];

    /// The name in flags and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Virtual => "virtual",
            Self::Builtin => "builtin",
            Self::Containerd => "containerd",
            Self::Kubernetes => "kubernetes",
        }
    }

    /// The options for this target: image and command of containers, and whether the runner reads actual resources
    /// from the cgroups of this machine. The latter works only if the node is this machine.
    pub fn options(self, dialect: Dialect, cgroups: bool) -> Options {
        let has_cgroups = cgroups && self != Self::Virtual;
        let options = Options { target: self, dialect, ..Options::default() };
        let options = match self {
            Self::Kubernetes => options,
            Self::Virtual | Self::Builtin | Self::Containerd => {
                // `plumb up` runs an autoscaler.
                let autoscaler = true;
                Options { image: String::from("plumb/load"), command: Vec::new(), autoscaler, ..options }
            }
        };
        Options { inspect: has_cgroups.then(|| Arc::new(Cgroups::default()) as _), ..options }
    }
}
