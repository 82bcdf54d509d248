//! What cases are run against.

use std::sync::Arc;

use crate::case::Dialect;
use crate::cgroups::Cgroups;
use crate::runner::Options;

/// What a kubeconfig leads to, as far as it matters to how cases are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Target {
    /// `plumb up` with virtual pods.
    Virtual,
    /// `plumb up` with containers of its own.
    Builtin,
    /// `plumb up` with containers of containerd.
    Containerd,
    /// A Kubernetes.
    #[default]
    Kubernetes,
}

impl Target {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Virtual, Self::Builtin, Self::Containerd, Self::Kubernetes];

    /// How flags and files spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Virtual => "virtual",
            Self::Builtin => "builtin",
            Self::Containerd => "containerd",
            Self::Kubernetes => "kubernetes",
        }
    }

    /// How cases are run against it: what containers are made of, and whether what is in force is looked up in the
    /// cgroups of this machine. Only who knows that the node is this machine asks for the latter.
    pub fn options(self, dialect: Dialect, cgroups: bool) -> Options {
        let has_cgroups = cgroups && self != Self::Virtual;
        let options = Options { target: self, dialect, ..Options::default() };
        let options = match self {
            Self::Kubernetes => options,
            Self::Virtual | Self::Builtin | Self::Containerd => {
                // `plumb up` runs one.
                let autoscaler = true;
                Options { image: String::from("plumb/load"), command: Vec::new(), autoscaler, ..options }
            }
        };
        Options { inspect: has_cgroups.then(|| Arc::new(Cgroups::default()) as _), ..options }
    }
}
