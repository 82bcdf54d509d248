//! `CloneSet`s.

mod cluster;
mod crd;
mod pace;
mod priority;
mod regressions;
mod scaling;
mod updates;
