//! `HorizontalPodAutoscalers`.

use crate::registry::Strategy;

/// The strategy of `HorizontalPodAutoscalers`.
#[derive(Debug)]
pub(in crate::registry) struct HorizontalPodAutoscalerStrategy;

impl Strategy for HorizontalPodAutoscalerStrategy {}
