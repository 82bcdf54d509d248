//! The updater.

mod boost_soak;
mod budget;
mod decisions;
mod guard;
mod in_place_mode;
mod make;
mod node_groups;
mod oom;
mod priority;
mod records;
mod recreating_modes;
mod refusals;
mod soak;
mod unboost;
mod upstream_defects;
mod world;
