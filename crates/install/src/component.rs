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
    /// Resizes the pods of workloads whose template changed, and runs CloneSets.
    Rollout,
}

impl Component {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Recommender, Self::Updater, Self::Admission, Self::Rollout];

    /// The name that `plumb run` takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recommender => "recommender",
            Self::Updater => "updater",
            Self::Admission => "admission",
            Self::Rollout => "rollout",
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
            Self::Admission => Some("plumb-webhook"),
            Self::Rollout => Some("plumb-rollout-webhook"),
        }
    }

    /// What it may do.
    pub fn role(self) -> plumb_roles::Component {
        match self {
            Self::Recommender => plumb_roles::RECOMMENDER,
            Self::Updater => plumb_roles::UPDATER,
            Self::Admission => plumb_roles::ADMISSION_CONTROLLER,
            Self::Rollout => plumb_roles::ROLLOUT,
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no such component.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no component {0:?}; known are recommender, updater, admission, rollout")]
pub struct UnknownComponent(String);

impl FromStr for Component {
    type Err = UnknownComponent;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|component| component.name() == text);
        known.ok_or_else(|| UnknownComponent(text.to_owned()))
    }
}
