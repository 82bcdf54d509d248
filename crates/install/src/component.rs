//! The components that are installed.

use std::fmt;
use std::str::FromStr;

/// A component that runs in a Deployment of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// Recommends cpu and memory.
    Recommender,
    /// Resizes the pods of VPAs, and evicts them where their VPA asks for that.
    Updater,
    /// Changes new pods and validates VPAs.
    Admission,
    /// Recommender, updater and admission in one process, without a standby: pods and VPAs are in memory once. Components
    /// with leader election have caches of their own, because those of an earlier term are out of date.
    Autoscaler,
    /// Resizes the pods of workloads whose template changed, and runs CloneSets.
    Rollout,
}

impl Component {
    /// All components.
    pub const ALL: [Self; 5] =
        [Self::Recommender, Self::Updater, Self::Admission, Self::Autoscaler, Self::Rollout];

    /// The components that are installed by default, each with its own role.
    pub const DEFAULT: [Self; 4] = [Self::Recommender, Self::Updater, Self::Admission, Self::Rollout];

    /// The name that users choose it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recommender => "recommender",
            Self::Updater => "updater",
            Self::Admission => "admission",
            Self::Autoscaler => "autoscaler",
            Self::Rollout => "rollout",
        }
    }

    /// The command of `plumb run` that runs it.
    pub fn command(self) -> &'static str {
        match self {
            Self::Autoscaler => "all",
            other => other.name(),
        }
    }

    /// The name of its objects.
    pub fn object_name(self) -> String {
        format!("plumb-{}", self.name())
    }

    /// The Service by which API servers reach its webhook, if it has one.
    pub fn webhook_service(self) -> Option<&'static str> {
        match self {
            Self::Recommender | Self::Updater => None,
            Self::Admission | Self::Autoscaler => Some("plumb-webhook"),
            Self::Rollout => Some("plumb-rollout-webhook"),
        }
    }

    /// The name of the configuration of its webhook, if it has one.
    pub fn webhook_configuration(self) -> Option<&'static str> {
        match self {
            Self::Recommender | Self::Updater => None,
            Self::Admission | Self::Autoscaler => Some(plumb_vpa_admission::registration::NAME),
            Self::Rollout => Some(plumb_rollout::webhook::NAME),
        }
    }

    /// Whether it always has one replica, whatever the number of replicas of the others.
    pub fn is_single(self) -> bool {
        self == Self::Autoscaler
    }

    /// Whether it uses leader election. Every replica of the admission webhook serves.
    pub fn is_elected(self) -> bool {
        match self {
            Self::Recommender | Self::Updater | Self::Rollout => true,
            Self::Admission | Self::Autoscaler => false,
        }
    }

    /// The components in its process: itself, or several.
    pub fn parts(self) -> &'static [Self] {
        match self {
            Self::Recommender => &[Self::Recommender],
            Self::Updater => &[Self::Updater],
            Self::Admission => &[Self::Admission],
            Self::Autoscaler => &[Self::Recommender, Self::Updater, Self::Admission],
            Self::Rollout => &[Self::Rollout],
        }
    }

    /// The roles of its service account, each with the name of the role's objects.
    pub fn roles(self) -> impl Iterator<Item = (String, plumb_roles::Component)> {
        let role = |part: &Self| match part {
            Self::Recommender => Some(plumb_roles::RECOMMENDER),
            Self::Updater => Some(plumb_roles::UPDATER),
            Self::Admission => Some(plumb_roles::ADMISSION_CONTROLLER),
            Self::Rollout => Some(plumb_roles::ROLLOUT),
            // The rollout is no part of another component.
            Self::Autoscaler => None,
        };
        self.parts().iter().filter_map(move |part| Some((part.object_name(), role(part)?)))
    }
}

/// A component is chosen together with one that is a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("component {whole} runs {part} in its own process; choose one of the two")]
pub struct ChosenTwice {
    whole: Component,
    part: Component,
}

/// Checks that no component is chosen twice: by itself, and as a part of another.
pub fn check_parts(components: &[Component]) -> Result<(), ChosenTwice> {
    for &whole in components {
        let mut parts = whole.parts().iter().copied().filter(|part| *part != whole);
        if let Some(part) = parts.find(|part| components.contains(part)) {
            return Err(ChosenTwice { whole, part });
        }
    }
    Ok(())
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name of a component is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no component {0:?}; known are recommender, updater, admission, autoscaler (these three in one process), rollout"
)]
pub struct UnknownComponent(String);

impl FromStr for Component {
    type Err = UnknownComponent;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|component| component.name() == text);
        known.ok_or_else(|| UnknownComponent(text.to_owned()))
    }
}
