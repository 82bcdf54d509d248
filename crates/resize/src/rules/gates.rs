//! Feature gates, under the names Kubernetes gives them.

use std::str::FromStr;

/// A feature gate that the rules of a resize know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// `InPlacePodVerticalScaling`: the feature as a whole.
    InPlacePodVerticalScaling,
    /// `InPlacePodVerticalScalingInitContainers`: plain init containers too.
    InitContainers,
    /// `InPlacePodLevelResourcesVerticalScaling`: `spec.resources` too.
    PodLevelResources,
    /// `InPlacePodVerticalScalingExclusiveCPUs`: beside the static cpu manager.
    ExclusiveCpus,
    /// `InPlacePodVerticalScalingExclusiveMemory`: beside the static memory manager.
    ExclusiveMemory,
    /// `InPlacePodVerticalScalingSchedulerPreemption`: pods of lower priority are evicted for a deferred resize.
    SchedulerPreemption,
}

impl Gate {
    /// Every gate.
    pub const ALL: [Self; 6] = [
        Self::InPlacePodVerticalScaling,
        Self::InitContainers,
        Self::PodLevelResources,
        Self::ExclusiveCpus,
        Self::ExclusiveMemory,
        Self::SchedulerPreemption,
    ];

    /// The name users give it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InPlacePodVerticalScaling => "InPlacePodVerticalScaling",
            Self::InitContainers => "InPlacePodVerticalScalingInitContainers",
            Self::PodLevelResources => "InPlacePodLevelResourcesVerticalScaling",
            Self::ExclusiveCpus => "InPlacePodVerticalScalingExclusiveCPUs",
            Self::ExclusiveMemory => "InPlacePodVerticalScalingExclusiveMemory",
            Self::SchedulerPreemption => "InPlacePodVerticalScalingSchedulerPreemption",
        }
    }

    /// Whether it is on unless told otherwise, as in Kubernetes 1.36.
    pub const fn default_on(self) -> bool {
        match self {
            Self::InPlacePodVerticalScaling | Self::InitContainers | Self::PodLevelResources => true,
            Self::ExclusiveCpus | Self::ExclusiveMemory | Self::SchedulerPreemption => false,
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// What is wrong with a list of feature gates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// There is no gate of that name.
    #[error("unknown feature gate {0:?}: known are {known}", known = known_gates())]
    Unknown(String),
    /// An entry is not `Name=true` or `Name=false`.
    #[error("bad feature gate setting {0:?}: write Name=true or Name=false")]
    Malformed(String),
}

fn known_gates() -> String {
    Gate::ALL.map(Gate::name).join(", ")
}

/// Which gates are on.
///
/// ```
/// use plumb_resize::rules::{Gate, Gates};
///
/// let gates: Gates = "InPlacePodVerticalScalingExclusiveCPUs=true".parse()?;
/// assert!(gates.is_on(Gate::ExclusiveCpus));
/// assert!(gates.is_on(Gate::InPlacePodVerticalScaling));
/// # Ok::<(), plumb_resize::rules::GateError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates(u8);

impl Gates {
    /// Whether a gate is on.
    pub const fn is_on(&self, gate: Gate) -> bool {
        self.0 & gate.bit() != 0
    }

    /// Switches a gate.
    pub fn set(&mut self, gate: Gate, on: bool) {
        if on {
            self.0 |= gate.bit();
        } else {
            self.0 &= !gate.bit();
        }
    }
}

impl Default for Gates {
    fn default() -> Self {
        let mut gates = Self(0);
        for gate in Gate::ALL {
            gates.set(gate, gate.default_on());
        }
        gates
    }
}

impl FromStr for Gates {
    type Err = GateError;

    /// Reads `A=true,B=false` on top of the defaults, as `--feature-gates` gives it.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut gates = Self::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let malformed = || GateError::Malformed(entry.to_owned());
            let (name, value) = entry.split_once('=').ok_or_else(malformed)?;
            let gate = Gate::ALL
                .into_iter()
                .find(|gate| gate.name() == name.trim())
                .ok_or_else(|| GateError::Unknown(name.trim().to_owned()))?;
            gates.set(gate, value.trim().parse().map_err(|_| malformed())?);
        }
        Ok(gates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_on_top_of_the_defaults() {
        let gates: Gates = " InPlacePodVerticalScalingInitContainers=false , ".parse().unwrap();
        assert!(!gates.is_on(Gate::InitContainers));
        assert!(gates.is_on(Gate::PodLevelResources));
    }

    #[test]
    fn mistakes_say_what_to_write() {
        assert_eq!(
            "Nope=true".parse::<Gates>().unwrap_err().to_string(),
            "unknown feature gate \"Nope\": known are InPlacePodVerticalScaling, \
             InPlacePodVerticalScalingInitContainers, InPlacePodLevelResourcesVerticalScaling, \
             InPlacePodVerticalScalingExclusiveCPUs, InPlacePodVerticalScalingExclusiveMemory, \
             InPlacePodVerticalScalingSchedulerPreemption"
        );
        for bad in ["InPlacePodVerticalScaling", "InPlacePodVerticalScaling=maybe"] {
            assert_eq!(bad.parse::<Gates>(), Err(GateError::Malformed(bad.to_owned())));
        }
    }
}
