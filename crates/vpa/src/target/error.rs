//! Why it is not known what a targetRef selects. The texts are upstream's, which users search for.

use plumb_vpa_api::CrossVersionObjectReference;

/// Why a controller, or the one above it, is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// A well-known controller does not exist.
    #[error("{kind} {namespace}/{name} does not exist")]
    NotFound {
        /// Of which kind.
        kind: String,
        /// In which namespace.
        namespace: String,
        /// Under which name.
        name: String,
    },
    /// The kind does not exist, has no `/scale`, or has no such object.
    #[error("Unhandled targetRef {api_version} / {kind} / {name}, last error {reason}")]
    Unhandled {
        /// What the targetRef says, or the group of the kind.
        api_version: String,
        /// The kind.
        kind: String,
        /// Name of the object.
        name: String,
        /// What is missing.
        reason: String,
    },
    /// The `/scale` subresource does not say which pods there are.
    #[error("Resource {namespace}/{name} has an empty selector for scale sub-resource")]
    EmptyScaleSelector {
        /// Namespace of the object.
        namespace: String,
        /// Name of the object.
        name: String,
    },
    /// A well-known controller selects every pod of its namespace.
    #[error("{kind} {namespace}/{name} has an empty selector, which matches every pod of the namespace")]
    EmptySelector {
        /// Of which kind.
        kind: String,
        /// In which namespace.
        namespace: String,
        /// Under which name.
        name: String,
    },
    /// The selector cannot be read.
    #[error("the selector of {kind} {namespace}/{name} is invalid: {reason}")]
    InvalidSelector {
        /// Of which kind.
        kind: String,
        /// In which namespace.
        namespace: String,
        /// Under which name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Controllers that control each other.
    #[error("Cycle detected in ownership chain")]
    Cycle,
    /// A request failed. What it asked for may exist or not.
    #[error("cannot read {kind} {namespace}/{name}: {reason}")]
    Unavailable {
        /// Of which kind.
        kind: String,
        /// In which namespace.
        namespace: String,
        /// Under which name.
        name: String,
        /// What the API answered.
        reason: String,
    },
}

impl TargetError {
    /// Whether nothing is known about the object, because a request failed. Whatever was known before should be used.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// Whether the object does not exist, or cannot be scaled.
    pub(super) fn is_absence(&self) -> bool {
        matches!(self, Self::NotFound { .. } | Self::Unhandled { .. })
    }

    /// The same with the `apiVersion` as the targetRef has it.
    pub(super) fn of_target(mut self, target_ref: &CrossVersionObjectReference) -> Self {
        if let Self::Unhandled { api_version, .. } = &mut self {
            *api_version = target_ref.api_version.clone().unwrap_or_default();
        }
        self
    }
}

/// Why the targetRef of a VPA cannot be acted on: the messages of the condition `ConfigUnsupported`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetRefError {
    /// It is not known which pods it selects.
    #[error("Cannot read targetRef. Reason: {0}")]
    Unreadable(#[source] TargetError),
    /// It is not known whether it is a topmost controller.
    #[error("Error checking if target {target} is a topmost well-known or scalable controller: {source}")]
    Unchecked {
        /// What the targetRef names.
        target: String,
        /// Why it is not known.
        source: TargetError,
    },
    /// It is neither well-known nor scalable.
    #[error(
        "Unknown error during checking if target {target} is a topmost well-known or scalable controller"
    )]
    Unknown {
        /// What the targetRef names.
        target: String,
    },
    /// Another controller is above it.
    #[error(
        "The target {target} has a parent controller but it should point to a topmost well-known or scalable controller"
    )]
    NotTopmost {
        /// What the targetRef names.
        target: String,
    },
}

impl TargetRefError {
    /// Whether nothing is known about the target, because a request failed. Whatever was known before should be used.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreadable(source) | Self::Unchecked { source, .. } => source.is_transient(),
            Self::Unknown { .. } | Self::NotTopmost { .. } => false,
        }
    }
}

/// A target in upstream's messages: `apps/v1.Deployment/web`.
pub(super) fn describe(target_ref: &CrossVersionObjectReference) -> String {
    let CrossVersionObjectReference { api_version, kind, name } = target_ref;
    format!("{}.{kind}/{name}", api_version.as_deref().unwrap_or_default())
}
