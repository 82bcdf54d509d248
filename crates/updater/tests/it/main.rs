//! The updater, on a real API server in this process.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod boost_soak;
mod budget;
mod decisions;
mod growth;
mod guard;
mod in_place_mode;
// `plumb_vpa_admission::Webhook` without its server, as the bench of that crate calls it.
#[path = "../../../vpa-admission/tests/common/in_process_webhook.rs"]
mod in_process_webhook;
mod make;
mod node_groups;
mod oom;
mod priority;
mod records;
mod recreating_modes;
mod refusals;
mod shrink_first;
mod soak;
mod unboost;
mod upstream_defects;
mod world;
