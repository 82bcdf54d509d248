//! The CloneSet controller.

pub mod counts;
pub mod in_place;
pub mod instances;
pub mod keys;
pub mod lifecycle;
pub mod order;
pub mod revisions;
pub mod view;
