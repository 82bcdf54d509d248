//! `CloneSet`s.

mod cluster;
mod crd;
mod priority;
mod regressions;
mod scaling;
mod updates;
