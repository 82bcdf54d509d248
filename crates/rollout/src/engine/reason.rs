//! Why a template change is more than a resize of running pods.

use std::fmt;

use plumb_resize::qos::QosClass;

/// Why a resize alone does not make a running pod follow a template.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The image of a container changed.
    Image {
        /// The container.
        container: String,
    },
    /// Labels, annotations or other metadata of the template changed.
    Metadata {
        /// The path of the field, below the template.
        path: String,
    },
    /// A request or limit was removed, which no resize can do.
    Removed {
        /// The container; none for the pod-level resources.
        container: Option<String>,
        /// The field, such as `requests.cpu`.
        field: String,
    },
    /// The pod's QoS class would change, which no resize can do.
    QosClass {
        /// The class that the pod has.
        from: QosClass,
        /// The class that it would have.
        to: QosClass,
    },
    /// The resources of a plain init container changed, which the API server does not resize.
    InitContainer {
        /// The container.
        container: String,
    },
    /// The pod-level resources changed, which the API server does not resize.
    PodLevel,
    /// A resource other than cpu and memory changed.
    OtherResource {
        /// The container; none for the pod-level resources.
        container: Option<String>,
        /// The resource, such as `ephemeral-storage`.
        resource: String,
    },
    /// Containers were added, removed, renamed or reordered.
    Containers,
    /// Another field of the template changed.
    Field {
        /// The path of the field, below the template.
        path: String,
    },
    /// A field of the workload configures updates that only its own controller does.
    LeftToController {
        /// The path of the field.
        path: String,
    },
    /// The strategy of the workload is `OnDelete`: pods get the template when a user deletes them.
    OnDelete,
    /// A container is restarted for its new resources, no pod may be unavailable, and the workload's own controller surges.
    Restart {
        /// The container.
        container: String,
        /// The resource, `cpu` or `memory`.
        resource: String,
    },
    /// The API server would refuse the resize of this pod, or a quantity cannot be read.
    Invalid {
        /// Its message.
        message: String,
    },
}

impl Reason {
    /// Whether it is about resources that were changed.
    pub const fn is_about_resources(&self) -> bool {
        matches!(
            self,
            Self::Removed { .. }
                | Self::QosClass { .. }
                | Self::InitContainer { .. }
                | Self::PodLevel
                | Self::OtherResource { .. }
                | Self::LeftToController { .. }
                | Self::OnDelete
                | Self::Restart { .. }
        )
    }

    /// The reason as one word, for conditions, events and metrics.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Image { .. } => "ImageChanged",
            Self::Metadata { .. } => "MetadataChanged",
            Self::Removed { .. } => "ResourceRemoved",
            Self::QosClass { .. } => "QOSClassChanged",
            Self::InitContainer { .. } => "InitContainerChanged",
            Self::PodLevel => "PodLevelResourcesChanged",
            Self::OtherResource { .. } => "OtherResourceChanged",
            Self::Containers => "ContainersChanged",
            Self::Field { .. } => "OtherFieldsChanged",
            Self::LeftToController { .. } => "LeftToController",
            Self::OnDelete => "OnDelete",
            Self::Restart { .. } => "RestartNotAllowed",
            Self::Invalid { .. } => "ResizeInvalid",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |container: &Option<String>| match container {
            Some(container) => format!("container {container}"),
            None => "the pod".to_owned(),
        };
        match self {
            Self::Image { container } => write!(f, "the image of container {container} changed"),
            Self::Metadata { path } | Self::Field { path } => write!(f, "{path} changed"),
            Self::Removed { container, field } => {
                write!(f, "{field} of {} was removed, which a resize cannot do", of(container))
            }
            Self::QosClass { from, to } => {
                write!(f, "the QoS class would change from {from} to {to}, which a resize cannot do")
            }
            Self::InitContainer { container } => {
                write!(f, "the resources of init container {container} changed, which cannot be resized")
            }
            Self::PodLevel => f.write_str("the pod-level resources changed, which cannot be resized"),
            Self::OtherResource { container, resource } => {
                write!(f, "{resource} of {} changed; only cpu and memory can be resized", of(container))
            }
            Self::Containers => f.write_str("containers were added, removed, renamed or reordered"),
            Self::LeftToController { path } => {
                write!(f, "{path} is set, which only the workload's own controller follows")
            }
            Self::OnDelete => f.write_str(
                "spec.updateStrategy.type is OnDelete: pods get the new template when they are deleted",
            ),
            Self::Restart { container, resource } => write!(
                f,
                "container {container} restarts when its {resource} changes, and maxUnavailable is 0, but maxSurge is not"
            ),
            Self::Invalid { message } => f.write_str(message),
        }
    }
}
