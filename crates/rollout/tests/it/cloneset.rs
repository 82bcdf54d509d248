//! `CloneSet`s.

mod batches;
mod cluster;
mod crd;
mod failures;
mod model;
mod pace;
mod priority;
mod random;
mod refusals;
mod regressions;
mod scaling;
mod updates;
