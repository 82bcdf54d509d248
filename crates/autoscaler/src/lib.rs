//! The Vertical Pod Autoscaler, compatible with Kubernetes' own: recommender, updater and admission webhook.

pub mod api;
pub mod features;
pub mod install;
pub mod offline;
pub mod recommender;
