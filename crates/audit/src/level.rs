//! Levels and stages of `audit.k8s.io/v1`.

use serde::Serialize;

/// In which detail a request is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Level {
    /// Not at all.
    #[default]
    None,
    /// Who requested what when, and with which result; no bodies.
    Metadata,
    /// The object of the request, too.
    Request,
    /// The objects of the request and of the response.
    RequestResponse,
}

impl Level {
    /// All levels, the least detailed first.
    pub const ALL: [Self; 4] = [Self::None, Self::Metadata, Self::Request, Self::RequestResponse];

    /// Its name in a policy.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// The stage of a request that an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Stage {
    /// The user is known, and the request has not been handled yet.
    RequestReceived,
    /// The head of the response is ready, the body is not: watches, logs, commands.
    ResponseStarted,
    /// The response is complete.
    ResponseComplete,
    /// The handler panicked.
    Panic,
}

impl Stage {
    /// All stages, in the order of upstream's messages.
    pub const ALL: [Self; 4] =
        [Self::RequestReceived, Self::ResponseStarted, Self::ResponseComplete, Self::Panic];

    /// Its name in a policy.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// A set of stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages(u8);

impl Stages {
    /// Whether a stage is in the set.
    pub const fn contains(self, stage: Stage) -> bool {
        self.0 & 1 << stage as u8 != 0
    }

    /// The stages of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl FromIterator<Stage> for Stages {
    fn from_iter<T: IntoIterator<Item = Stage>>(stages: T) -> Self {
        Self(stages.into_iter().fold(0, |set, stage| set | 1 << stage as u8))
    }
}
