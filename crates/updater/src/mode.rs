//! The permitted actions of the updater on the running pods of a VPA: by the update mode, the feature gates, and the
//! served API.

use plumb_features::FeatureGates;
use plumb_vpa::features;
use plumb_vpa_api::UpdateMode;

/// The permitted actions of the updater on running pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actuation {
    /// None.
    None(NoActuation),
    /// Evict them.
    Recreate,
    /// Resize them in place, and evict those that cannot be resized.
    InPlaceOrRecreate,
    /// Resize them in place, and nothing else.
    InPlace,
}

/// Why running pods are left as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoActuation {
    /// The update mode is `Off` or `Initial`.
    Mode,
    /// The update mode is `InPlace` and its feature gate is off.
    GateOff,
    /// The update mode is `InPlace` and the API server has no `pods/resize`.
    ResizeNotServed,
    /// The update mode is one that this version does not know.
    Unknown(String),
}

/// The meaning of `Auto`, which is deprecated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AutoMode {
    /// In place first, as AEP-8818 has it.
    #[default]
    InPlaceOrRecreate,
    /// Eviction alone, as the upstream autoscaler has it since 1.7.
    Recreate,
}

/// The other inputs of update modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes {
    /// The feature gate `InPlace`.
    pub in_place: bool,
    /// The feature gate `InPlaceOrRecreate`.
    pub in_place_or_recreate: bool,
    /// The meaning of `Auto`.
    pub auto: AutoMode,
    /// Whether the API server has `pods/resize`.
    pub resize_served: bool,
}

impl Default for Modes {
    fn default() -> Self {
        Self::new(&FeatureGates::default())
    }
}

impl Modes {
    /// By feature gates, on a cluster that can resize pods.
    pub fn new(gates: &FeatureGates) -> Self {
        Self {
            in_place: gates.enabled(&features::IN_PLACE),
            in_place_or_recreate: gates.enabled(&features::IN_PLACE_OR_RECREATE),
            auto: AutoMode::default(),
            resize_served: true,
        }
    }

    /// The permitted actions of the updater on the running pods of a VPA with this mode.
    ///
    /// `InPlace` is never turned into anything that evicts: without its gate, or without `pods/resize`, running pods are left
    /// as they are. The modes that may evict fall back to eviction.
    pub fn actuation(&self, mode: &UpdateMode) -> Actuation {
        let in_place_first = || {
            let enabled = self.in_place_or_recreate && self.resize_served;
            if enabled { Actuation::InPlaceOrRecreate } else { Actuation::Recreate }
        };
        match mode {
            UpdateMode::Off | UpdateMode::Initial => Actuation::None(NoActuation::Mode),
            UpdateMode::Recreate => Actuation::Recreate,
            UpdateMode::InPlaceOrRecreate => in_place_first(),
            UpdateMode::Auto => match self.auto {
                AutoMode::InPlaceOrRecreate => in_place_first(),
                AutoMode::Recreate => Actuation::Recreate,
            },
            UpdateMode::InPlace if !self.in_place => Actuation::None(NoActuation::GateOff),
            UpdateMode::InPlace if !self.resize_served => Actuation::None(NoActuation::ResizeNotServed),
            UpdateMode::InPlace => Actuation::InPlace,
            UpdateMode::Other(text) => Actuation::None(NoActuation::Unknown(text.clone())),
        }
    }
}
