//! `CloneSet`s.

mod crd;
