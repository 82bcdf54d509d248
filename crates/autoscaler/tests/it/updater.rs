//! The updater.

mod budget;
mod decisions;
mod guard;
mod make;
mod priority;
mod records;
mod refusals;
