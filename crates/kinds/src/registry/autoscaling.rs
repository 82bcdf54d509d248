//! The kinds of `autoscaling`.

mod horizontal_pod_autoscaler;

pub(super) use horizontal_pod_autoscaler::HorizontalPodAutoscalerStrategy;
