//! `CloneSet`s.

mod cluster;
mod crd;
mod regressions;
mod scaling;
mod updates;
