//! The kinds of `autoscaling`.

mod horizontal_pod_autoscaler;
pub(crate) mod scale;

pub(super) use horizontal_pod_autoscaler::HorizontalPodAutoscalerStrategy;
